"""Packed frames, in RAM and in files."""

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
from framestow.storage.frame_storage import Reading, StorageInFiles


class ReadingOfBytes:
    """A ``Reading`` of frames of another dtype than that of bytes, as which they are packed."""

    def __init__(self, reading: PackedReading) -> None:
        self._reading = reading
        self.stop = reading.stop

    def windows(
        self,
        streams: npt.NDArray[np.int32],
        last_positions: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int32],
        out: npt.NDArray[Any],
        padding: StackPadding = "first_frame",
    ) -> None:
        """Unpack one window of consecutive frames for each row of ``out`` (see ``FrameStorage``)."""
        self._reading.windows(streams, last_positions, counts, bytes_of(out, leading_axes=2), padding)


class PackedStorage(StorageInFiles):
    """Frames packed as they arrive, in segments that can be read at once, the open one of each stream included.

    The same promises as every ``StorageInFiles``; the work is done by the native ``PackedStreams``. Frames of any dtype
    are packed by their bytes. Up to ``threads`` threads unpack what one call asks for.
    """

    def __init__(
        self,
        spec: FrameSpec,
        num_streams: int,
        threads: int = 1,
        frames_per_segment: int | None = None,
        step_bytes: int = 0,
    ) -> None:
        self._holds_bytes = spec.dtype == np.uint8  # as the native code takes them
        self._threads = threads
        self._streams = PackedStreams(
            num_streams, spec.rows, spec.row_bytes, spec.pixel_bytes, frames_per_segment, step_bytes
        )

    @property
    def frames_per_segment(self) -> int:
        """Frames that are packed together, and go together."""
        return self._streams.frames_per_segment

    def append(self, streams: npt.NDArray[np.int32], frames: npt.NDArray[Any]) -> int:
        """Pack ``frames[i]`` at the next position of ``streams[i]`` (see ``FrameStorage``)."""
        return self._streams.append(streams, frames if self._holds_bytes else bytes_of(frames))

    def start_reading(self) -> Reading:
        """Give what can read the frames that are held now, at leisure (see ``FrameStorage``)."""
        reading = self._streams.start_reading(self._threads)
        return reading if self._holds_bytes else ReadingOfBytes(reading)

    def evict(self, stream: int, before: int, first: int = 0) -> None:
        """Let go of the sealed segments of ``stream`` that lie wholly in positions ``first`` up to ``before``.

        They are freed when the readings that started before have stopped; waits while those keep 8 MiB or more.
        """
        self._streams.evict(stream, before, first)

    def stored_positions(self, stream: int) -> range:
        """Positions of ``stream`` from the oldest frame held to the next one (see ``FrameStorage``)."""
        return range(self._streams.first_position(stream), self._streams.next_position(stream))

    def sealed_segments(self, stream: int) -> npt.NDArray[np.int64]:
        """Numbers of the sealed segments of ``stream`` that are held, ascending."""
        return self._streams.sealed_numbers(stream)

    def segment(self, stream: int, number: int) -> bytes:
        """Give the bytes of a segment as they lie in RAM; the open one in the same format (see ``FrameStorage``)."""
        return self._streams.segment(stream, number)

    def restore(self, stream: int, number: int, segment: bytes) -> None:
        """Put a segment behind what ``stream`` holds; it stays open if it is short (see ``FrameStorage``)."""
        self._streams.restore(stream, number, segment)

    def begin_at(self, stream: int, number: int) -> None:
        """Let ``stream``, of which nothing is held, go on with the first frame of segment ``number``."""
        self._streams.begin_at(stream, number)

    def move_to_file(self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int) -> None:
        """Read a sealed segment from a file from now on (see ``StorageInFiles``)."""
        self._streams.move_to_file(stream, number, os.fsencode(path), offset, size)

    def restore_in_file(
        self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int, num_frames: int
    ) -> None:
        """Put a full segment that lies in a file behind what ``stream`` holds (see ``StorageInFiles``)."""
        if num_frames != self.frames_per_segment:
            raise ValueError(
                f"segment {number} of stream {stream} has {num_frames} frames: only full ones, of "
                f"{self.frames_per_segment}, stay in files; restore it into RAM"
            )
        self._streams.restore_in_file(stream, number, os.fsencode(path), offset, size)

    @property
    def disk_nbytes(self) -> int:
        """Bytes of the segments that lie in files."""
        return self._streams.disk_nbytes

    @property
    def charged_bytes(self) -> int:
        """What counts against a budget (see ``FrameStorage``)."""
        return self._streams.charged_bytes

    def charge_steps(self, step_bytes: int) -> None:
        """Charge so much for the step of each frame (see ``FrameStorage``)."""
        self._streams.charge_steps(step_bytes)

    @property
    def num_frames(self) -> dict[str, int]:
        """Frames held."""
        return {"packed": self._streams.num_frames}

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes held, by part."""
        return {
            "frames": self._streams.sealed_nbytes,
            "open segments": self._streams.open_nbytes,
            "index": self._streams.index_nbytes,
        }
