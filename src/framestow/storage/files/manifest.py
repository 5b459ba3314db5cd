"""Manifests: which files of a folder belong together, in which state, and whether a byte of them was changed.

::

    MANIFEST            of a folder that is written once
    MANIFEST.000007     of generation 7 of a folder that is written again and again; the newest is what the folder holds
    MANIFEST….new       one being written; after a crash it is left over, and the next writer removes it

A manifest is a line with the CRC-32C of the rest in hexadecimal, then JSON: format, version, generation, content. It
is written under another name, synced and renamed, so whoever opens the folder finds the old one or the new one, whole.
What it names has to be on the disk before: the writers sync the content, :func:`write_manifest` the names.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.frames.codec import checksum
from framestow.storage.files.file_system import DISK, FileSystem, durable_file

MANIFEST = "MANIFEST"
_NEW = ".new"
_NUMBERED = re.compile(rf"{MANIFEST}\.(\d{{6,}})")
_UNFINISHED = re.compile(rf"{MANIFEST}(\.\d{{6,}})?{re.escape(_NEW)}")


def write_checked(path: Path, content: bytes, files: FileSystem = DISK) -> dict[str, Any]:
    """Write a file, on the disk when this returns, and describe it for a manifest: name, bytes, checksum."""
    with durable_file(path, files) as file:
        file.append(content)
    return {"name": path.name, "bytes": len(content), "checksum": checksum(content)}


def read_checked(folder: Path, entry: dict[str, Any], files: FileSystem = DISK) -> bytes:
    """Read the file that ``entry`` describes; raise ``DamagedDataError`` naming it if it is not as it was written."""
    path = folder / entry["name"]
    try:
        content = files.read(path)
    except OSError as error:
        raise DamagedDataError(f"{path}: it cannot be read ({error.strerror}); take an older save") from error
    if (len(content), checksum(content)) != (entry["bytes"], entry["checksum"]):
        raise DamagedDataError(f"{path}: its checksum is not the one that was written; take an older save")
    return content


def manifest_path(folder: Path, generation: int | None = None) -> Path:
    """Return where the manifest of a generation lies.

    >>> manifest_path(Path("memory"), 7).name
    'MANIFEST.000007'
    """
    return folder / (MANIFEST if generation is None else f"{MANIFEST}.{generation:06d}")


def generations(folder: Path, files: FileSystem = DISK) -> list[int]:
    """Return the generations whose manifests lie in ``folder``, oldest first."""
    return sorted(int(name[1]) for name in map(_NUMBERED.fullmatch, files.names(folder)) if name)


def next_generation(folder: Path, files: FileSystem = DISK) -> int:
    """Return the number for the next manifest, higher than any that was begun there.

    Also than one whose writing ended with an error: its rename may have reached the disk.
    """
    begun = (re.match(rf"{MANIFEST}\.(\d{{6,}})", name) for name in files.names(folder))
    return 1 + max((int(name[1]) for name in begun if name), default=0)


def write_manifest(
    folder: Path,
    kind: str,
    version: int,
    content: dict[str, Any],
    *,
    generation: int | None = None,
    files: FileSystem = DISK,
) -> None:
    """Write the manifest of ``folder``, or of one generation of it, in one step, lasting when this returns.

    After an error from the last sync of the folder the manifest may be there or not after a loss of power; until then
    it is there. So go on with :func:`next_generation`.
    """
    numbered = {} if generation is None else {"generation": generation}
    body = json.dumps({"format": kind, "version": version, **numbered, **content}, indent=1).encode()
    path = manifest_path(folder, generation)
    new = path.with_name(path.name + _NEW)
    with durable_file(new, files) as file:
        file.append(b"%08x\n" % checksum(body) + body)
    try:
        files.sync_folder(folder)  # the names of what it names, before its own
        files.replace(new, path)
    except OSError:
        with suppress(OSError):
            files.remove(new)
        raise
    files.sync_folder(folder)


def read_manifest(
    folder: Path, kind: str, version: int, *, generation: int | None = None, files: FileSystem = DISK
) -> dict[str, Any]:
    """Read the manifest of ``folder``, or of one generation of it.

    Raises ``FileNotFoundError`` without one, ``DamagedDataError`` if a byte of it was changed, and
    ``IncompatibleError`` for another format or version.
    """
    path = manifest_path(folder, generation)
    try:
        stored_checksum, _, body = files.read(path).partition(b"\n")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(
            f"{path}: no {kind} was saved in this folder; give the folder that it was saved to"
        ) from error
    if stored_checksum != b"%08x" % checksum(body):
        raise DamagedDataError(f"{path}: its checksum is not the one that was written; take an older save")
    manifest: dict[str, Any] = json.loads(body)
    if (manifest["format"], manifest["version"]) != (kind, version):
        raise IncompatibleError(
            f"{path}: it is version {manifest['version']} of a {manifest['format']!r} and this framestow reads "
            f"version {version} of a {kind!r}; use the framestow that wrote it"
        )
    if manifest.get("generation") != generation:
        raise DamagedDataError(
            f"{path}: it is the manifest of generation {manifest.get('generation')} under another name; "
            "take an older save"
        )
    return manifest


def read_newest_manifest(folder: Path, kind: str, version: int, files: FileSystem = DISK) -> dict[str, Any]:
    """Read the manifest of the newest generation; its key ``generation`` has the number.

    A damaged one raises, also where an older one is whole: no crash damages a manifest, so what it names was promised,
    and going back is for whoever was told. Raises as :func:`read_manifest`; for a folder with a manifest without a
    number ``IncompatibleError``. Beside a writer, ask again after ``FileNotFoundError``: it may just have been replaced
    by the next.
    """
    there = generations(folder, files)
    if there:
        return read_manifest(folder, kind, version, generation=there[-1], files=files)
    return read_manifest(folder, kind, version, files=files)  # raises: there is none, or it is of another version


def remove_manifest(folder: Path, generation: int, files: FileSystem = DISK) -> None:
    """Remove the manifest of a generation; what only it names may go afterwards, once the folder was synced."""
    files.remove(manifest_path(folder, generation))


def remove_unfinished(folder: Path, files: FileSystem = DISK) -> list[str]:
    """Remove the manifests that a dead writer began; return their names. For the one writer."""
    unfinished = [name for name in files.names(folder) if _UNFINISHED.fullmatch(name)]
    for name in unfinished:
        files.remove(folder / name)
    return unfinished
