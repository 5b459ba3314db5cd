"""A whole memory in a folder: written atomically, read back with every byte checked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.frames.codec import checksum
from framestow.storage.frame_storage import FrameStorage

VERSION = 1
MANIFEST = "MANIFEST"  # a line with the checksum of the rest, then JSON

Arrays = dict[str, Any]  # of NumPy arrays


def write_snapshot(
    folder: Path, state: dict[str, Any], arrays: Arrays, storage: FrameStorage, num_streams: int
) -> None:
    """Write a generation of files into ``folder``, then point the manifest at them.

    The manifest is replaced by a rename, so the folder holds the old state or the new one at any moment. Files of
    earlier generations are removed after that. Segments are written as they come: no second copy of the frames is
    made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    generation = 1 + max((_generation_of(file) for file in folder.iterdir()), default=0)
    frames_path, arrays_path = folder / f"frames.{generation}.bin", folder / f"arrays.{generation}.npz"
    with _durable_file(frames_path) as frames_file:
        streams = [_write_segments(frames_file, storage, stream) for stream in range(num_streams)]
    sizes: Arrays = {f"segments.{stream}": sizes for stream, (_, sizes) in enumerate(streams)}
    with _durable_file(arrays_path) as arrays_file:
        np.savez(arrays_file, **arrays, **sizes)
    manifest = {
        "format": "framestow memory",
        "version": VERSION,
        "state": state,
        "first_positions": [first for first, _ in streams],
        "frames": {"name": frames_path.name, "bytes": frames_path.stat().st_size},
        "arrays": {"name": arrays_path.name, "checksum": _file_checksum(arrays_path)},
    }
    _write_manifest(folder, manifest)
    for file in folder.iterdir():
        if 0 < _generation_of(file) < generation:
            file.unlink()


class Snapshot:
    """An opened snapshot: state and arrays in RAM, segments read one by one."""

    def __init__(self, folder: Path, manifest: dict[str, Any], arrays: Arrays) -> None:
        self.state: dict[str, Any] = manifest["state"]
        self._frames_path = folder / manifest["frames"]["name"]
        self._first_positions: list[int] = manifest["first_positions"]
        self._arrays = arrays

    @classmethod
    def open(cls, folder: Path) -> Snapshot:
        """Read and check manifest and arrays; raise ``DamagedDataError`` naming the file that is not as written."""
        manifest = _read_manifest(folder)
        arrays_path, frames_path = (folder / manifest[part]["name"] for part in ("arrays", "frames"))
        if _file_checksum(arrays_path) != manifest["arrays"]["checksum"]:
            raise DamagedDataError(f"{arrays_path}: its checksum is not the one that was written; load an older save")
        if not frames_path.is_file() or frames_path.stat().st_size != manifest["frames"]["bytes"]:
            raise DamagedDataError(
                f"{frames_path}: it must have {manifest['frames']['bytes']} bytes, as was written; load an older save"
            )
        with np.load(arrays_path, allow_pickle=False) as archive:
            return cls(folder, manifest, dict(archive))

    def group(self, name: str) -> Arrays:
        """The arrays whose names begin with ``name.``, without that beginning."""
        start = f"{name}."
        return {key[len(start) :]: array for key, array in self._arrays.items() if key.startswith(start)}

    def fill(self, storage: FrameStorage) -> None:
        """Restore every stream of an empty ``storage``; raise ``DamagedDataError`` naming file, stream and segment."""
        with self._frames_path.open("rb") as file:
            for stream, first_position in enumerate(self._first_positions):
                sizes = self._arrays[f"segments.{stream}"].tolist()
                progress = iter(range(len(sizes)))
                try:
                    storage.restore(stream, first_position, (file.read(sizes[place]) for place in progress))
                except DamagedDataError as error:
                    damaged = next(progress, len(sizes)) - 1
                    raise DamagedDataError(
                        f"{self._frames_path}: segment {damaged} of stream {stream}: {error}; load an older save"
                    ) from error


def _write_segments(file: BinaryIO, storage: FrameStorage, stream: int) -> tuple[int, npt.NDArray[np.int64]]:
    sizes = [file.write(segment) for segment in storage.segments(stream)]
    return storage.held(stream).start, np.array(sizes, np.int64)


class _durable_file:  # noqa: N801 -- reads as the statement that it is
    """A new file that is on the disk, not only in the page cache, when its block ends without an error."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def __enter__(self) -> BinaryIO:
        return self._file

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if error_type is None:
                self._file.flush()
                os.fsync(self._file.fileno())


def _generation_of(file: Path) -> int:
    """Generation of a frames or arrays file; 0 for any other file."""
    parts = file.name.split(".")
    if len(parts) == 3 and parts[0] in ("frames", "arrays") and parts[1].isdigit():
        return int(parts[1])
    return 0


def _file_checksum(path: Path) -> int:
    try:
        return checksum(path.read_bytes())
    except OSError as error:
        raise DamagedDataError(f"{path}: it cannot be read ({error.strerror}); load an older save") from error


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    body = json.dumps(manifest, indent=1).encode()
    new = folder / f"{MANIFEST}.new"
    with _durable_file(new) as file:
        file.write(b"%08x\n" % checksum(body) + body)
    new.replace(folder / MANIFEST)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no memory was saved in this folder; give the folder that save was given")
    stored_checksum, _, body = path.read_bytes().partition(b"\n")
    if stored_checksum != b"%08x" % checksum(body):
        raise DamagedDataError(f"{path}: its checksum is not the one that was written; load an older save")
    manifest: dict[str, Any] = json.loads(body)
    if manifest["format"] != "framestow memory" or manifest["version"] != VERSION:
        raise IncompatibleError(
            f"{path}: it is version {manifest['version']} of {manifest['format']!r} and this framestow reads "
            f"version {VERSION} of 'framestow memory'; use the framestow that wrote it"
        )
    return manifest
