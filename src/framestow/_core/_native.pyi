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
        step_bytes: int = 0,
    ) -> None: ...
    def append(self, streams: NDArray[np.int32], frames: NDArray[np.uint8]) -> int:
        """Append ``frames[i]`` to ``streams[i]``; a stream may occur twice. IndexError for a stream out of range.

        Returns ``charged_bytes``.
        """

    @property
    def charged_bytes(self) -> int:
        """What counts against a budget: all bytes, and ``step_bytes`` for each frame, by what is held alone."""

    def charge_steps(self, step_bytes: int) -> None:
        """Charge so much for each frame from now on, instead of the ``step_bytes`` of the constructor."""

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

    def evict(self, stream: int, before: int, first: int = 0) -> int:
        """Drop the sealed segments of ``stream`` wholly in ``first`` up to ``before``; return how many frames they had.

        Older readings still see them, and they are freed, and leave ``sealed_nbytes``, when those have stopped. Waits,
        without the GIL, while 8 MiB or 1,024 such segments are kept.
        """

    def first_position(self, stream: int) -> int:
        """Position of the oldest frame held; of the open segment's first one where nothing else is."""

    def next_position(self, stream: int) -> int:
        """Position that the next appended frame gets."""

    def segment(self, stream: int, number: int) -> bytes:
        """Bytes of the segment of that number: its first position / ``frames_per_segment``.

        The open one comes in the same format. IndexError for one that is not held.
        """

    def sealed_numbers(self, stream: int) -> NDArray[np.int64]:
        """Numbers of the sealed segments that are held, ascending."""

    def begin_at(self, stream: int, number: int) -> None:
        """Let a stream of which nothing is held go on with the first frame of that segment; ValueError for another."""

    def restore(self, stream: int, number: int, segment: Buffer) -> None:
        """Put a segment behind what the stream holds, under its number, which may leave a hole, after verifying it.

        A stream that is empty may begin at any number. A segment that is not full becomes the open one again.
        ValueError for one that does not follow; DamagedDataError for wrong bytes or frames of another kind.
        """

    def move_to_file(self, stream: int, number: int, path: bytes, offset: int, size: int) -> None:
        """Read the sealed segment from a file from now on, where its ``size`` bytes stand at ``offset``; free its RAM.

        ``path`` as ``os.fsencode`` gives it. Older readings still use the RAM; waits for them as ``evict`` does. Each
        gather verifies what it reads: DamagedSegmentError for bytes that are not the segment's. IndexError for a
        segment that is not held or not sealed, ValueError for another size, OSError if the file cannot be opened;
        then nothing has changed. The file stays open until no segment lies in it any more.
        """

    def restore_in_file(self, stream: int, number: int, path: bytes, offset: int, size: int) -> None:
        """Put a full segment that lies in a file behind what the stream holds, as ``restore`` does.

        Nothing of it is read or verified before it is gathered.
        """

    @property
    def num_streams(self) -> int: ...
    @property
    def num_frames(self) -> int:
        """Frames held over all streams."""

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

    @property
    def disk_nbytes(self) -> int:
        """Bytes of the segments that lie in files."""

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

