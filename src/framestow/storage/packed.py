"""Store frames in compressed segments, in RAM and in files."""

from __future__ import annotations

import os
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import PackedReading, PackedStreams
from framestow.frames.codec import bytes_of
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import StackPadding
from framestow.storage.frame_storage import Int32s, Int64s, Reading, StorageInFiles


class ReadingOfBytes(Reading):
    """A reading of frames that are not ``uint8``: it views ``out`` as bytes."""

    def __init__(self, reading: PackedReading) -> None:
        self._reading = reading

    def windows(
        self, streams: Int32s, last_positions: Int64s, counts: Int32s, out: Any, padding: StackPadding = "first_frame"
    ) -> None:
        self._reading.windows(streams, last_positions, counts, bytes_of(out, leading_axes=2), padding)

    def stop(self) -> None:
        self._reading.stop()


class PackedStorage(StorageInFiles):
    """Frames compressed on arrival; all segments are readable at once, including the open ones.

    The native ``PackedStreams`` does the work. Frames of any dtype are compressed by their bytes. Up to ``threads``
    threads unpack the windows of one call.
    """

    def __init__(
        self,
        spec: FrameSpec,
        num_streams: int,
        threads: int = 1,
        frames_per_segment: int | None = None,
        step_bytes: int = 0,
    ) -> None:
        self._is_uint8 = spec.dtype == np.uint8
        self._threads = threads
        self._streams = PackedStreams(
            num_streams, spec.rows, spec.row_bytes, spec.pixel_bytes, frames_per_segment, step_bytes
        )

    @property
    def frames_per_segment(self) -> int:
        return self._streams.frames_per_segment

    def append(self, streams: Int32s, frames: npt.NDArray[Any]) -> int:
        return self._streams.append(streams, frames if self._is_uint8 else bytes_of(frames))

    def start_reading(self) -> Reading:
        reading = self._streams.start_reading(self._threads)
        return reading if self._is_uint8 else ReadingOfBytes(reading)

    def evict(self, stream: int, before: int, first: int = 0) -> None:
        """Evict the sealed segments of ``stream`` within positions ``first`` to ``before`` (excluded).

        Their memory is freed when all older readings have stopped. Waits while these keep 8 MiB or more.
        """
        self._streams.evict(stream, before, first)

    def stored_positions(self, stream: int) -> range:
        return range(self._streams.first_position(stream), self._streams.next_position(stream))

    def sealed_segments(self, stream: int) -> Int64s:
        return self._streams.sealed_numbers(stream)

    def segment(self, stream: int, number: int) -> bytes:
        return self._streams.segment(stream, number)

    def restore(self, stream: int, number: int, segment: bytes) -> None:
        self._streams.restore(stream, number, segment)

    def begin_at(self, stream: int, number: int) -> None:
        self._streams.begin_at(stream, number)

    def move_to_file(self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int) -> None:
        self._streams.move_to_file(stream, number, os.fsencode(path), offset, size)

    def restore_in_file(
        self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int, num_frames: int
    ) -> None:
        if num_frames != self.frames_per_segment:
            raise ValueError(
                f"segment {number} of stream {stream} has {num_frames} frames: only full segments of "
                f"{self.frames_per_segment} frames can be in files; restore it into RAM"
            )
        self._streams.restore_in_file(stream, number, os.fsencode(path), offset, size)

    @property
    def disk_nbytes(self) -> int:
        return self._streams.disk_nbytes

    @property
    def charged_bytes(self) -> int:
        return self._streams.charged_bytes

    def charge_steps(self, step_bytes: int) -> None:
        self._streams.charge_steps(step_bytes)

    @property
    def num_frames(self) -> dict[str, int]:
        return {"packed": self._streams.num_frames}

    @property
    def nbytes(self) -> dict[str, int]:
        return {
            "frames": self._streams.sealed_nbytes,
            "open segments": self._streams.open_nbytes,
            "index": self._streams.index_nbytes,
        }
