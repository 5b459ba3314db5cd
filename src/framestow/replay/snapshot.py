"""A whole memory in a folder: written atomically, read back with every byte checked."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.storage.files.file_system import AppendFile, durable_file
from framestow.storage.files.manifest import read_checked, read_manifest, write_checked, write_manifest
from framestow.storage.frame_storage import FrameStorage
from framestow.storage.scaled_pixels import ScaledPixels
from framestow.storage.scaled_segment import MARK
from framestow.storage.scaled_version_1 import segments_that_stand_alone

KIND, VERSION = "framestow memory", 1

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
    with durable_file(frames_path) as frames_file:
        streams = [_write_segments(frames_file, storage, stream) for stream in range(num_streams)]
    sizes: Arrays = {f"segments.{stream}": sizes for stream, (_, sizes) in enumerate(streams)}
    archive = io.BytesIO()
    np.savez(archive, **arrays, **sizes)
    content = {
        "state": state,
        "frames_per_segment": storage.frames_per_segment,
        "first_positions": [first for first, _ in streams],
        "frames": {"name": frames_path.name, "bytes": frames_path.stat().st_size},
        "arrays": write_checked(arrays_path, archive.getvalue()),
    }
    write_manifest(folder, KIND, VERSION, content)
    for file in folder.iterdir():
        if 0 < _generation_of(file) < generation:
            file.unlink()


class Snapshot:
    """An opened snapshot: state and arrays in RAM, segments read one by one."""

    def __init__(self, folder: Path, manifest: dict[str, Any], arrays: Arrays) -> None:
        self.state: dict[str, Any] = manifest["state"]
        self._frames_path = folder / manifest["frames"]["name"]
        self._first_positions: list[int] = manifest["first_positions"]
        self._frames_per_segment: int = manifest.get("frames_per_segment", 128)  # what it was before it was written
        self.arrays = arrays

    @classmethod
    def open(cls, folder: Path) -> Snapshot:
        """Read and check manifest and arrays; raise ``DamagedDataError`` naming the file that is not as written."""
        manifest = read_manifest(folder, KIND, VERSION)
        frames_path = folder / manifest["frames"]["name"]
        if not frames_path.is_file() or frames_path.stat().st_size != manifest["frames"]["bytes"]:
            raise DamagedDataError(
                f"{frames_path}: it must have {manifest['frames']['bytes']} bytes, as was written; take an older save"
            )
        with np.load(io.BytesIO(read_checked(folder, manifest["arrays"])), allow_pickle=False) as archive:
            return cls(folder, manifest, dict(archive))

    def fill(self, storage: FrameStorage) -> None:
        """Restore every stream of an empty ``storage``.

        Raises ``DamagedDataError`` naming file, stream and segment, ``IncompatibleError`` if ``storage`` divides its
        streams into other segments.
        """
        if self._frames_per_segment != storage.frames_per_segment:
            raise IncompatibleError(
                f"{self._frames_path}: its segments hold {self._frames_per_segment} frames and those of this version "
                f"{storage.frames_per_segment}; load it with the version that saved it"
            )
        with self._frames_path.open("rb") as file:
            for stream, first_position in enumerate(self._first_positions):
                sizes = self.arrays[f"segments.{stream}"].tolist()
                progress = iter(range(len(sizes)))
                try:
                    segments = (file.read(sizes[place]) for place in progress)
                    _restore(storage, stream, first_position, segments)
                except DamagedDataError as error:
                    damaged = next(progress, len(sizes)) - 1
                    raise DamagedDataError(
                        f"{self._frames_path}: segment {damaged} of stream {stream}: {error}; take an older save"
                    ) from error


def _write_segments(file: AppendFile, storage: FrameStorage, stream: int) -> tuple[int, npt.NDArray[np.int64]]:
    sizes = []
    for number in storage.segment_numbers(stream):
        segment = storage.segment(stream, number)
        file.append(segment)
        sizes.append(len(segment))
    return storage.held(stream).start, np.array(sizes, np.int64)


def _restore(storage: FrameStorage, stream: int, first_position: int, segments: Iterator[bytes]) -> None:
    if isinstance(storage, ScaledPixels):
        first = next(segments, b"")
        segments = chain([first], segments)
        if first[4:8] != MARK:
            segments = segments_that_stand_alone(storage.spec, storage.frames_per_segment, first_position, segments)
    for number, segment in enumerate(segments, first_position // storage.frames_per_segment):
        storage.restore(stream, number, segment)


def _generation_of(file: Path) -> int:
    """Generation of a frames or arrays file; 0 for any other file."""
    parts = file.name.split(".")
    if len(parts) == 3 and parts[0] in ("frames", "arrays") and parts[1].isdigit():
        return int(parts[1])
    return 0
