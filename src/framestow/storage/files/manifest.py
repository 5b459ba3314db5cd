"""Manifests: the files of a folder that belong together, and the checksums of their content.

::

    MANIFEST                       of a folder that is written once
    MANIFEST.000007                of generation 7 of a folder that is written repeatedly; the newest one is current
    MANIFEST….0f3a….new            a manifest being written; nobody can guess its name
    MANIFEST.000008.begun.5.3      empty: a writer began generation 8, and creates files with these numbers and above
    MANIFEST.000006.old            of a superseded generation, while its files are removed

A manifest is a line with the CRC-32C of the rest in hexadecimal, then JSON: format, version, generation, content. It is
written under another name, synced and renamed, so readers find the old or the new one, complete. The files that it
names must be durable before: the writers sync the content, ``write_manifest`` syncs the names.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from framestow._core import checksum
from framestow.errors import DamagedDataError, IncompatibleError
from framestow.storage.files.file_system import DISK, FileSystem, write_atomically, write_durably

MANIFEST = "MANIFEST"
MOST_MANIFEST_BYTES = 8 * 2**20  # it names some 100,000 files of 64 MiB
_OLD = ".old"  # ending of a superseded manifest
# Groups: the number of the generation and the ending; of the ending, the number of the first new file of each log.
_NUMBERED = re.compile(rf"{MANIFEST}\.(\d{{6,}})(.*)", re.DOTALL)
_BEGUN = re.compile(r"\.begun((?:\.\d+)*)")
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

    >>> is_file_name("state.000007.npz"), is_file_name("../state"), is_file_name("C:state"), is_file_name(7)
    (True, False, False, False)
    """
    return isinstance(value, str) and value not in ("", ".", "..") and not set(value) & set("/\\:\0")


def manifest_path(folder: Path, generation: int | None = None) -> Path:
    """Return the path of a generation's manifest.

    >>> manifest_path(Path("memory"), 7).name
    'MANIFEST.000007'
    """
    return folder / (MANIFEST if generation is None else f"{MANIFEST}.{generation:06d}")


class Begun(NamedTuple):
    """A generation that a writer began, and for each log the number of the first file that it may create.

    The name of an empty file says it, so that it is written whole or not at all. Every file with such a number that no
    manifest names was written by this writer.
    """

    generation: int
    first_files: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Name of the empty file.

        >>> Begun(8, (5, 3)).name
        'MANIFEST.000008.begun.5.3'
        """
        return ".".join([f"{MANIFEST}.{self.generation:06d}.begun", *map(str, self.first_files)])


class ManifestNames(NamedTuple):
    """The generations of a folder by their files, all from one listing."""

    generations: list[int]
    """Generations with a manifest, oldest first."""
    superseded: list[int]
    """Generations whose manifest ``supersede_manifest`` renamed, oldest first."""
    begun: list[Begun]
    """Announced generations that were not ended: one is being written, or its writer died."""
    next_generation: int
    """A number above every generation that was started. Failed ones count too: their rename may be on the disk."""

    @classmethod
    def read(cls, folder: Path, files: FileSystem = DISK) -> ManifestNames:
        """List the manifests in ``folder``."""
        return cls.of(files.names(folder), folder, files)

    @classmethod
    def of(cls, names: list[str], folder: Path, files: FileSystem = DISK) -> ManifestNames:
        """Return the manifests among ``names``, the names in ``folder``."""
        numbers: dict[str, list[int]] = {}  # of generations, by the ending of their manifest
        begun = []
        for number, ending in (match.groups() for match in map(_NUMBERED.fullmatch, names) if match):
            numbers.setdefault(ending, []).append(int(number))
            if first_files := _BEGUN.fullmatch(ending):
                with suppress(FileNotFoundError):  # a concurrent writer has ended it
                    if files.size(folder / f"{MANIFEST}.{number}{ending}") == 0:
                        begun.append(Begun(int(number), tuple(map(int, first_files[1].split(".")[1:]))))
        highest = max(map(max, numbers.values()), default=0)
        return cls(sorted(numbers.get("", [])), sorted(numbers.get(_OLD, [])), begun, highest + 1)


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
    is_superseded: bool = False,
    files: FileSystem = DISK,
    way_out: str = LOAD_AN_OLDER_SAVE,
) -> dict[str, Any]:
    """Read the manifest of ``folder``, or of one generation; ``is_superseded`` reads what ``supersede_manifest`` kept.

    ``way_out`` ends the message about a damaged manifest.

    Raises:
        FileNotFoundError: there is no manifest.
        DamagedDataError: its bytes were changed.
        IncompatibleError: it has another format or version.
    """
    path = manifest_path(folder, generation)
    if is_superseded:
        path = path.with_name(path.name + _OLD)
    try:
        stored_checksum, _, body = files.read(path, MOST_MANIFEST_BYTES).partition(b"\n")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(
            f"{path}: no {kind} was saved in this folder; give the folder that it was saved to"
        ) from error
    if stored_checksum != b"%08x" % checksum(body):
        raise DamagedDataError(f"{path}: its checksum is wrong; {way_out}")
    try:
        manifest: dict[str, Any] = json.loads(body)
        found = manifest["format"], manifest["version"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedDataError(f"{path}: the file is not a valid manifest ({error}); {way_out}") from error
    if found != (kind, version):
        raise IncompatibleError(
            f"{path}: it is version {manifest['version']} of a {manifest['format']!r} and this framestow reads "
            f"version {version} of a {kind!r}; use the version of framestow that wrote it"
        )
    if manifest.get("generation") != generation:
        raise DamagedDataError(
            f"{path}: the file is the manifest of generation {manifest.get('generation')} under another name; {way_out}"
        )
    return manifest


def supersede_manifest(folder: Path, generation: int, files: FileSystem = DISK) -> None:
    """Take a generation out of the folder. Its manifest gets another name, and still names the files to remove."""
    path = manifest_path(folder, generation)
    files.replace(path, path.with_name(path.name + _OLD))


def remove_superseded(folder: Path, generation: int, files: FileSystem = DISK) -> None:
    """Remove a superseded manifest. Remove the files that only it names before, and sync the folder."""
    path = manifest_path(folder, generation)
    files.remove(path.with_name(path.name + _OLD))


def begin_generation(folder: Path, begun: Begun, files: FileSystem = DISK) -> None:
    """Announce durably which files a writer creates. Call it before it creates the first one."""
    files.create(folder / begun.name).close()
    files.sync_folder(folder)


def end_generation(folder: Path, begun: Begun, files: FileSystem = DISK) -> None:
    """Withdraw the announcement of a generation. Its leftover files must be gone from the disk, or named."""
    files.remove(folder / begun.name)
