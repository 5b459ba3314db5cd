"""Define ``Timeline``, the interface of the stored steps, and what its implementations share.

A timeline knows actions, rewards, flags and the positions of frames; the storage has the frames themselves. Below the
class follow invariant checks for tests, and the conversion of slots, streams and episode starts to saved arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.action_spec import ActionSpec
from framestow.replay.step_fields import NO_EXTRAS, ExtrasSpec, slot_record

if TYPE_CHECKING:
    from framestow._core._native import _Steps  # describes the methods of the native classes
else:
    _Steps = object  # implementations derive from StepRing or StepBlocks first


@dataclass(frozen=True)
class StepSettings:
    """Settings of a timeline; the native classes read these attributes by name."""

    capacity: int
    num_streams: int
    stack: int
    frame: FrameSpec
    action: ActionSpec
    discount: float = 0.99
    segment_frames: int = 1
    """Frames that the storage evicts at a time."""
    extras: ExtrasSpec = NO_EXTRAS
    n_step: int = 1
    """Number of rewards in a transition's return, unless its episode ends before."""

    @property
    def actions_like(self) -> npt.NDArray[Any]:
        """An empty array with the shape and dtype of stored actions."""
        return np.empty((0, *self.action.shape), self.action.stored_dtype)

    @property
    def frames_like(self) -> npt.NDArray[Any]:
        """An empty array with the shape and dtype of a step's frames."""
        return np.empty((0, *self.frame.shape), self.frame.dtype)

    @property
    def action_ranges(self) -> list[tuple[int, int]]:
        """Inclusive bounds of each element of an integer action."""
        return self.action.ranges

    @property
    def extras_like(self) -> dict[str, npt.NDArray[Any]]:
        """An empty array for each extra, by name, in the order of their bytes in a slot."""
        return self.extras.empty()

    @property
    def record(self) -> np.dtype[Any]:
        """Structured dtype of one slot."""
        return slot_record(self.num_streams, self.action, self.extras)


Indices = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]

StepKey = tuple[int, int]  # identifies a block of steps in a store: stream and number
ReadSteps = Callable[[StepKey], "bytes | None"]  # returns a block's bytes, or None if it is missing or damaged
FrameRange = tuple[int, int, int]  # stream, first position, position after the last

MOST_SLOTS_CHECKED = 2**20  # larger timelines are not checked slot by slot

STREAM_FIELDS = ("newest_positions", "episode_starts", "is_open", "unreadable_before")  # one entry per stream


class Windows(NamedTuple):
    """Positions of the frames of some transitions, as ``FrameStorage.windows`` takes them."""

    streams: npt.NDArray[np.int32]
    last_positions: Indices
    counts: npt.NDArray[np.int32]


StepFields = tuple[  # actions, rewards, discounts, terminated, truncated, extras by name
    npt.NDArray[Any],
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
    npt.NDArray[np.bool_],
    npt.NDArray[np.bool_],
    dict[str, npt.NDArray[Any]],
]


