"""What every frame storage promises."""

from __future__ import annotations

from abc import abstractmethod
from os import PathLike
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from framestow.frames.stacking import StackPadding


class Reading(Protocol):
    """Keeps what a storage held when ``start_reading`` was called readable, whatever is appended and evicted since.

    For as long as it is neither stopped nor collected. It takes no lock: the writer goes on, and waits only when
    so much was evicted meanwhile that it must not grow further. So whoever has a reading must not wait for the writer.
    """

    def windows(
        self,
        streams: npt.NDArray[np.int32],
        last_positions: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int32],
        out: Any,
        padding: StackPadding = "first_frame",
    ) -> None:
        """Write windows as ``FrameStorage.windows`` does."""

    def stop(self) -> None:
        """Let go of what was evicted meanwhile."""


class FrameStorage(Protocol):
    """Frames of n streams, addressed by stream and position; they come back bit for bit, whatever their dtype.

    Of observations of several arrays (``ObservationSpec``) each array has the same positions, and wherever frames go in
    or out stands a tuple of arrays, one a leaf (``KeyedStorage``).

    A position counts the frames of one stream from 0 for ever; a storage holds the frames of the half-open range
    ``held(stream)``, but for segments that were evicted among them. It knows no episode: which frames belong together
    is the caller's business.

    Segment k of a stream has the positions from ``k * frames_per_segment`` up to the next one's first. It is *open*
    while it is being filled, and *sealed* from then on: it never changes, and leaves as a whole::

        evict(0, before=640)             held from 640 on
        evict(0, before=1280, first=960) a hole: 640 to 959, and 1280 to the newest

    Threads: one at a time may ``append``, ``evict``, ``restore`` and take a ``segment``; beside it any number may start
    readings and use them, each reading in one thread, and ask for ``windows``, ``held`` and ``nbytes``.
    """

    @property
    def frames_per_segment(self) -> int:
        """Frames of a stream that go at once when they are evicted, those at a multiple of it and after."""

    def append(self, streams: npt.NDArray[np.int32], frames: Any) -> int:
        """Store ``frames[i]`` at the next position of ``streams[i]``; no stream twice. The frames are copied.

        ``frames`` is C-contiguous, of shape ``(m, *frame)`` and the dtype of the frames. Returns ``charged_bytes``,
        since asking for it after each step would take longer than the step's share of it.
        """

    def windows(
        self,
        streams: npt.NDArray[np.int32],
        last_positions: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int32],
        out: Any,
        padding: StackPadding = "first_frame",
    ) -> None:
        """Write one window of consecutive frames for each row of ``out``, ``(batch, length, *frame)`` in C order.

        Window i holds the frames ``last - count + 1 .. last`` of its stream in its final ``count`` places
        (``1 <= count <= length``); the places before repeat the first of them or are zeros, as ``padding`` says. Raises
        ``IndexError`` for a frame that is not held, before ``out`` is touched.
        """
        reading = self.start_reading()
        try:
            reading.windows(streams, last_positions, counts, out, padding)
        finally:
            reading.stop()

    def start_reading(self) -> Reading:
        """Give what can read the frames that are held now, at leisure."""

    def evict(self, stream: int, before: int, first: int = 0) -> None:
        """Allow the frames of ``stream`` at ``first`` up to ``before`` to go: the sealed segments wholly within do.

        Older readings still see them, until then they count in ``nbytes``. May wait for such a reading to stop.
        """

    def stored_positions(self, stream: int) -> range:
        """Positions of ``stream`` from the oldest frame held to the next one; where none is held, it is empty."""

    def segment_numbers(self, stream: int) -> range:
        """Numbers of the segments of ``stream`` that have frames, the oldest held first, the open one last.

        Those that were evicted among them are not left out.
        """
        held, frames = self.stored_positions(stream), self.frames_per_segment
        return range(held.start // frames, -(-held.stop // frames))

    def open_segment(self, stream: int) -> int:
        """Number of the segment of ``stream`` that the next frame goes into; those below are sealed."""
        return self.stored_positions(stream).stop // self.frames_per_segment

    def sealed_segments(self, stream: int) -> npt.NDArray[np.int64]:
        """Numbers of the sealed segments of ``stream`` that are held, ascending: a copy."""

    def segment(self, stream: int, number: int) -> bytes:
        """Give the packed frames of a segment as bytes that stand alone; of the open one, the frames it has so far.

        Raises ``IndexError`` for one that is not held, or has no frame yet.
        """

    def restore(self, stream: int, number: int, segment: bytes) -> None:
        """Put what ``segment`` gave behind what ``stream`` holds, under its number; a hole before it is allowed.

        An empty stream may begin with any. One that is not full becomes the open segment again, and goes on as if it
        had never left. Raises ``DamagedDataError`` for bytes that are not a segment of such frames, ``ValueError`` for
        a number that does not follow. Nothing has changed then.
        """

    def begin_at(self, stream: int, number: int) -> None:
        """Let ``stream``, of which nothing is held, go on with the first frame of segment ``number``."""

    @property
    def charged_bytes(self) -> int:
        """What counts against a budget: at least all that ``nbytes`` counts, but for what only readings still see.

        And what the steps of the frames take elsewhere, as the storage was told. It follows from what is held alone,
        not from what was held before or how it lies, so whoever lets go by it does the same after saving and loading.
        """

    def charge_steps(self, step_bytes: int) -> None:
        """Charge so much for what the step of each frame takes elsewhere, from now on."""

    @property
    def num_frames(self) -> dict[str, int]:
        """Frames held over all streams, by how they are kept."""

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes held, by part; what older readings still see is among them."""


class StorageInFiles(FrameStorage):
    """A storage whose sealed segments may lie in files, so that it may be larger than RAM.

    To be inherited from: ``isinstance`` tells at once, where for a protocol it would look every attribute up.

    A file is opened once, for as long as a segment lies in it, whatever becomes of its name; no other file may get that
    name meanwhile. What is read from one is verified each time: ``windows`` and ``segment`` raise
    ``DamagedSegmentError``, naming file, offset, stream and segment, for bytes that are not the segment's.
    """

    def supports_files(self, stream: int) -> bool:  # noqa: ARG002 - of one array all streams do
        """Whether the sealed segments of ``stream`` may lie in files."""
        return True

    @abstractmethod
    def move_to_file(self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int) -> None:
        """Read a sealed segment from a file from now on, and let go of its RAM as ``evict`` does.

        Its ``size`` bytes, as ``segment`` gives them, stand at ``offset`` of ``path``. It may lie in another file
        already. Raises ``IndexError`` for one that is not held or not sealed, ``ValueError`` for another size and
        ``OSError`` if the file cannot be opened; nothing has changed then.
        """

    @abstractmethod
    def restore_in_file(
        self, stream: int, number: int, path: str | PathLike[str], offset: int, size: int, num_frames: int
    ) -> None:
        """Put a full segment that lies in a file behind what ``stream`` holds, as ``restore`` does.

        Its frames are not read, and not verified before they are asked for. Raises as ``restore`` and ``move_to_file``
        do, and ``ValueError`` for one that is not full.
        """

    @property
    @abstractmethod
    def disk_nbytes(self) -> int:
        """Bytes of the segments that lie in files; not among ``nbytes``."""
