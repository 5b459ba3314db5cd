"""Files that are on the disk when a call returns, and manifests that tell when they are damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.frames.codec import checksum

MANIFEST = "MANIFEST"  # a line with the CRC-32C of the rest in hexadecimal, then JSON


@contextmanager
def durable_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that is on the disk, not only in the page cache, when the block ends without an error."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Put on the disk which files ``folder`` has: a rename lasts only from then on."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folders, and its renames need none of this
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_entry(path: Path) -> dict[str, Any]:
    """Describe a written file for a manifest: name, size and checksum."""
    return _entry(path.name, path.read_bytes())


def write_checked(path: Path, content: bytes) -> dict[str, Any]:
    """Write a durable file and describe it for a manifest."""
    with durable_file(path) as file:
        file.write(content)
    return _entry(path.name, content)


def read_checked(folder: Path, entry: dict[str, Any]) -> bytes:
    """Read the file that ``entry`` describes; raise ``DamagedDataError`` naming it if it is not as it was written."""
    path = folder / entry["name"]
    try:
        content: bytes = path.read_bytes()
    except OSError as error:
        raise DamagedDataError(f"{path}: it cannot be read ({error.strerror}); take an older save") from error
    if (len(content), checksum(content)) != (entry["bytes"], entry["checksum"]):
        raise DamagedDataError(f"{path}: its checksum is not the one that was written; take an older save")
    return content


def write_manifest(folder: Path, kind: str, version: int, content: dict[str, Any]) -> None:
    """Replace the manifest of ``folder`` in one step, lasting when this returns."""
    body = json.dumps({"format": kind, "version": version, **content}, indent=1).encode()
    new = folder / f"{MANIFEST}.new"
    with durable_file(new) as file:
        file.write(b"%08x\n" % checksum(body) + body)
    new.replace(folder / MANIFEST)
    sync_folder(folder)


def read_manifest(folder: Path, kind: str, version: int) -> dict[str, Any]:
    """Read the manifest of ``folder``.

    Raises ``FileNotFoundError`` without one, ``DamagedDataError`` if a byte of it was changed, and
    ``IncompatibleError`` for another format or version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no {kind} was saved in this folder; give the folder that it was saved to")
    stored_checksum, _, body = path.read_bytes().partition(b"\n")
    if stored_checksum != b"%08x" % checksum(body):
        raise DamagedDataError(f"{path}: its checksum is not the one that was written; take an older save")
    manifest: dict[str, Any] = json.loads(body)
    if (manifest["format"], manifest["version"]) != (kind, version):
        raise IncompatibleError(
            f"{path}: it is version {manifest['version']} of a {manifest['format']!r} and this framestow reads "
            f"version {version} of a {kind!r}; use the framestow that wrote it"
        )
    return manifest


def _entry(name: str, content: bytes) -> dict[str, Any]:
    return {"name": name, "bytes": len(content), "checksum": checksum(content)}
