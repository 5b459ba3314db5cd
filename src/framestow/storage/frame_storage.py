"""Define ``FrameStorage``, the interface of all frame storages, and ``StorageInFiles`` for those that can use files."""

from __future__ import annotations

from abc import abstractmethod
from os import PathLike
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from framestow.frames.stacking import StackPadding

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


class Reading(Protocol):
    """A consistent view of the frames that a storage had when ``start_reading`` was called.

    Later appends and evictions do not change it, until it is stopped or garbage-collected. It holds no lock, so the
    writer continues. Evicted frames stay in memory for a reading; if they take too much, the writer waits for it to
    stop. So a thread with an open reading must not wait for the writer.
    """

    def windows(
        self, streams: Int32s, last_positions: Int64s, counts: Int32s, out: Any, padding: StackPadding = "first_frame"
    ) -> None:
        """Write windows as ``FrameStorage.windows`` does."""

    def stop(self) -> None:
        """Release the evicted frames that this reading kept alive."""


class FrameStorage(Protocol):
    """Frames of n streams, addressed by stream and position, returned bit for bit.

    A *position* numbers the frames of one stream from 0, and is never reused. A storage has the frames of the range
    ``stored_positions(stream)``, except for evicted segments within it. It knows no episodes. For observations of
    several arrays (``ObservationSpec``), frames are tuples with one array per leaf (``KeyedStorage``).

    Segment k of a stream has the positions ``k * frames_per_segment`` to ``(k + 1) * frames_per_segment`` (excluded).
    It is *open* while it is being filled, and *sealed* when it is full. A sealed segment never changes, and is evicted
    as a whole::

        evict(0, before=640)              stored: 640 to the newest
        evict(0, before=1280, first=960)  stored: 640 to 959, and 1280 to the newest

    Threads: one thread at a time may call ``append``, ``evict``, ``restore`` and ``segment``. Meanwhile, any number of
    threads may start readings (each used by one thread) and call ``windows``, ``stored_positions`` and ``nbytes``.
    """

    @property
    def frames_per_segment(self) -> int:
        """Number of frames in a full segment."""

    def append(self, streams: Int32s, frames: Any) -> int:
        """Copy ``frames[i]`` to the next position of ``streams[i]``, and return the new ``charged_bytes``.

        ``frames`` is C-contiguous, of shape ``(m, *frame)`` and the dtype of the spec. No stream may occur twice.
        """

    def windows(
        self, streams: Int32s, last_positions: Int64s, counts: Int32s, out: Any, padding: StackPadding = "first_frame"
    ) -> None:
        """Write one window of consecutive frames into each row of ``out``, ``(batch, length, *frame)`` in C order.

        Row i ends with the frames ``last - count + 1 .. last`` of its stream (``1 <= count <= length``). The places
        before are filled with the first of these frames or with zeros, as ``padding`` says. Raises ``IndexError`` for a
        frame that is not stored, before it writes to ``out``.
        """
        reading = self.start_reading()
        try:
            reading.windows(streams, last_positions, counts, out, padding)
        finally:
            reading.stop()

    def start_reading(self) -> Reading:
        """Return a reading of the frames that are stored now; the caller must stop it."""

    def evict(self, stream: int, before: int, first: int = 0) -> None:
        """Evict the sealed segments of ``stream`` within positions ``first`` to ``before`` (excluded).

        Open readings still see the evicted frames, which count in ``nbytes`` until then. May wait for a reading to
        stop.
        """

    def stored_positions(self, stream: int) -> range:
        """Return the positions of ``stream``, from the oldest stored frame to the next one (excluded)."""

    def open_segment(self, stream: int) -> int:
        """Return the number of the segment that the next frame of ``stream`` goes into; lower ones are sealed."""
        return self.stored_positions(stream).stop // self.frames_per_segment

    def sealed_segments(self, stream: int) -> Int64s:
        """Return the numbers of the stored sealed segments of ``stream``, ascending, as a copy."""

    def segment(self, stream: int, number: int) -> bytes:
        """Return a segment as self-contained packed bytes; of the open segment, its frames so far.

        Raises ``IndexError`` for a segment that is not stored or has no frames yet.
        """

    def restore(self, stream: int, number: int, segment: bytes) -> None:
        """Append to ``stream`` what ``segment`` returned, as segment ``number``; numbers may be skipped.

        A segment that is not full becomes the open segment. Raises ``DamagedDataError`` for bytes that are not a
        segment of such frames, and ``ValueError`` for a number that is too low; both change nothing.
        """

    def begin_at(self, stream: int, number: int) -> None:
        """Start the empty ``stream`` with the first frame of segment ``number``."""

    @property
    def charged_bytes(self) -> int:
        """Bytes that count against a budget: an upper bound of ``nbytes``, plus ``step_bytes`` per frame.

        Evicted frames that only readings still see do not count. The value depends only on the stored frames, so
        evictions by it are the same after saving and loading.
        """

    def charge_steps(self, step_bytes: int) -> None:
        """Add ``step_bytes`` per frame to ``charged_bytes``, for the timeline's step of each frame."""

    @property
    def num_frames(self) -> dict[str, int]:
        """Number of stored frames over all streams, by how they are stored."""

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes in RAM, by part, including evicted frames that readings still see."""


class StorageInFiles(FrameStorage):
    """A storage whose sealed segments can be in files, so that it can be larger than RAM.

    This is a base class rather than a protocol, since ``isinstance`` of a protocol is slow.

    A file stays open as long as one of its segments is stored, even if it is renamed or deleted. No other file may get
    its name meanwhile. Every read is verified: for damaged bytes, ``windows`` and ``segment`` raise
    ``DamagedSegmentError`` with file, offset, stream and segment.
    """

    def supports_files(self, stream: int) -> bool:  # noqa: ARG002 - only KeyedStorage depends on the stream
        """Return whether the sealed segments of ``stream`` can be in files."""
        return True

    @abstractmethod
    def move_to_file(self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int) -> None:
        """Read a sealed segment from a file from now on, and free its RAM.

        The file has the ``size`` bytes that ``segment`` returns at ``offset``. The segment may be in another file
        already. Raises ``IndexError`` for a segment that is not stored or not sealed, ``ValueError`` for another size
        and ``OSError`` for a file that cannot be opened; all change nothing.
        """

    @abstractmethod
    def restore_in_file(
        self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int, num_frames: int
    ) -> None:
        """Append to ``stream`` a full segment that is in a file, without reading it.

        Its bytes are verified when a window needs them. Raises the errors of ``restore`` and ``move_to_file``, and
        ``ValueError`` for a segment that is not full.
        """

    @property
    @abstractmethod
    def disk_nbytes(self) -> int:
        """Bytes of the segments that are in files; ``nbytes`` does not include them."""
