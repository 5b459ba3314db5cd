"""Manifests and commits: files that name what belongs together, with checksums of their content.

::

    MANIFEST                 of a folder that is written once
    MANIFEST.000007          of generation 7 of a folder that is written repeatedly; the newest one is current
    COMMIT.000012            a manifest with a payload: the state that it names is in the same file
    ….0123456789abcdef.new   one being written; nobody can guess its name

A manifest is a line with the CRC-32C of the rest in hexadecimal, then JSON: format, version, generation, content. A
commit has the bytes of the JSON in that line too. Behind the JSON it has the payload, of ``state_bytes``, and 4 bytes
with the CRC-32C of everything before. Either is written under another name, synced and renamed, so readers find the old
or the new one, complete. The files that it names must be durable before: the writers sync the content, and
``write_atomically`` the names.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from framestow._core import checksum
from framestow.errors import DamagedDataError, IncompatibleError
from framestow.storage.files.file_system import DISK, FileSystem, write_atomically, write_durably

MANIFEST = "MANIFEST"
MOST_MANIFEST_BYTES = 8 * 2**20  # it names some 100,000 files of 64 MiB
_NUMBERED = re.compile(rf"{MANIFEST}\.(\d{{6,}})(.*)", re.DOTALL)  # groups: the number of the generation, the ending
_COMMIT_LINE_BYTES, _LAST_BYTES = 18, 4  # of a commit: its first line, and its last checksum
LOAD_AN_OLDER_SAVE = "load an older save"


def write_checked(path: Path, content: bytes, files: FileSystem = DISK) -> dict[str, Any]:
    """Write and sync a file; return its entry for a manifest: name, bytes, checksum."""
    write_durably(path, content, files)
    return {"name": path.name, "bytes": len(content), "checksum": checksum(content)}


def read_checked(
    folder: Path, entry: dict[str, Any], files: FileSystem = DISK, *, way_out: str = LOAD_AN_OLDER_SAVE
) -> bytes:
    """Read the file of a manifest's ``entry``, of its bytes; raise ``DamagedDataError`` naming it if it is damaged."""
    name, size = entry.get("name"), entry.get("bytes")
    if not is_file_name(name) or type(size) is not int:
        raise DamagedDataError(f"{folder}: its manifest names {name!r} of {size!r} bytes, which is no file; {way_out}")
    path = folder / name
    try:
        content = files.read(path, size) if files.size(path) == size else None
    except DamagedDataError:
        raise
    except OSError as error:
        raise DamagedDataError(f"{path}: the file cannot be read ({error.strerror}); {way_out}") from error
    if content is None or checksum(content) != entry.get("checksum"):
        raise DamagedDataError(f"{path}: its checksum is wrong; {way_out}")
    return content


def is_file_name(value: Any) -> TypeGuard[str]:
    """Return whether a value is the name of a file in the same folder, without a path.

    >>> is_file_name("state.npz"), is_file_name("../state"), is_file_name("C:state"), is_file_name(7)
    (True, False, False, False)
    """
    return isinstance(value, str) and value not in ("", ".", "..") and not set(value) & set("/\\:\0")


def manifest_path(folder: Path, generation: int | None = None) -> Path:
    """Return the path of a generation's manifest.

    >>> manifest_path(Path("memory"), 7).name
    'MANIFEST.000007'
    """
    return folder / (MANIFEST if generation is None else f"{MANIFEST}.{generation:06d}")


class ManifestNames(NamedTuple):
    """The generations of a folder by their manifests, from one listing."""

    generations: list[int]
    """Generations with a manifest, oldest first."""
    next_generation: int
    """A number above every generation that was started. Failed ones count too: their rename may be on the disk."""

    @classmethod
    def read(cls, folder: Path, files: FileSystem = DISK) -> ManifestNames:
        """List the manifests in ``folder``."""
        found = [(int(match[1]), match[2]) for match in map(_NUMBERED.fullmatch, files.names(folder)) if match]
        return cls(
            sorted(number for number, ending in found if not ending), 1 + max((one[0] for one in found), default=0)
        )


def generations(folder: Path, files: FileSystem = DISK) -> list[int]:
    """Return the generations with a manifest in ``folder``, oldest first."""
    return ManifestNames.read(folder, files).generations


def write_manifest(
    folder: Path,
    kind: str,
    version: int,
    content: dict[str, Any],
    *,
    generation: int | None = None,
    files: FileSystem = DISK,
) -> None:
    """Write the manifest of ``folder``, or of one generation, atomically and durably.

    If the last sync of the folder fails, the manifest exists, but a loss of power may remove it. Then continue with
    ``ManifestNames.next_generation``.
    """
    numbered = {} if generation is None else {"generation": generation}
    body = json.dumps({"format": kind, "version": version, **numbered, **content}, indent=1).encode()
    write_atomically(manifest_path(folder, generation), b"%08x\n" % checksum(body) + body, files)


