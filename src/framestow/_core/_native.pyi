"""Typed face of the native module.

A frame is ``rows`` rows of ``row_bytes`` bytes; ``pixel_bytes`` is the distance from a pixel to the next one of its
row. Arrays must have the dtype named here and lie in C order: nothing is cast or copied. Where ``(n, frame)`` is said,
the axes after the first may be any that hold ``rows * row_bytes`` bytes together.
"""

from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

ABI_VERSION: int

class SegmentFields(TypedDict):
    packing: str
    num_frames: int
    rows: int
    row_bytes: int
    pixel_bytes: int
    group_frames: int

def pack_segment(frames: NDArray[np.uint8], rows: int, row_bytes: int, pixel_bytes: int) -> bytes:
    """Pack ``(n, frame)`` consecutive frames; ValueError or TypeError for an array that does not fit."""

def unpack_segment(segment: Buffer, rows: int, row_bytes: int, pixel_bytes: int, out: NDArray[np.uint8]) -> None:
    """Verify the checksum and unpack all frames into ``out``, ``(n, frame)``; DamagedDataError for wrong bytes."""

def inspect_segment(segment: Buffer) -> SegmentFields:
    """Fields of a segment's header, its checksum not verified; DamagedDataError for what no writer wrote."""

def verify_segment(segment: Buffer) -> None:
    """Raise DamagedDataError unless header and checksum hold."""

def checksum(buffer: Buffer) -> int:
    """CRC-32C of the bytes of ``buffer``."""

def default_frames_per_segment(rows: int, row_bytes: int, pixel_bytes: int) -> int:
    """Frames that ``PackedStreams`` puts into a segment unless told otherwise."""

class PackedReading:
    """What a ``PackedStreams`` held when the reading started, whatever is appended and evicted meanwhile.

    Belongs to one thread at a time, which must not append or evict before it has stopped.
    """

    def windows(
        self,
        streams: NDArray[np.int32],
        last_positions: NDArray[np.int64],
        counts: NDArray[np.int32],
        out: NDArray[np.uint8],
        padding: str = "first_frame",
    ) -> None:
        """Gather as ``PackedStreams.gather`` does; ValueError once the reading has stopped."""

    def stop(self) -> None:
        """Let go of what was evicted meanwhile; what the reading's end, collected or not, does too."""

class PackedStreams:
    """Packed frames of ``num_streams`` streams in RAM: sealed segments, and behind them an open one a stream.

    Positions are absolute in each stream, from 0. One thread may append and evict while any number gather.
    """

    def __init__(
        self,
        num_streams: int,
        rows: int,
        row_bytes: int,
        pixel_bytes: int,
        frames_per_segment: int | None = None,
    ) -> None: ...
    def append(self, streams: NDArray[np.int32], frames: NDArray[np.uint8]) -> None:
        """Append ``frames[i]`` to ``streams[i]``; a stream may occur twice. IndexError for a stream out of range."""

    def gather(
        self,
        streams: NDArray[np.int32],
        last_positions: NDArray[np.int64],
        counts: NDArray[np.int32],
        out: NDArray[np.uint8],
        padding: str = "first_frame",
        threads: int = 1,
    ) -> None:
        """Write window i into ``out[i]``, ``(n, length, frame)``: the ``counts[i]`` frames up to ``last_positions[i]``.

        They fill the last places; those before repeat the first of them, or are zeros, as ``padding`` says. Every
        window is checked before ``out`` is touched: IndexError names the one that is not held. The GIL is released. Up
        to ``threads`` (1 to 64) share the work, each with a MiB of ``out`` at least.
        """

    def start_reading(self, threads: int = 1) -> PackedReading:
        """Keep every frame that is held now readable, by ``threads`` threads a call, until the reading is stopped."""

    def evict(self, stream: int, before: int) -> int:
        """Drop the sealed segments of ``stream`` wholly before that position; return how many frames they held.

        Older readings still see them, and they are freed, and leave ``sealed_nbytes``, when those have stopped. Waits,
        without the GIL, while 8 MiB or 1,024 such segments are kept.
        """

    def first_position(self, stream: int) -> int:
        """Position of the oldest frame held."""

    def next_position(self, stream: int) -> int:
        """Position that the next appended frame gets."""

    def num_segments(self, stream: int) -> int:
        """Segments held, the open one included."""

    def segment(self, stream: int, place: int) -> bytes:
        """Bytes of the segment at ``place``, oldest first; the open one in the same format, at the end."""

    def restore(self, stream: int, number: int, segment: Buffer) -> None:
        """Append a segment under its number (first position / ``frames_per_segment``) after verifying it.

        Only a stream that is empty may begin at any number. A segment that is not full becomes the open one again.
        ValueError for one that does not follow; DamagedDataError for wrong bytes or frames of another kind.
        """

    @property
    def num_streams(self) -> int: ...
    @property
    def frames_per_segment(self) -> int: ...
    @property
    def sealed_nbytes(self) -> int:
        """Bytes taken from the operating system for sealed segments."""

    @property
    def open_nbytes(self) -> int:
        """Bytes of open segments and of what packing needs beside them."""

    @property
    def index_nbytes(self) -> int:
        """Bytes of the tables that say where each segment lies."""

