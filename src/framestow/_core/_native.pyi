"""Typed API of the native module, and its only description.

A frame has ``rows`` rows of ``row_bytes`` bytes; ``pixel_bytes`` is the distance between neighbouring pixels of a row.
Arrays must be C-ordered and have the dtype named here: nothing is cast or copied. Axes written as ``frame`` may have
any shape of ``rows * row_bytes`` bytes.
"""

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from framestow._core.resolved_steps import StepFields, Windows

ABI_VERSION: int

# Bits of a step (``step_record.hpp``).
TERMINATED: int
TRUNCATED: int
TAKEN: int
BEGINS_EPISODE: int
BORDER: int

def set_leak_warnings(enabled: bool) -> None:
    """Let the exit of the process list the native objects that are alive on stderr, or not: the default."""

class SegmentFields(TypedDict):
    encoding: str
    num_frames: int
    rows: int
    row_bytes: int
    pixel_bytes: int
    group_frames: int

def pack_segment(
    frames: NDArray[np.uint8], rows: int, row_bytes: int, pixel_bytes: int, channels_first: bool = False
) -> bytes:
    """Pack consecutive frames, ``(n, frame)``; ValueError or TypeError if the array does not fit.

    ``channels_first``: the rows are those of three planes, red, green and blue, which are packed as pixels.
    """

def unpack_segment(segment: Buffer, rows: int, row_bytes: int, pixel_bytes: int, out: NDArray[np.uint8]) -> None:
    """Verify the checksum and unpack all frames into ``out``, ``(n, frame)``; DamagedDataError for wrong bytes."""

def inspect_segment(segment: Buffer) -> SegmentFields:
    """Return the fields of a segment's header without verifying its checksum; DamagedDataError for invalid fields."""

def verify_segment(segment: Buffer) -> None:
    """Raise DamagedDataError unless header and checksum are valid."""

def checksum(buffer: Buffer) -> int:
    """Return the CRC-32C of the bytes of ``buffer``."""

def default_frames_per_segment(rows: int, row_bytes: int, pixel_bytes: int) -> int:
    """Return the default number of frames per segment of ``FrameStore``."""

def write_pixel_floats(pixels: NDArray[np.uint8], floats: NDArray[np.float32]) -> None:
    """Write ``pixels * np.float32(1 / 255)``, ``(n, channels, h, w)``, into ``floats``, ``(n, h, w, channels)``.

    Only the first two axes of ``pixels`` may have gaps.
    """

class FrameSnapshot:
    """The frames that a ``FrameStore`` had at one moment; used by one thread at a time."""

    def windows(
        self,
        env_ids: NDArray[np.int32],
        last_positions: NDArray[np.int64],
        counts: NDArray[np.int32],
        out: Any,
        padding: str = "first_frame",
        array: int | None = None,
    ) -> None:
        """Write windows as ``FrameStore.windows`` does; of one array alone if ``array`` is given."""

    def find_missing_window(
        self, env_ids: NDArray[np.int32], last_positions: NDArray[np.int64], counts: NDArray[np.int32], length: int
    ) -> int:
        """Return the first window without 1 to ``length`` stored frames in every array; if none, their number."""

    def stop(self) -> None:
        """Release the evicted frames that this snapshot kept alive; ``windows`` raises ValueError from now on."""