def read_manifest(
    folder: Path,
    kind: str,
    version: int,
    *,
    generation: int | None = None,
    files: FileSystem = DISK,
    way_out: str = LOAD_AN_OLDER_SAVE,
) -> dict[str, Any]:
    """Read the manifest of ``folder``, or of one generation. ``way_out`` ends the message about a damaged one.

    Raises:
        FileNotFoundError: there is no manifest.
        DamagedDataError: its bytes were changed.
        IncompatibleError: it has another format or version.
    """
    path = manifest_path(folder, generation)
    try:
        stored_checksum, _, body = files.read(path, MOST_MANIFEST_BYTES).partition(b"\n")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(
            f"{path}: no {kind} was saved in this folder; give the folder that it was saved to"
        ) from error
    if stored_checksum != b"%08x" % checksum(body):
        raise DamagedDataError(f"{path}: its checksum is wrong; {way_out}")
    return _unpack(path, body, kind, version, generation, way_out)


class CommitFile(NamedTuple):
    """What a commit's file has, as far as its checksums are right."""

    fields: dict[str, Any] | None
    """The JSON; ``None`` if its checksum is wrong."""
    payload: bytes
    problem: str
    """What a message says of a wrong checksum or length; empty for a whole commit."""


def write_commit_file(
    path: Path, new: Path, kind: str, version: int, fields: dict[str, Any], payload: bytes, files: FileSystem = DISK
) -> None:
    """Write a commit atomically and durably, under the name ``new`` at first.

    ``fields`` have its ``generation``, and the bytes of the payload as ``state_bytes``.
    """
    body = json.dumps({"format": kind, "version": version, **fields}).encode()
    content = b"%08x %08x\n" % (checksum(body), len(body)) + body + payload
    write_atomically(path, content + checksum(content).to_bytes(_LAST_BYTES, "little"), files, new=new)


def read_commit_file(
    path: Path, kind: str, version: int, generation: int, files: FileSystem = DISK, *, way_out: str
) -> CommitFile:
    """Read a commit; not more than it announces.

    Raises:
        FileNotFoundError: there is none.
        OSError: the disk cannot read it.
        DamagedDataError: it is no file, or its checksums are right and its fields are not.
        IncompatibleError: it has another format or version.
    """
    with files.open_to_read(path) as file:
        line = file.read_at(0, _COMMIT_LINE_BYTES)
        try:
            num_bytes = int(line[9:17], 16)
        except ValueError:
            num_bytes = 0
        body = file.read_at(len(line), min(num_bytes, MOST_MANIFEST_BYTES))
        if line != b"%08x %08x\n" % (checksum(body), len(body)):
            return CommitFile(None, b"", "its checksum is wrong")
        fields = _unpack(path, body, kind, version, generation, way_out)
        state_bytes, start = fields.get("state_bytes"), len(line) + len(body)
        size = file.size - start - _LAST_BYTES
        if type(state_bytes) is not int:
            raise DamagedDataError(f"{path}: state_bytes is {state_bytes!r}: it must be an integer; {way_out}")
        if size != state_bytes:
            return CommitFile(fields, b"", f"it has a state of {size:,} bytes, not {state_bytes:,}")
        rest = file.read_at(start, size + _LAST_BYTES)
    payload, last = rest[:-_LAST_BYTES], rest[-_LAST_BYTES:]
    if checksum(line + body + payload).to_bytes(_LAST_BYTES, "little") != last:
        return CommitFile(fields, b"", "the checksum of its state is wrong")
    return CommitFile(fields, payload, "")


def _unpack(path: Path, body: bytes, kind: str, version: int, generation: int | None, way_out: str) -> dict[str, Any]:
    """Return the JSON of a manifest or a commit with a right checksum."""
    try:
        fields: dict[str, Any] = json.loads(body)
        found = fields["format"], fields["version"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedDataError(f"{path}: the file is not a valid manifest ({error}); {way_out}") from error
    if found != (kind, version):
        raise IncompatibleError(
            f"{path}: it is version {fields['version']} of a {fields['format']!r} and this framestow reads "
            f"version {version} of a {kind!r}; use the version of framestow that wrote it"
        )
    if fields.get("generation") != generation:
        raise DamagedDataError(
            f"{path}: the file is the manifest of generation {fields.get('generation')} under another name; {way_out}"
        )
    return fields