def draw_uniformly(random: NDArray[np.float64], start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Turn numbers in 0 to 1, 1 excluded, into indices ``start`` up to ``stop``, and give as many weights of 1."""

class FrameStacks:
    """The last ``stack`` frames of each stream, in rings that lie in ``recent``, ``(num_streams, stack, *frame)``.

    ``ages``, ``(num_streams,)``, counts the frames since an episode's first one, -1 before any. Both arrays are
    borrowed for as long as this lives. ``padding``: as ``frames.stacking.StackPadding`` says. Frames may be of any
    dtype; IndexError for a stream out of range, ValueError for arrays that do not fit.
    """

    def __init__(self, recent: NDArray[Any], ages: NDArray[np.int64], padding: str = "first_frame") -> None: ...
    def begin(self, streams: NDArray[np.integer[Any]], frames: NDArray[Any]) -> None:
        """Start an episode on each of ``streams`` with its first frame, ``(m, *frame)``."""

    def append(self, streams: NDArray[np.integer[Any]], frames: NDArray[Any]) -> None:
        """Add the next frame of each of ``streams``, ``(m, *frame)``."""

    def write(self, out: NDArray[Any]) -> None:
        """Write the stacks of all streams into ``out``, ``(num_streams, stack, *frame)``."""

class StepRing:
    """The ring of steps behind ``replay.timeline.Timeline``, over arrays that it borrows for as long as it lives.

    ``slots``: the bytes of ``replay.columns.slot_record``, ``(capacity, record)``. ``newest_positions``,
    ``episode_starts`` and ``is_open``: one entry a stream. ``actions_like`` and ``frames_like``: arrays ``(0, *shape)``
    of the dtypes that are stored. ``action_range``: inclusive bounds of actions that are counted. ``segment_frames``:
    how many frames a storage lets go of at once.
    """

    def __init__(
        self,
        slots: NDArray[np.uint8],
        newest_positions: NDArray[np.int64],
        episode_starts: NDArray[np.int64],
        is_open: NDArray[np.bool_],
        actions_like: NDArray[Any],
        frames_like: NDArray[Any],
        action_range: tuple[int, int] | None,
        stack: int,
        segment_frames: int,
        discount: float,
    ) -> None: ...
    @property
    def oldest(self) -> int:
        """Index of the oldest transition held."""

    @property
    def next_index(self) -> int:
        """Index that the next transition gets."""

    def begin(self, streams: NDArray[np.integer[Any]]) -> bool:
        """Start an episode on each of ``streams``, ending an open one; False, and nothing done, for unknown streams."""

    def stage(self, streams: Any, actions: Any, rewards: Any, terminated: Any, truncated: Any, frames: Any) -> bool:
        """Check one step of each of ``streams`` (all if None), arrays or lists of numbers, and hold it ready.

        False if it breaks a rule or comes in another form than is read here; then nothing is held ready.
        """

    def make_room(self) -> list[tuple[int, int]]:
        """Let go of the oldest transitions until the staged step fits.

        Gives pairs ``(stream, position)``: of that stream, no frame below that position is needed any more. Only what
        lets a whole segment go is named, and once.
        """

    def append_staged(self) -> int:
        """Give the staged step its slots; returns ``next_index`` as it is then."""

    def resolve(
        self, indices: NDArray[np.int64]
    ) -> tuple[
        tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]],
        tuple[NDArray[Any], NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]],
    ]:
        """Give the windows of transitions, and what they carry, in new arrays; IndexError for one that is not held.

        Windows: streams, last positions, counts. Then actions (counted ones as int64), rewards, discounts, terminated,
        truncated.
        """

    def restore_span(self, oldest: int, next_index: int) -> None:
        """Say which transitions are held, after the slots were filled from elsewhere."""

def shrinks_by_area(picture_shape: tuple[int, int], frame_shape: tuple[int, int]) -> bool:
    """Whether ``PaletteScreen`` makes frames of that (height, width): no axis grows, one shrinks by no whole factor."""

class PaletteScreen:
    """Grey pictures, or frames by the area's mean, of the last one or two raw frames of palette numbers.

    Borrows ``raw_frames``, ``(2, height, width)``, for as long as it lives; they are written in turn. ``frame_shape``
    is (height, width) of the frames, for which ``shrinks_by_area`` must hold, or None for the grey picture as it is.
    """

    def __init__(self, raw_frames: NDArray[np.uint8], frame_shape: tuple[int, int] | None) -> None: ...
    def learn(self, grey_of_pair: NDArray[np.uint8], is_known: NDArray[np.bool_]) -> None:
        """Take the grey of the maximum of two palette numbers, ``(256, 256)``, and which of the 256 are known."""

    def take_in(self, which: int) -> bool:
        """Take raw frame ``which``, just written, as the newest; False where it has a number that is not known.

        Then ``learn``, and take it in again.
        """

    def write(self, of_two: bool, out: NDArray[np.uint8]) -> None:
        """Write the picture of the newest raw frame, or of the maximum of the last two; ValueError before any."""