class _Steps:
    """What the steps behind every ``replay.timelines.Timeline`` do; that protocol says what the calls promise.

    ``newest_positions``, ``episode_starts``, ``unreadable_before`` and ``is_open`` have one entry a stream and are
    borrowed for as long as the steps live. ``actions_like`` and ``frames_like``: arrays ``(0, *shape)`` of the dtypes
    that are stored. ``action_range``: inclusive bounds of actions that are counted. ``segment_frames``: how many frames
    a storage lets go of at once.
    """

    def __len__(self) -> int:
        """How many steps may be drawn."""

    def begin(self, streams: NDArray[np.integer[Any]]) -> bool:
        """Start an episode on each of ``streams``, ending an open one; False, and nothing done, for unknown streams."""

    def stage(
        self,
        streams: Any,
        actions: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        frames: Any,
        extras: Any = None,
    ) -> bool:
        """Check one step of each of ``streams`` (all if None), arrays or lists of numbers, and hold it ready.

        False if it breaks a rule or comes in another form than is read here; then nothing is held ready.
        """

    def append_staged(self) -> None:
        """Give the staged step its slots."""

    def resolve(
        self, indices: NDArray[np.int64], with_extras: bool = True
    ) -> tuple[
        tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]],
        tuple[
            NDArray[Any],
            NDArray[np.float32],
            NDArray[np.float32],
            NDArray[np.bool_],
            NDArray[np.bool_],
            dict[str, NDArray[Any]],
        ],
    ]:
        """Give the windows of transitions, and what they carry, in new arrays; IndexError for one that is not held.

        Windows: streams, last positions, counts. Then actions (counted ones as int64), rewards, discounts, terminated,
        truncated, and the extra columns by name, none of them unless ``with_extras``.
        """

    def resolve_steps(
        self, indices: NDArray[np.int64], with_extras: bool = True
    ) -> tuple[
        tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]],
        tuple[
            NDArray[Any],
            NDArray[np.float32],
            NDArray[np.float32],
            NDArray[np.bool_],
            NDArray[np.bool_],
            dict[str, NDArray[Any]],
        ],
    ]:
        """Give what ``resolve`` would give if ``n_step`` were 1, of pending steps too."""

    def close_episodes(self) -> None:
        """End every open episode as cut off."""

    def restore_pending(self) -> None:
        """Find the pending steps, after everything was put back and what is lost was named."""

    @property
    def pending(self) -> NDArray[np.int64]:
        """The indices of the steps that may be drawn once their returns have all their steps, ascending."""

    @property
    def n_step(self) -> int:
        """How many rewards a return has."""

    def sampleable_at(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give indices by rank among the steps that may be drawn, 0 being the oldest; IndexError for no such rank."""

    def is_sampleable(self, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of ``indices`` name a step that may be drawn."""

    @property
    def num_slots(self) -> int:
        """All slots are below this."""

    @property
    def has_changed_slots(self) -> bool:
        """Whether a step came into a slot or left it, since somebody watches."""

    def watch_slots(self, is_watched: bool) -> None:
        """Note which slots change from now on, or none any more; then what was noted is forgotten."""

    def changed_slots(self) -> NDArray[np.int64]:
        """Give the first 65,536 slots that changed, ascending, each once."""

    def forget_changed_slots(self) -> None:
        """Forget those that were given last."""

    def slots_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the slots of steps; IndexError for one that may not be drawn."""

    def find_slots(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the slots of steps, -1 for those that may not be drawn."""

    def indices_in(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the steps in slots, -1 where there is none that may be drawn; IndexError for no slot."""

    def lose(self, stream: int, first: int, before: int) -> int:
        """Draw no step any more that looks at frames ``first`` up to ``before`` of a stream; how many could be."""

    def lose_indices(self, indices: NDArray[np.int64]) -> int:
        """Draw these steps, ascending, no more; how many could be."""

    def sampleable_after(self, after: int, count: int) -> NDArray[np.int64]:
        """Give up to ``count`` indices above ``after`` that may be drawn, ascending."""

    def follow(
        self, indices: NDArray[np.int64], length: int, crosses: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Give the indices ``(B, length)`` of the steps from each of ``indices`` on, and which begin an episode.

        -1 behind the end of the episode, and where a step may not be read; ``crosses`` goes on into the stream's next
        episode, but over no step that may not be read.
        """

    def aligned_starts(self, indices: NDArray[np.int64], stride: int, exact: bool = False) -> NDArray[np.int64]:
        """Give for each step the one at or before it that is a multiple of ``stride`` behind its episode's beginning.

        Where steps in between may not be read, the first behind those, or -1 if it must be ``exact``; -1 for a step
        that may not be read itself.
        """

    def find_steps(self, streams: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the indices of the steps that start at these frames; -1 where there is none that may be read."""

    def places(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give streams and positions of the frames that steps start at; -1 for a step that may not be read."""

    def episode_spans(
        self, indices: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Give streams, positions that steps start at, and of their episodes the first and the newest frame.

        The first frame may have left. IndexError for a step that may not be read.
        """

    def returns_to_go(self, indices: NDArray[np.int64], discount: float) -> NDArray[np.float64]:
        """Give for each step the discounted rewards from it to the end of its episode, or as far as that has come.

        NaN where a step in between may not be read.
        """

    def readable_runs(
        self,
    ) -> tuple[
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.bool_],
        NDArray[np.bool_],
        NDArray[np.int64],
    ]:
        """Give the longest runs of steps of one episode that may be read.

        Of each its stream, the position of its first step, how many steps it has, whether that is a whole episode that
        has ended, whether it goes on, and the position where its episode begins (0 where that is not known).
        """

    def starts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give how many episodes of each stream are known, and where they begin, one stream behind the other."""

    def restore_starts(self, counts: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        """Take over what ``starts`` gave, after all else was."""

    def rebuild_starts(self) -> None:
        """Let the steps tell where episodes begin, as far as they do, after all else was restored."""

    @property
    def unreferenced_frames(self) -> list[tuple[int, int, int]]:
        """Ranges ``(stream, first, before)`` of frames that no step references, until they are cleared."""

    def clear_unreferenced_frames(self) -> None:
        """Empty ``unreferenced_frames``."""

    @property
    def starts_nbytes(self) -> int:
        """Bytes that the starts of episodes take."""

class StepRing(_Steps):
    """The ring of steps behind ``RingTimeline``.

    ``settings``: a ``StepSettings``; ``streams``: its ``StreamArrays``; ``slots``: the bytes of
    ``replay.step_fields.slot_record``, ``(capacity, record)``. The arrays are borrowed for as long as this lives.
    """

    def __init__(self, settings: Any, streams: Any, slots: NDArray[np.uint8]) -> None: ...
    @property
    def oldest(self) -> int:
        """Index of the oldest step in the ring."""

    @property
    def next_index(self) -> int:
        """Index that the next step gets."""

    @property
    def lost(self) -> NDArray[np.int64]:
        """The indices between those two that may not be drawn any more, ascending."""

    def evict_for_staged(self) -> list[tuple[int, int, int]]:
        """Let go of the oldest steps until the staged one fits; gives ``unreferenced_frames``.

        Only what lets a whole segment go is added there, and once.
        """

    def evict_next(self) -> list[tuple[int, int, int]]:
        """Evict the oldest steps until a segment is unreferenced, if possible; return ``unreferenced_frames``."""

    def forget(self, indices: NDArray[np.int64]) -> int:
        """Overwrite the slots of these indices, ascending, with what stands for lost steps; how many could be drawn.

        Nor are those drawn any more whose returns may go on to them.
        """

    def restore_span(self, oldest: int, next_index: int) -> None:
        """Say which indices are in the ring, after the slots were filled from elsewhere; none is lost or pending."""

class StepBlocks(_Steps):
    """The blocks of steps behind ``BlockTimeline``, one a segment of frames.

    A step's index is its block's number times ``segment_frames``, plus its place there. The arguments are those of
    ``StepRing``.
    """

    def __init__(self, settings: Any, streams: Any) -> None: ...
    @property
    def staged_exceeds_capacity(self) -> bool:
        """Whether the staged step would be too much."""

    @property
    def num_sealed(self) -> int:
        """How many blocks are sealed."""

    @property
    def num_steps(self) -> int:
        """How many steps are here, those that may not be drawn among them."""

    @property
    def next_number(self) -> int:
        """Number that the next block gets."""

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks and of what finds them."""

    def evict_sealed(self, rank: int) -> None:
        """Let a sealed block go, 0 being the oldest, and add its frames to ``unreferenced_frames``.

        Steps beside it that look at those are not drawn any more.
        """

    def sampleable_indices(self) -> NDArray[np.int64]:
        """Give the index of every step that may be drawn, ascending."""

    def lost_indices(self) -> NDArray[np.int64]:
        """Give the index of every step that is here and may not be drawn, ascending."""

    def blocks(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        """Of all blocks, oldest first: number, stream, segment, steps, whether it is sealed."""

    def records(self, stream: int, segment: int) -> bytes:
        """Give the slots of a block; IndexError for one that is not here."""

    def first_slots(self) -> NDArray[np.int64]:
        """Of all blocks, oldest first: the first of the slots that belong to it."""

    def lose_leading_to(self, stream: int, position: int) -> int:
        """Draw no step any more whose return may go on to one that started at ``position`` and is gone; how many."""

    def restore_block(
        self, number: int, stream: int, segment: int, records: NDArray[np.uint8] | None, first_slot: int = -1
    ) -> None:
        """Put back a block, with no step in it if ``records`` is None, after the streams' arrays were filled.

        ``first_slot``: as ``first_slots`` gave it; -1 gives it any that are free.

        ValueError for one that does not come after those before it.
        """

    def restore_next_number(self, number: int) -> None:
        """Say which number the next block gets."""

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

def are_priorities(indices: Any, priorities: Any) -> bool:
    """Whether these are arrays of int64 and of finite float32 or float64, as many of each, in C order with one axis."""

class Priorities:
    """Priorities of the steps in slots, and draws in proportion to ``(|priority| + epsilon) ** alpha``, their weights.

    Both are finite and not negative, ValueError otherwise.
    """

    def __init__(self, alpha: float, epsilon: float) -> None: ...
    @property
    def total(self) -> float:
        """Sum of all weights."""

    @property
    def smallest(self) -> float:
        """The smallest weight above zero; infinite where there is none."""

    @property
    def largest(self) -> float:
        """The largest weight that ever was, at least 1; what a step which comes gets."""

    @property
    def nbytes(self) -> int:
        """Bytes of the weights and of their sums."""

    def take_note(self, slots: NDArray[np.int64], indices: NDArray[np.int64]) -> None:
        """Give a slot the largest weight where a step has come into it, and none where its index is -1."""

    def update(self, slots: NDArray[np.int64], priorities: NDArray[np.floating[Any]]) -> bool:
        """Take new priorities, float32 or float64, of any sign; rows with a negative slot are left out.

        Where a slot comes twice the last one counts. False, and nothing changed, where a weight is not finite.
        """

    def draw(self, random: NDArray[np.float64], beta: float) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Draw a slot from each of as many equal parts of the sum as there are numbers, which lie in 0 to 1.

        Gives the slots, and (smallest weight / weight) ** beta of each. ValueError while there is no weight.
        """

    def weights(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Give the weights of slots, 0 for a negative slot."""

    def restore(self, slots: NDArray[np.int64], weights: NDArray[np.float32], largest: float) -> None:
        """Put back weights, and the largest; ValueError for what is not finite or negative."""