class FrameStore:
    """Frames of ``num_envs`` environments; ``storage.frame_storage.FrameStorage`` describes them and derives from it.

    ``arrays``: (rows, row_bytes, pixel_bytes, is_raw, scaled_bytes, channels_first, lead_ins) for each array of an
    observation.
    ``is_raw``: RAM is not compressed. ``scaled_bytes``: bytes of a float if frames are floats k / 255.
    ``channels_first``: as in ``pack_segment``. ``lead_ins``: frames before a run's first one that ``append`` may bring,
    one less than those of a stack. The last four may be left out.
    """

    def __init__(
        self,
        num_envs: int,
        arrays: Sequence[tuple[int, ...]],
        frames_per_segment: int | None = None,
        step_bytes: int = 0,
        threads: int = 1,
    ) -> None: ...
    def append(
        self,
        env_ids: NDArray[np.int32],
        frames: Any,
        paddings: NDArray[np.uint8] | None = None,
        lead_ins: Any = None,
    ) -> int:
        """Copy ``frames[i]`` to the next position of ``env_ids[i]``, in all arrays; return ``charged_bytes``.

        ``frames``: an array ``(m, *frame)`` in C order, or a tuple with one for each array. An environment may repeat.
        IndexError for an environment out of range.

        ``paddings[i]``: 0 if the run of frame i goes on; otherwise it begins a run, padded with zeros (1), with the
        frames ``lead_ins[i]`` (2), or by ``windows`` (3). ``lead_ins``: an array ``(m, lead_ins, *frame)``, in C order
        from its second axis on, or a tuple with one, or None, for each array. Only its rows with padding 2 are read.
        """

    def windows(
        self,
        env_ids: NDArray[np.int32],
        last_positions: NDArray[np.int64],
        counts: NDArray[np.int32],
        out: Any,
        padding: str = "first_frame",
        threads: int | None = None,
    ) -> None:
        """Write one window of consecutive frames into each row of ``out``, ``(batch, length, *frame)`` in C order.

        Row i ends with the frames ``last - count + 1 .. last`` of its environment (``1 <= count <= length``).
        ``padding`` fills the places before: with the first of these frames, or with zeros. If that frame begins a run
        that ``append`` gave its own padding, this fills them. An array of fewer ``lead_ins`` than another one takes the
        last frames of a window, as many as its output has places. IndexError for a frame that is not stored, before
        ``out`` is written. The GIL is released. Up to ``threads`` threads, the store's by default, share the work, each
        with at least a MiB.
        """

    def take_snapshot(self) -> FrameSnapshot:
        """Return a reading of the frames that are stored now; the caller must stop it."""

    def evict(self, env_id: int, before: int, first: int = 0) -> int:
        """Evict the sealed segments of ``env_id`` in positions ``first`` to ``before`` (excluded).

        Returns their number of frames.

        Open snapshots still see them, and they count in the bytes until then. Waits without the GIL while 8 MiB (16 raw
        segments, if that is more) or 1,024 such segments wait to be freed.
        """

    def first_position(self, track: int) -> int:
        """Return the position of the oldest stored frame, or of the open segment's first frame if there is none."""

    def next_position(self, track: int) -> int:
        """Return the position of the next frame to be appended."""

    def segment(self, track: int, number: int) -> bytes:
        """Return a segment as self-contained packed bytes; of the open segment, its frames so far.

        IndexError for a segment that is not stored or has no frames yet.
        """

    def sealed_segments(self, track: int) -> NDArray[np.int64]:
        """Return the numbers of the stored sealed segments of ``track``, ascending, as a copy."""

    def begin_at(self, track: int, number: int) -> None:
        """Start the empty ``track`` with the first frame of segment ``number``; ValueError if it is not empty."""

    def restore(self, track: int, number: int, segment: Buffer) -> None:
        """Append to ``track`` what ``segment`` returned, as segment ``number``; numbers may be skipped.

        A segment that is not full becomes the open segment. DamagedDataError for bytes that are not a segment of such
        frames, and ValueError for a number that is too low; both change nothing.
        """

    def move_to_file(self, track: int, number: int, path: bytes, offset: int, size: int) -> None:
        """Read a sealed segment from a file from now on; ``path`` is encoded by ``os.fsencode``.

        Older snapshots still use the RAM; waits for them as ``evict`` does.
        """

    def restore_in_file(self, track: int, number: int, path: bytes, offset: int, size: int) -> None:
        """Append a full segment that lies in a file, as ``restore`` does; its first window reads and verifies it."""

    @property
    def charged_bytes(self) -> int:
        """Bytes that count against a budget: an upper bound of those in RAM, plus ``step_bytes`` per frame.

        Evicted frames that only snapshots still see do not count. The value depends only on the stored frames, so
        evictions by it are the same after saving and loading.
        """

    def charge_steps(self, step_bytes: int) -> None:
        """Set the bytes charged per frame from now on, for the step store's step of each frame."""

    @property
    def num_envs(self) -> int: ...
    @property
    def frames_per_segment(self) -> int:
        """Number of frames in a full segment."""

    def num_frames_of(self, array: int) -> tuple[int, int]:
        """Return the number of stored frames of an array, and how many are exact among scaled floats."""

    def num_whole_of(self, array: int) -> int:
        """Return the number of observations whose older frames are stored as lead-ins, in one array."""

    def nbytes_of(self, array: int) -> tuple[int, int, int, int]:
        """Return the bytes of an array: sealed segments, open segments and scratch, index, files."""

    @property
    def sealed_nbytes(self) -> int:
        """Bytes allocated for sealed segments, and for raw open ones."""

    @property
    def open_nbytes(self) -> int:
        """Bytes of open segments and of the packer's scratch."""

    @property
    def index_nbytes(self) -> int:
        """Bytes of the tables of segment places."""

    @property
    def disk_nbytes(self) -> int:
        """Bytes of the segments that are in files."""

