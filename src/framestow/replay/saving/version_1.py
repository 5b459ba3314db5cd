"""Stores of version 1: one manifest, all frames in one file, all else in another.

::

    MANIFEST            checked JSON: settings, sampler, generator, and the names and sizes of the other two
    frames.G.bin        the packed segments of each stream, one behind the other
    arrays.G.npz        slots in the order of their indices, arrays with one entry a stream, sizes of the segments

framestow wrote them until memories could lie on the disk; they are only read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from framestow.errors import DamagedDataError, FramestowError, IncompatibleError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import only_frame
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.saving.array_file import unpack_arrays
from framestow.replay.saving.checked_fields import WAY_OUT, CheckedFields
from framestow.replay.saving.saved_settings import checked_settings
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import MANIFEST, read_checked, read_manifest
from framestow.storage.scaled_version_1 import segments_that_stand_alone

KIND, VERSION = "framestow memory", 1
FRAMES_PER_SEGMENT = 128  # where the manifest does not say it
NO_SIZES = np.empty(0)


class StoredVersion1:
    """A memory that was saved by version 1 (as ``StoredMemory``): arrays in RAM, segments read one by one."""

    commit = ""  # no later save can go on from it

    def __init__(self, folder: Path, files: FileSystem = DISK) -> None:
        fields = CheckedFields(read_manifest(folder, KIND, VERSION, files=files), str(folder / MANIFEST))
        frames, arrays = fields.inner("frames"), fields.inner("arrays")
        self._state = fields.inner("state").values
        self.settings = checked_settings(self._state, str(folder / MANIFEST))
        self._first_positions = fields.integers("first_positions", self.settings.num_streams)
        self._frames_per_segment = fields.values.get("frames_per_segment", FRAMES_PER_SEGMENT)
        self._arrays_path, self._frames_path = (folder / entry.file_name("name") for entry in (arrays, frames))
        self._arrays = unpack_arrays(read_checked(folder, arrays.values, files), str(self._arrays_path))
        self._sizes = [self._sizes_of(stream) for stream in range(self.settings.num_streams)]
        if not self._frames_path.is_file() or self._frames_path.stat().st_size != frames.integer("bytes"):
            raise DamagedDataError(
                f"{self._frames_path}: it must have {frames.values['bytes']} bytes, as was written; {WAY_OUT}"
            )

    def fill(self, parts: MemoryParts, *, in_files: bool = False) -> None:  # noqa: ARG002 - its frames are in one file
        """Put everything into RAM, in the parts of a memory built with ``settings`` (see ``StoredMemory.fill``)."""
        if parts.storage.frames_per_segment != self._frames_per_segment:
            raise IncompatibleError(
                f"{self._frames_path}: its segments hold {self._frames_per_segment} frames and those of this version "
                f"{parts.storage.frames_per_segment}; load it with the version that saved it"
            )
        try:
            parts.timeline.restore(self._arrays, lambda _: None)  # all steps are among the arrays
            with self._frames_path.open("rb") as file:
                for stream in range(self.settings.num_streams):
                    self._fill_stream(parts, stream, file)
            parts.restore(self._state, {})
        except FramestowError:
            raise
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise DamagedDataError(
                f"{self._arrays_path}: what it holds does not fit together: {error}; {WAY_OUT}"
            ) from error

    def close(self) -> None:
        """Close nothing: no file stays open."""

    def __enter__(self) -> StoredVersion1:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _sizes_of(self, stream: int) -> list[int]:
        """Bytes of the segments of a stream."""
        sizes = self._arrays.get(f"segments.{stream}", NO_SIZES)
        if sizes.dtype != np.int64 or sizes.ndim != 1 or (sizes < 0).any():
            raise DamagedDataError(
                f"{self._arrays_path}: segments.{stream} does not hold the bytes of segments; {WAY_OUT}"
            )
        return [int(size) for size in sizes]

    def _fill_stream(self, parts: MemoryParts, stream: int, file: BinaryIO) -> None:
        progress = count()
        segments: Iterator[bytes] = (file.read(size) for size, _ in zip(self._sizes[stream], progress, strict=False))
        storage, first_position = parts.storage, self._first_positions[stream]
        if self._sizes[stream] and _are_scaled(parts):
            frame, length = _frame_of(parts), storage.frames_per_segment
            segments = segments_that_stand_alone(frame, length, first_position, segments)
        try:
            for number, segment in enumerate(segments, first_position // storage.frames_per_segment):
                storage.restore(stream, number, segment)
        except DamagedDataError as error:
            raise DamagedDataError(
                f"{self._frames_path}: segment {next(progress) - 1} of stream {stream}: {error}; {WAY_OUT}"
            ) from error


def _are_scaled(parts: MemoryParts) -> bool:
    return _frame_of(parts).is_scaled and not _frame_of(parts).is_column


def _frame_of(parts: MemoryParts) -> FrameSpec:
    return only_frame(parts.settings.frame, "version 1 kept")