class Timeline(_Steps):
    """The stored steps of all streams: actions, rewards, flags, extras, and the positions of their frames.

    Every transition has an *index* that is never reused. Every frame has a *position*: its number within its stream.
    Let e be the first position of an episode, and ``stack`` the number of frames per observation. A transition that
    starts at position p has the frames::

        observation        max(e, p - stack + 1) .. p          padded at the beginning of an episode
        next observation   max(e, p + m - stack + 1) .. p + m  p + m may be the episode's last frame

    m is ``n_step``, or fewer if the episode ends or is cut off before. So no window crosses an episode. A transition
    *references* all frames from its observation's first to p + m.

    - *Sampleable*: its m steps and all frames that it references are stored.
    - *Pending*: its episode is open and has fewer than ``n_step`` steps after p. Each stream has at most ``n_step - 1``
      pending transitions, its newest. They follow from the steps and are not saved.
    - *Lost*: a frame that it references is damaged or evicted. It is not sampled, but still counts as a step.
    - *Readable*, of a step: all frames of its one-step transition are stored. A pending step can be readable.

    Appending takes three calls, so that a refused step changes nothing: ``stage`` checks the step, ``evict_for_staged``
    evicts until it fits, and ``append_staged`` stores it.

    A store saves all steps but the newest in *sealed blocks*. These never change, so each is written once, by its key.
    ``state`` returns the rest, which is small and is written with every commit.
    """

    def __init__(self, num_streams: int) -> None:
        # Arrays with one entry per stream, which Python and native code share.
        self.all_streams = np.arange(num_streams, dtype=np.int32)
        self.newest_positions = np.full(num_streams, -1, np.int64)
        """Position of each stream's newest frame; -1 before the first."""
        self.episode_starts = np.zeros(num_streams, np.int64)
        """Position of the first frame of each stream's newest episode."""
        self.is_open = np.zeros(num_streams, np.bool_)
        """Whether each stream's newest episode is open."""
        self.unreadable_before = np.zeros(num_streams, np.int64)
        """Position of each stream below which frames may be lost."""

    @property
    def num_streams(self) -> int:
        """Number of streams."""
        return len(self.is_open)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the steps."""

    @abstractmethod
    def evict_for_staged(self) -> list[FrameRange]:
        """Evict transitions, as the retention says, until the staged step fits; return ``unreferenced_frames``."""

    @abstractmethod
    def evict_next(self) -> list[FrameRange]:
        """Evict transitions, as the retention says, until at least one sealed segment is unreferenced.

        Returns ``unreferenced_frames``. Evicts nothing if no segment can become unreferenced.
        """

    @abstractmethod
    def sampleable_indices(self) -> Indices:
        """Return all sampleable indices, ascending."""

    @abstractmethod
    def sampleable_runs(self) -> Indices:
        """Return all sampleable indices as runs of consecutive ones, ascending: first index and length of each."""

    @abstractmethod
    def sealed_steps(self) -> list[StepKey]:
        """Return the keys of all sealed blocks."""

    @abstractmethod
    def step_block(self, key: StepKey) -> bytes:
        """Return the slots of a sealed block as bytes; raise ``IndexError`` for a block that is not sealed."""

    @abstractmethod
    def state(self, *, stored: Collection[StepKey] | None = None) -> Arrays:
        """Return, as arrays, everything that is in no sealed block.

        ``stored``: keys of the sealed blocks that the store has. If it lacks some, their steps are included.
        """

    @abstractmethod
    def restore(self, arrays: Arrays, read_steps: ReadSteps) -> int:
        """Restore what ``state`` returned and the blocks sealed then, into a new timeline of the same settings.

        The transitions of a block that ``read_steps`` cannot return (None) are lost; returns their number. Raises
        ``DamagedDataError`` for arrays that ``state`` cannot have returned.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise ``AssertionError`` with the broken rule if the timeline contradicts itself."""


def runs_of(indices: Indices) -> Indices:
    """Return the runs of consecutive numbers in ascending ``indices``: first number and length, ``(runs, 2)``.

    >>> runs_of(np.array([3, 4, 5, 9])).tolist()
    [[3, 3], [9, 1]]
    """
    starts = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
    return np.stack([indices[starts], np.diff(starts, append=len(indices))], axis=1)


def steps_in_pieces(timeline: Timeline, most: int) -> Iterator[Indices]:
    """Yield the indices of all stored steps, ``most`` at a time: sampleable ones first, then pending ones."""
    for start in range(0, len(timeline), most):
        yield timeline.sampleable_at(np.arange(start, min(start + most, len(timeline))))
    pending = timeline.pending
    for start in range(0, len(pending), most):
        yield pending[start : start + most]


def check_windows(timeline: Timeline, stack: int) -> None:
    """Raise ``AssertionError`` if indices, slots or windows of the sampleable transitions contradict each other."""
    sampleable = timeline.sampleable_indices()
    if len(sampleable) != len(timeline) or (np.diff(sampleable) <= 0).any():
        raise AssertionError(f"{len(timeline)} transitions are sampleable, but there are {len(sampleable)} indices")
    slots = timeline.slots_of(sampleable)
    if len(np.unique(slots)) != len(sampleable) or (timeline.indices_in(slots) != sampleable).any():
        raise AssertionError("two transitions share a slot, or slots and indices do not agree")
    everywhere = timeline.indices_in(np.arange(min(timeline.num_slots, MOST_SLOTS_CHECKED)))
    if timeline.num_slots <= MOST_SLOTS_CHECKED and (np.sort(everywhere[everywhere >= 0]) != sampleable).any():
        raise AssertionError("a slot has a transition that is not sampleable")
    if not np.array_equal(timeline.sampleable_runs(), runs_of(sampleable)):
        raise AssertionError("runs and indices of the sampleable transitions do not agree")
    if (
        not timeline.is_sampleable(sampleable).all()
        or (timeline.sampleable_at(np.arange(len(sampleable))) != sampleable).any()
    ):
        raise AssertionError("ranks and indices of the sampleable transitions do not agree")
    _check_pending(timeline)
    windows = Windows(*timeline.resolve_steps(sampleable, with_extras=False)[0])
    if (windows.last_positions > timeline.newest_positions[windows.streams]).any():
        raise AssertionError("a transition references a frame that was never stored")
    if (windows.counts < 2).any() or (windows.counts > stack + 1).any():
        raise AssertionError(f"a window holds {windows.counts.min()} to {windows.counts.max()} frames")
    places = set(zip(windows.streams.tolist(), windows.last_positions.tolist(), strict=True))
    if len(places) != len(sampleable):
        raise AssertionError("two transitions have the same next frame")


def _check_pending(timeline: Timeline) -> None:
    pending = timeline.pending
    if timeline.is_sampleable(pending).any():
        raise AssertionError("a sampleable transition is pending")
    streams, lasts, _ = timeline.resolve_steps(pending, with_extras=False)[0]
    if not timeline.is_open[streams].all():
        raise AssertionError("a transition of an ended episode is pending")
    if (timeline.newest_positions[streams] - lasts + 1 >= timeline.n_step).any():
        raise AssertionError("a transition with all its steps is pending")


def check_starts(timeline: Timeline, stack: int) -> None:
    """Raise ``AssertionError`` if the known episode starts contradict the steps."""
    counts, starts = timeline.starts()
    streams = np.repeat(np.arange(timeline.num_streams), counts)
    if (np.diff(starts)[streams[1:] == streams[:-1]] <= 0).any() or (starts < 0).any():
        raise AssertionError("the episode starts of a stream are not ascending")
    has_any = timeline.newest_positions >= 0
    lasts = np.cumsum(counts)[has_any] - 1
    if (counts[has_any] < 1).any() or (starts[lasts] != timeline.episode_starts[has_any]).any():
        raise AssertionError("the newest episode of a stream is unknown")
    sampleable = timeline.sampleable_indices()
    begins = timeline.follow(sampleable, 1)[1][:, 0]
    has_no_history = timeline.resolve_steps(sampleable, with_extras=False)[0][2] == 2
    if stack > 1 and (begins != has_no_history).any():
        raise AssertionError("the known episode starts and the histories of the steps do not agree")


TIMELINE_KEYS, COLUMN_KEYS = ("stream", "position", "history"), ("action", "reward", "flags")  # by prefix in a store
EPISODE_KEYS = "timeline.num_episodes", "timeline.oldest_episodes", "timeline.episode_frames"

Slots = npt.NDArray[Any]  # of dtype slot_record


def slots_to_arrays(slots: Slots) -> Arrays:
    """Return views of the fields of ``slots``, by the names that a store saves them under."""
    extras = slots["extras"] if "extras" in (slots.dtype.names or ()) else np.zeros(0, [])
    return (
        {f"timeline.{name}": slots[name] for name in TIMELINE_KEYS}
        | {f"columns.{name}": slots[name] for name in COLUMN_KEYS}
        | {f"extra.{name}": extras[name] for name in extras.dtype.names or ()}
    )


def slots_from_arrays(arrays: Arrays, record: np.dtype[Any], num_streams: int) -> Slots:
    """Return the slots that ``slots_to_arrays`` was called with; ``DamagedDataError`` for arrays that do not fit."""
    slots = np.zeros(len(arrays["timeline.stream"]), record)
    for name, field in slots_to_arrays(slots).items():
        if arrays[name].shape != field.shape:
            raise DamagedDataError(
                f"{name} has shape {arrays[name].shape}: these slots need {field.shape}; load an older save"
            )
        field[...] = arrays[name]
    if (arrays["timeline.stream"] >= num_streams).any():
        raise DamagedDataError(
            f"a slot has stream {arrays['timeline.stream'].max()}: the memory has {num_streams} streams; "
            "load an older save"
        )
    return slots


def slots_from_block(block: bytes | None, record: np.dtype[Any], num_slots: int, num_streams: int) -> Slots | None:
    """Return the slots of a sealed block; ``None`` for a missing or impossible block."""
    if block is None or len(block) != num_slots * record.itemsize:
        return None
    slots = np.frombuffer(block, record)
    return None if (slots["stream"] >= num_streams).any() else slots


def streams_state(timeline: Timeline) -> Arrays:
    """Return copies of the arrays with one entry per stream."""
    return {f"timeline.{name}": getattr(timeline, name).copy() for name in STREAM_FIELDS}


def restore_streams(timeline: Timeline, arrays: Arrays) -> None:
    """Set what ``streams_state`` returned; ``DamagedDataError`` for another number of streams."""
    saved = {name: arrays[f"timeline.{name}"] for name in STREAM_FIELDS if f"timeline.{name}" in arrays}
    for name, values in saved.items():
        if values.shape != (timeline.num_streams,):
            raise DamagedDataError(
                f"timeline.{name} has shape {values.shape}: this memory has {timeline.num_streams} streams; "
                "load an older save"
            )
    for name, values in saved.items():
        getattr(timeline, name)[:] = values


def starts_state(timeline: Timeline) -> Arrays:
    """Return the starts of all known episodes, as three arrays.

    ===========================  ===================================================================
    timeline.num_episodes        number of episodes per stream
    timeline.oldest_episodes     start of the oldest episode, for each stream with episodes
    timeline.episode_frames      distance of each start from the previous one; 0 for the oldest
    ===========================  ===================================================================
    """
    counts, starts = timeline.starts()
    oldest = (np.cumsum(counts) - counts)[counts > 0]
    num_frames = np.diff(starts, prepend=0)
    num_frames[oldest] = 0
    narrowest = np.min_scalar_type(num_frames.max(initial=0))  # a byte or two for most episodes
    return dict(zip(EPISODE_KEYS, (counts, starts[oldest], num_frames.astype(narrowest)), strict=True))


def restore_starts(timeline: Timeline, arrays: Arrays) -> None:
    """Set what ``starts_state`` returned, after everything else is restored; without it, derive it from the steps.

    Raises ``DamagedDataError`` for arrays that ``starts_state`` cannot have returned.
    """
    if EPISODE_KEYS[0] not in arrays:  # an old or a repaired store
        timeline.rebuild_starts()
        return
    counts, oldest, num_frames = (arrays[name].astype(np.int64) for name in EPISODE_KEYS)
    fits = counts.shape == (timeline.num_streams,) and (counts >= 0).all() and len(num_frames) == counts.sum()
    if not fits or len(oldest) != (counts > 0).sum():
        raise DamagedDataError(
            f"{EPISODE_KEYS[2]} has {len(num_frames)} entries and {EPISODE_KEYS[1]} {len(oldest)}: {counts.tolist()} "
            f"episodes of {timeline.num_streams} streams need other numbers; load an older save"
        )
    firsts = (np.cumsum(counts) - counts)[counts > 0]
    behind = np.cumsum(num_frames)
    starts = behind + np.repeat(oldest - behind[firsts], counts[counts > 0])
    newest = np.repeat(timeline.episode_starts, counts)
    if len(starts) and (starts.min() < 0 or (starts > newest).any() or (np.delete(num_frames, firsts) < 1).any()):
        raise DamagedDataError(
            f"episodes begin at {starts.min()} to {starts.max()}: each must begin after the previous one of its "
            "stream, and not after the newest; load an older save"
        )
    timeline.restore_starts(counts, starts)