def draw_uniformly(random: NDArray[np.float64], start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Turn random numbers in [0, 1) into indices from ``start`` up to, excluding, ``stop``, and weights of 1."""

class FrameStacks:
    """The last ``stack`` frames of each environment, in rings in ``recent``, ``(num_envs, stack, *frame)``.

    ``ages``, ``(num_envs,)``: frames since an episode's first one, -1 before any. Both arrays are borrowed while
    this object lives. ``padding``: a ``StackPadding`` of ``frames.stacking``. Frames may have any dtype. IndexError for
    an environment out of range, ValueError for arrays that do not fit.
    """

    def __init__(self, recent: NDArray[Any], ages: NDArray[np.int64], padding: str = "first_frame") -> None: ...
    def begin(self, env_ids: NDArray[np.integer[Any]], frames: NDArray[Any]) -> None:
        """Start an episode on each of ``env_ids`` with its first frame, ``(m, *frame)``."""

    def append(
        self,
        env_ids: NDArray[np.integer[Any]],
        frames: NDArray[Any],
        paddings: NDArray[np.uint8] | None = None,
        lead_ins: NDArray[Any] | None = None,
    ) -> None:
        """Add the next frame of each of ``env_ids``, ``(m, *frame)``.

        ``paddings`` and ``lead_ins``, ``(m, stack - 1, *frame)``: as those of ``FrameStore.append``.
        """

    def write(self, out: NDArray[Any]) -> None:
        """Write the stacks of all environments into ``out``, ``(num_envs, stack, *frame)``."""

def join_frames(frames: NDArray[Any], depth_axis: int, piece_bytes: int, out: NDArray[Any]) -> None:
    """Join the frames of stacks, ``(..., depth, *frame)``, into observations: ``out``, ``(..., *shape)`` in C order.

    ``depth_axis``: the axis of the frames, oldest first. Each frame has pieces of ``piece_bytes`` bytes, which
    alternate with those of the others. Only the frames must be in C order; stacks may overlap. ValueError for arrays
    that do not fit. Releases the GIL.
    """

class Unstacker:
    """Compares the whole observations of a step with the current stacks of their environments.

    Arguments:
        stacks: Of each array of an observation.
        is_open: Whether each environment has an open episode; borrowed, as the stacks are.
        arrays: Of each array of an observation, an empty array ``(0, *shape)`` of its dtype, the number of stacked
            frames, the bytes of a frame that lie together, and the shape of a frame. Each frame has pieces of so many
            bytes, which alternate with those of the other frames: all its bytes for a stack along the first axis, the
            bytes of one pixel along the last.
    """

    def __init__(
        self,
        stacks: tuple[FrameStacks, ...],
        is_open: NDArray[np.bool_],
        arrays: tuple[tuple[NDArray[Any], int, int, tuple[int, ...]], ...],
    ) -> None: ...
    def unstack(
        self, env_ids: Any, observations: Sequence[Any] | None, next_observations: Sequence[Any]
    ) -> tuple[tuple[NDArray[Any], ...], NDArray[np.uint8] | None] | None:
        """Return the newest frames of the next observations, ``(m, *frame)`` of each array, and the flags of each row.

        ``env_ids``: None for all. ``observations`` and ``next_observations``: one array for each array of an
        observation, ``(m, *shape)``. None for the observations: the current ones of open episodes.

        Bit 1 of a flag: the observation equals the current one of its environment, whose episode is open. Bit 2: the
        next observation is the observation shifted by one frame. None for the flags: all have both bits.

        Returns None if an array has another shape or dtype, or is not in C order. ValueError for an environment that is
        not one of the stacks.
        """

_Indices = NDArray[np.int64]

class _Steps:
    """The native half of a step store; ``replay.steps.step_store.StepStore`` defines the terms.

    The settings name the shapes and dtypes of what is stored by empty arrays. The environment arrays have one entry per
    environment and are borrowed while this object lives. Indices are int64 arrays with one axis.
    """

    def __len__(self) -> int:
        """Return the number of sampleable steps."""

    def begin(self, env_ids: NDArray[np.integer[Any]]) -> bool:
        """Start an episode in each of ``env_ids``, cutting off open ones; False, unchanged, for an unknown one."""

    def stage(
        self,
        env_ids: Any,
        actions: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        frames: Any,
        extras: Any = None,
        borders: Any = None,
    ) -> bool:
        """Check one step of each of ``env_ids`` (all if None), given as arrays or lists of numbers, and stage it.

        ``borders``: whether the next observation of each step begins a run; None: none does. Returns False, and stages
        nothing, if the step breaks a rule or has a form that only Python converts.
        """

    def append_staged(self) -> None:
        """Append the staged step without frames."""

    def append_whole(
        self,
        storage: FrameStore,
        stacks: tuple[FrameStacks, ...],
        frames: Any,
        paddings: NDArray[np.uint8] | None = None,
        lead_ins: Any = None,
    ) -> int:
        """Append the staged step, its frames, and the stacks of all arrays; return the storage's ``charged_bytes``.

        ``paddings`` and ``lead_ins``: as those of ``FrameStore.append``; the paddings of borders are 1 to 3, all others
        0. None: the runs that borders begin are padded as episodes.

        Checks all arguments first. No signal is handled in this call, so the step is stored whole or not at all. If
        memory runs out in the middle, RuntimeError refuses all further steps.
        """

    def begin_whole(
        self,
        storage: FrameStore,
        stacks: tuple[FrameStacks, ...],
        env_ids: NDArray[np.int32],
        frames: Any,
        paddings: NDArray[np.uint8] | None = None,
        lead_ins: Any = None,
    ) -> int:
        """Start an episode on each of ``env_ids`` with its frames, as ``append_whole`` appends a step.

        ``paddings``, each 1 to 3, and ``lead_ins``: as those of ``append_whole``.
        """

    def resolve(
        self, indices: _Indices, with_extras: bool = True, merges_windows: bool = False
    ) -> tuple[Windows, StepFields]:
        """Return the windows and fields of transitions in new arrays; IndexError for one that is not sampleable.

        Each transition has two windows of ``stack`` frames: first come all observations, then all next observations.
        ``merges_windows``: one window of ``stack + n_step`` frames each, if ``n_step`` is 1 or below ``stack`` and
        every next observation is its observation shifted by ``n_step`` frames. A border, or a return with fewer steps,
        gives every transition two.
        """

    def resolve_steps(self, indices: _Indices, with_extras: bool = True) -> tuple[Windows, StepFields]:
        """Return the windows and fields of single steps, as if ``n_step`` were 1; of pending steps too.

        Each step has one window, from its observation's first frame to the next observation's newest one. Of a border
        these are frames of two runs.
        """

    def flags_of(self, indices: _Indices) -> NDArray[np.uint8]:
        """Return the flags of steps, of ``framestow.replay.step_fields``; IndexError for an unreadable one."""

    def close_episodes(self) -> None:
        """End every open episode as truncated."""

    def restore_pending(self) -> None:
        """Find the pending steps, after everything was restored and lost steps were named."""

    @property
    def pending(self) -> _Indices:
        """Indices of the steps whose returns are incomplete, ascending."""

    @property
    def n_step(self) -> int:
        """Number of rewards in a return."""

    def sampleable_at(self, ranks: _Indices) -> _Indices:
        """Return sampleable indices by rank, 0 being the oldest; IndexError for a rank out of range."""

    def is_sampleable(self, indices: _Indices) -> NDArray[np.bool_]:
        """Return which of ``indices`` are sampleable."""

    @property
    def num_slots(self) -> int:
        """Upper bound of all slots."""

    @property
    def has_changed_slots(self) -> bool:
        """Whether a sampleable step entered or left a slot since the record was cleared."""

    def watch_slots(self, is_watched: bool) -> None:
        """Start or stop recording which slots change; stopping clears the record."""

    def changed_slots(self) -> _Indices:
        """Return the first 65,536 changed slots, ascending and distinct."""

    def forget_changed_slots(self) -> None:
        """Remove the slots that ``changed_slots`` returned last from the record."""

    def slots_of(self, indices: _Indices) -> _Indices:
        """Return the slots of steps; IndexError for one that is not sampleable."""

    def find_slots(self, indices: _Indices) -> _Indices:
        """Return the slots of steps, -1 for those that are not sampleable."""

    def indices_in(self, slots: _Indices) -> _Indices:
        """Return the indices of the steps in slots, -1 without a sampleable one; IndexError for a slot out of range."""

    def lose(self, env_id: int, first: int, before: int) -> int:
        """Make the steps unsampleable that use frames ``first`` up to, excluding, ``before``; later steps too.

        Returns how many were sampleable.
        """

    def lose_indices(self, indices: _Indices) -> int:
        """Make these steps, ascending, unsampleable; return how many were sampleable."""

    def sampleable_after(self, after: int, count: int) -> _Indices:
        """Return up to ``count`` sampleable indices above ``after``, ascending."""

    def follow(self, indices: _Indices, length: int, crosses: bool = False) -> tuple[_Indices, NDArray[np.bool_]]:
        """Return the indices ``(B, length)`` of consecutive steps from each of ``indices``, and which begin an episode.

        -1 after the end of the episode and from the first unreadable step on. ``crosses`` continues with the
        environment's next episode, but not beyond an unreadable step.
        """

    def aligned_starts(self, indices: _Indices, stride: int, exact: bool = False) -> _Indices:
        """Return for each step the latest one, up to itself, whose distance to its episode's start ``stride`` divides.

        If a step in between is unreadable: the step after it, or -1 if ``exact``. -1 for a step that is unreadable
        itself.
        """

    def find_steps(self, env_ids: _Indices, positions: _Indices) -> _Indices:
        """Return the indices of the steps that start at these frames; -1 where no readable step does."""

    def places(self, indices: _Indices) -> tuple[_Indices, _Indices]:
        """Return environments and positions of the frames at which steps start; -1 for an unreadable step."""

    def episode_spans(self, indices: _Indices) -> tuple[_Indices, _Indices, _Indices, _Indices]:
        """Return environments and positions at which steps start, and the first and newest frame of their episodes.

        The first frame may have been evicted. IndexError for an unreadable step.
        """

    def returns_to_go(self, indices: _Indices, discount: float) -> NDArray[np.float64]:
        """Return the discounted rewards from each step to the end of its episode; of an open episode, so far.

        NaN if a step in between is unreadable.
        """

    def readable_runs(self) -> tuple[_Indices, _Indices, _Indices, NDArray[np.bool_], NDArray[np.bool_], _Indices]:
        """Return the longest runs of consecutive readable steps of one episode.

        Per run: environment, position of its first step, number of steps, whether it is a whole ended episode, whether
        its episode is open, and where its episode begins (0 if unknown). Takes O(episodes), or O(steps) with lost steps
        or in blocks.
        """

    def starts(self) -> tuple[_Indices, _Indices]:
        """Return per environment how many episodes are known, and where they begin, environment after environment."""

    def restore_starts(self, counts: _Indices, positions: _Indices) -> None:
        """Restore what ``starts`` returned, after everything else."""

    def rebuild_starts(self) -> None:
        """Derive the starts of episodes from the steps, after everything else was restored."""

    @property
    def unreferenced_frames(self) -> list[tuple[int, int, int]]:
        """Triples ``(env_id, first, before)`` of frames that no step needs, until they are cleared.

        Clear them after the storage has evicted them. After a Ctrl-C in between, the next eviction repeats them.
        """

    def clear_unreferenced_frames(self) -> None:
        """Clear ``unreferenced_frames``."""

    @property
    def starts_nbytes(self) -> int:
        """Bytes of the starts of episodes."""

class StepRing(_Steps):
    """The steps of ``RingSteps``.

    ``settings``: a ``StepSettings``; ``env_ids``: the ``StepStore``, which has the environment arrays; ``slots``: the
    bytes of its records, ``(capacity, record)``. The arrays are borrowed while this object lives.
    """

    def __init__(self, settings: Any, env_ids: Any, slots: NDArray[np.uint8]) -> None: ...
    @property
    def oldest(self) -> int:
        """Index of the oldest step in the ring."""

    @property
    def next_index(self) -> int:
        """Index of the next step."""

    @property
    def lost(self) -> _Indices:
        """Stored indices that will never be sampleable again, ascending."""

    def stage_segment(
        self,
        storage: FrameStore,
        env_id: int,
        segment: bytes,
        bits: NDArray[np.uint8],
        actions: Any,
        rewards: Any,
        extras: Any,
    ) -> bool:
        """Check a packed segment of an environment's next frames, with the steps that led to them, and stage both.

        ``bits`` has 4 for a frame that begins an episode, otherwise the bits of its step: 1 terminated, 2 truncated,
        8 the frame begins a run. The other arrays have a row for each step. Returns False, and stages nothing, if the
        steps break a rule. Raises DamagedDataError for other bytes than a segment of ``frames_per_segment`` frames.
        """

    def append_segment(self, storage: FrameStore, stacks: tuple[FrameStacks, ...]) -> int:
        """Append the staged segment, its steps and the environment's stack, as ``append_whole`` appends a step."""

    def evict_for_staged(self) -> list[tuple[int, int, int]]:
        """Evict the oldest steps until the staged one fits; return ``unreferenced_frames``.

        Adds only evictions that free a whole segment, each once.
        """

    def evict_next(self) -> list[tuple[int, int, int]]:
        """Evict the oldest steps until a segment is free, if any can be; return ``unreferenced_frames``."""

    def forget(self, indices: _Indices) -> int:
        """Overwrite the slots of ascending indices with placeholders of lost steps; return how many were sampleable.

        Steps whose returns may include them become unsampleable too.
        """

    def restore_span(self, oldest: int, next_index: int) -> None:
        """Set which indices are in the ring after its slots were restored; none is lost or pending."""

class StepBlocks(_Steps):
    """The steps of ``BlockSteps``, in blocks of one segment of frames.

    A step's index is its block's number times ``segment_frames``, plus its place in the block. ``settings`` and
    ``env_ids``: those of ``StepRing``.
    """

    def __init__(self, settings: Any, env_ids: Any) -> None: ...
    @property
    def staged_exceeds_capacity(self) -> bool:
        """Whether the staged step exceeds the capacity."""

    @property
    def num_sealed(self) -> int:
        """Number of sealed blocks."""

    @property
    def num_steps(self) -> int:
        """Number of stored steps, sampleable or not."""

    @property
    def next_number(self) -> int:
        """Number of the next block."""

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks and their index."""

    def evict_sealed(self, rank: int) -> None:
        """Evict a sealed block by rank, 0 being the oldest, and add its frames to ``unreferenced_frames``.

        Steps of neighbouring blocks that use these frames become unsampleable.
        """

    def sampleable_indices(self) -> _Indices:
        """Return all sampleable indices, ascending."""

    def lost_indices(self) -> _Indices:
        """Return the indices of stored steps that will never be sampleable again, ascending."""

    def blocks(
        self,
    ) -> tuple[_Indices, NDArray[np.int32], _Indices, NDArray[np.int32], NDArray[np.bool_]]:
        """Return of each block, oldest first: number, environment, segment, number of steps, whether it is sealed."""

    def records(self, env_id: int, segment: int) -> bytes:
        """Return the slots of a block; IndexError for one that is not stored."""

    def first_slots(self) -> _Indices:
        """Return the first slot of each block, oldest first."""

    def lose_leading_to(self, env_id: int, position: int) -> int:
        """Make the steps unsampleable whose returns may include the lost step that started at ``position``.

        Returns how many were sampleable.
        """

    def restore_block(
        self, number: int, env_id: int, segment: int, records: NDArray[np.uint8] | None, first_slot: int = -1
    ) -> None:
        """Restore a block, without steps if ``records`` is None, after the environment arrays were restored.

        ``first_slot``: from ``first_slots``; -1 assigns free ones. ValueError for a block out of order.
        """

    def restore_next_number(self, number: int) -> None:
        """Set the number of the next block."""

def shrinks_by_area(picture_shape: tuple[int, int], frame_shape: tuple[int, int]) -> bool:
    """Return whether ``PaletteScreen`` can make frames of that (height, width).

    Neither axis may grow, and at least one must shrink by a factor that is not an integer.
    """

class PaletteScreen:
    """Grey pictures, or frames shrunk by area, of the last one or two raw frames of palette numbers.

    Borrows ``raw_frames``, ``(2, height, width)``, while this object lives; they are written in turn. ``frame_shape``:
    (height, width) of the frames, for which ``shrinks_by_area`` must be true, or None for the grey picture unchanged.
    """

    def __init__(self, raw_frames: NDArray[np.uint8], frame_shape: tuple[int, int] | None) -> None: ...
    def learn(self, grey_of_pair: NDArray[np.uint8], is_known: NDArray[np.bool_]) -> None:
        """Set the grey of the maximum of two palette numbers, ``(256, 256)``, and which of the 256 are known."""

    def take_in(self, which: int) -> bool:
        """Make raw frame ``which``, just written, the newest one; return False if it has an unknown palette number.

        Then call ``learn``, and take the frame in again.
        """

    def write(self, of_two: bool, out: NDArray[np.uint8]) -> None:
        """Write the picture of the newest raw frame, or of the maximum of the last two; ValueError before any."""

def are_priorities(indices: Any, priorities: Any) -> bool:
    """Return whether these are C-ordered arrays of int64 and of finite float32 or float64.

    They must have one axis of equal length.
    """

class Priorities:
    """Priorities of the steps in slots, drawn in proportion to their weights ``(|priority| + epsilon) ** alpha``.

    ValueError unless ``alpha`` and ``epsilon`` are finite and not negative.
    """

    def __init__(self, alpha: float, epsilon: float) -> None: ...
    @property
    def total(self) -> float:
        """Sum of all weights."""

    @property
    def smallest(self) -> float:
        """Smallest weight above zero; infinite if there is none."""

    @property
    def largest(self) -> float:
        """Largest weight so far, at least 1; the weight of a new step."""

    @property
    def nbytes(self) -> int:
        """Bytes of the weights and their sums."""

    def mark_changed(self, slots: NDArray[np.int64], indices: NDArray[np.int64]) -> None:
        """Give each slot the largest weight, or none if its index is -1 (no step)."""

    def update(self, slots: NDArray[np.int64], priorities: NDArray[np.floating[Any]]) -> bool:
        """Set new priorities, float32 or float64 of any sign; rows with a negative slot are ignored.

        The last row of a repeated slot counts. Returns False, without a change, if a weight is not finite.
        """

    def draw(self, random: NDArray[np.float64], beta: float) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Draw one slot from each of ``len(random)`` equal parts of the sum, at the random numbers in [0, 1).

        Returns the slots, and (smallest weight / weight) ** beta of each. ValueError if all weights are zero.
        """

    def weights(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the weights of slots, 0 for a negative slot."""

    def restore(self, slots: NDArray[np.int64], weights: NDArray[np.float32], largest: float) -> None:
        """Restore weights and the largest weight; ValueError for negative or infinite numbers."""
