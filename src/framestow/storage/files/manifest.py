"""Manifests: files that name what belongs together, with checksums of their content.

::

    MANIFEST                 of a folder that is written once
    MANIFEST.000007          of generation 7 of a folder that is written repeatedly; the newest one is current
    ….0123456789abcdef.new   one being written; nobody can guess its name

A manifest is a line with the CRC-32C of the rest in hexadecimal, then JSON: format, version, generation, content. It is
written under another name, synced and renamed, so readers find the old or the new one, complete. The files that it
names must be durable before: the writers sync the content, and ``write_atomically`` the names.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeGuard

from framestow._core import checksum
from framestow.errors import DamagedDataError, IncompatibleError
from framestow.storage.files.file_system import DISK, FileSystem, write_atomically, write_durably

MANIFEST = "MANIFEST"
MOST_MANIFEST_BYTES = 8 * 2**20  # it names some 100,000 files of 64 MiB
_NUMBERED = re.compile(rf"{MANIFEST}\.(\d{{6,}})(.*)", re.DOTALL)  # groups: the number of the generation, the ending
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

    >>> (
    ...     is_file_name("state.npz"),
    ...     is_file_name("../state"),
    ...     is_file_name("C:state"),
    ...     is_file_name(7),
    ... )
    (True, False, False, False)
    """
    return isinstance(value, str) and value not in ("", ".", "..") and not set(value) & set("/\\:\0")


def manifest_path(folder: Path, generation: int | None = None) -> Path:
    """Return the path of a generation's manifest.

    >>> manifest_path(Path("memory"), 7).name
    'MANIFEST.000007'
    """
    return folder / (MANIFEST if generation is None else f"{MANIFEST}.{generation:06d}")


def generations(folder: Path, files: FileSystem = DISK) -> list[int]:
    """Return the generations with a manifest in ``folder``, oldest first."""
    return sorted(number for number, ending in _begun(folder, files) if not ending)


def next_generation(folder: Path, files: FileSystem = DISK) -> int:
    """Return a number above every generation that was started. Failed ones count too: they may be on the disk."""
    return 1 + max((number for number, _ in _begun(folder, files)), default=0)


def _begun(folder: Path, files: FileSystem) -> list[tuple[int, str]]:
    return [(int(match[1]), match[2]) for match in map(_NUMBERED.fullmatch, files.names(folder)) if match]


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
    ``next_generation``.
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
    return unpack_manifest(path, body, kind, version, generation, way_out)


def unpack_manifest(
    path: Path, body: bytes, kind: str, version: int, generation: int | None, way_out: str
) -> dict[str, Any]:
    """Return the JSON of a manifest, or of a commit, with a right checksum; raises as ``read_manifest``."""
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
