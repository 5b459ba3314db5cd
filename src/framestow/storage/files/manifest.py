"""Manifests: the files of a folder that belong together, and the checksums of their content.

::

    MANIFEST            of a folder that is written once
    MANIFEST.000007     of generation 7 of a folder that is written repeatedly; the newest one is current
    MANIFEST….new       a manifest being written; if the writer crashes, the next writer removes it

A manifest is a line with the CRC-32C of the rest in hexadecimal, then JSON: format, version, generation, content. It is
written under another name, synced and renamed, so readers find the old or the new one, complete. The files that it
names must be durable before: the writers sync the content, :func:`write_manifest` syncs the names.
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
    """Write and sync a file; return its entry for a manifest: name, bytes, checksum."""
    with durable_file(path, files) as file:
        file.append(content)
    return {"name": path.name, "bytes": len(content), "checksum": checksum(content)}


def read_checked(folder: Path, entry: dict[str, Any], files: FileSystem = DISK) -> bytes:
    """Read the file of a manifest's ``entry``; raise ``DamagedDataError`` naming it if it is damaged."""
    path = folder / entry["name"]
    try:
        content = files.read(path)
    except OSError as error:
        raise DamagedDataError(f"{path}: the file cannot be read ({error.strerror}); load an older save") from error
    if (len(content), checksum(content)) != (entry["bytes"], entry["checksum"]):
        raise DamagedDataError(f"{path}: its checksum is not the one that was written; load an older save")
    return content


def manifest_path(folder: Path, generation: int | None = None) -> Path:
    """Return the path of a generation's manifest.

    >>> manifest_path(Path("memory"), 7).name
    'MANIFEST.000007'
    """
    return folder / (MANIFEST if generation is None else f"{MANIFEST}.{generation:06d}")


def generations(folder: Path, files: FileSystem = DISK) -> list[int]:
    """Return the generations with a manifest in ``folder``, oldest first."""
    return sorted(int(name[1]) for name in map(_NUMBERED.fullmatch, files.names(folder)) if name)


def next_generation(folder: Path, files: FileSystem = DISK) -> int:
    """Return a number above every generation that was started in ``folder``.

    Failed ones count too: their rename may have reached the disk.
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
    """Write the manifest of ``folder``, or of one generation, atomically and durably.

    If the last sync of the folder fails, the manifest exists, but a loss of power may remove it. Then continue with the
    number of :func:`next_generation`.
    """
    numbered = {} if generation is None else {"generation": generation}
    body = json.dumps({"format": kind, "version": version, **numbered, **content}, indent=1).encode()
    path = manifest_path(folder, generation)
    new = path.with_name(path.name + _NEW)
    with durable_file(new, files) as file:
        file.append(b"%08x\n" % checksum(body) + body)
    try:
        files.sync_folder(folder)  # makes the named files durable before the manifest
        files.replace(new, path)
    except OSError:
        with suppress(OSError):
            files.remove(new)
        raise
    files.sync_folder(folder)


def read_manifest(
    folder: Path, kind: str, version: int, *, generation: int | None = None, files: FileSystem = DISK
) -> dict[str, Any]:
    """Read the manifest of ``folder``, or of one generation.

    Raises:
        FileNotFoundError: there is no manifest.
        DamagedDataError: its bytes were changed.
        IncompatibleError: it has another format or version.
    """
    path = manifest_path(folder, generation)
    try:
        stored_checksum, _, body = files.read(path).partition(b"\n")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(
            f"{path}: no {kind} was saved in this folder; give the folder that it was saved to"
        ) from error
    if stored_checksum != b"%08x" % checksum(body):
        raise DamagedDataError(f"{path}: its checksum is not the one that was written; load an older save")
    manifest: dict[str, Any] = json.loads(body)
    if (manifest["format"], manifest["version"]) != (kind, version):
        raise IncompatibleError(
            f"{path}: it is version {manifest['version']} of a {manifest['format']!r} and this framestow reads "
            f"version {version} of a {kind!r}; use the framestow that wrote it"
        )
    if manifest.get("generation") != generation:
        raise DamagedDataError(
            f"{path}: the file is the manifest of generation {manifest.get('generation')} under another name; "
            "load an older save"
        )
    return manifest


def read_newest_manifest(folder: Path, kind: str, version: int, files: FileSystem = DISK) -> dict[str, Any]:
    """Read the manifest of the newest generation; its key ``generation`` has the number.

    A damaged newest manifest raises even if an older one is intact. A crash never damages a manifest, so committed data
    is lost, and the user decides whether to load an older generation. While another process writes, retry after
    ``FileNotFoundError``: the writer may have replaced the manifest.

    Raises:
        Errors of :func:`read_manifest`.
        IncompatibleError: the folder has a manifest without a number.
    """
    numbers = generations(folder, files)
    if numbers:
        return read_manifest(folder, kind, version, generation=numbers[-1], files=files)
    return read_manifest(folder, kind, version, files=files)  # raises: no manifest, or another version


def remove_manifest(folder: Path, generation: int, files: FileSystem = DISK) -> None:
    """Remove a generation's manifest. Sync the folder before removing files that only it names."""
    files.remove(manifest_path(folder, generation))


def remove_unfinished(folder: Path, files: FileSystem = DISK) -> list[str]:
    """Remove unfinished manifests of a dead writer; return their names. Only the writer may call it."""
    unfinished = [name for name in files.names(folder) if _UNFINISHED.fullmatch(name)]
    for name in unfinished:
        files.remove(folder / name)
    return unfinished
