"""Streams, episodes and slots: what every timeline promises."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.action_spec import ActionSpec
from framestow.replay.columns import NO_EXTRAS, ExtrasSpec, slot_record
from framestow.replay.samplers.sampler import WatchedSlots


@dataclass(frozen=True)
class StepSettings:
    """Settings of a timeline, as ``ReplayMemory`` names them; its native half reads them by these names."""

    capacity: int
    num_streams: int
    stack: int
    frame: FrameSpec
    action: ActionSpec
    discount: float = 0.99
    segment_frames: int = 1
    """Frames that a storage lets go of at once."""
    columns: ExtrasSpec = NO_EXTRAS
    n_step: int = 1
    """Rewards that a transition's return has, unless its episode ends before."""

    @property
    def actions_like(self) -> npt.NDArray[Any]:
        """No actions, in the shape and dtype of those that are kept."""
        return np.empty((0, *self.action.shape), self.action.stored_dtype)

    @property
    def frames_like(self) -> npt.NDArray[Any]:
        """No frames, in the shape and dtype of those that come with a step."""
        return np.empty((0, *self.frame.shape), self.frame.dtype)

    @property
    def action_ranges(self) -> list[tuple[int, int]]:
        """Inclusive bounds of each element of an action, where actions are counted."""
        return self.action.ranges

    @property
    def columns_like(self) -> dict[str, npt.NDArray[Any]]:
        """No values of each extra column, by name, in the order in which they lie in a slot."""
        return self.columns.empty()

    @property
    def record(self) -> np.dtype[Any]:
        """What a slot keeps of a step."""
        return slot_record(self.num_streams, self.action, self.columns)


class StreamArrays:
    """How far each stream has come: arrays with an entry a stream, which Python and the native half both work on."""

    def __init__(self, num_streams: int) -> None:
        self.all_streams = np.arange(num_streams, dtype=np.int32)
        self.newest_positions = np.full(num_streams, -1, np.int64)
        self.episode_starts = np.zeros(num_streams, np.int64)
        self.unreadable_before = np.zeros(num_streams, np.int64)
        self.is_open = np.zeros(num_streams, np.bool_)

    @property
    def num_streams(self) -> int:
        """How many streams feed the memory."""
        return len(self.is_open)


Indices = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]

StepKey = tuple[int, int]  # which block of steps, as stores call it: stream and number
ReadSteps = Callable[[StepKey], "bytes | None"]  # gives a block's bytes, or None where it is missing or damaged
Unneeded = tuple[int, int, int]  # of a stream, the frames from that position up to, not including, that one

MOST_SLOTS_CHECKED = 2**20  # of a ring that may be far larger than what it holds

OF_STREAMS = ("newest_positions", "episode_starts", "is_open", "unreadable_before")  # arrays, one entry a stream
Runs = tuple[  # streams, positions, numbers of steps, are whole, go on, where the episodes begin
    Indices, Indices, Indices, npt.NDArray[np.bool_], npt.NDArray[np.bool_], Indices
]


class Windows(NamedTuple):
    """Where the frames of some transitions lie: what a storage needs to hand them out."""

    streams: npt.NDArray[np.int32]
    last_positions: Indices
    counts: npt.NDArray[np.int32]


Columns = tuple[  # actions, rewards, discounts, terminated, truncated, extra columns by name
    npt.NDArray[Any],
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
    npt.NDArray[np.bool_],
    npt.NDArray[np.bool_],
    dict[str, npt.NDArray[Any]],
]


class Timeline(WatchedSlots, Protocol):
    """Places of the transitions that a memory keeps, and what each carries besides frames.

    A transition's *index* is its own for ever and never comes back: one that is not held names a transition that has
    gone, or that was lost. Frames are numbered within their stream (a *position*). A transition that starts at position
    p has, ``stack`` being the depth of an observation and e the first position of its episode::

        observation        max(e, p - stack + 1) .. p          padded at its beginning
        next observation   max(e, p + m - stack + 1) .. p + m  where p + m may be the episode's last frame

    m is ``n_step``, or what its episode had left where that is fewer: it ended by a flag, or was cut off. So no window
    crosses an episode. Every step is stored together with the frame that it led to. A transition looks at all frames
    from its observation's first to p + m. It may be drawn from when its m steps are there until it leaves, or until a
    frame that it looks at does. Before that, while its episode goes on and m is not settled, it is *pending*: of each
    stream at most ``n_step - 1`` transitions, its newest. What is pending follows from the steps, and is not saved.

    A step is taken in three calls, so that nothing has changed when it is refused: ``stage`` checks it whole,
    ``make_room`` says which frames are needed no more, ``append_staged`` gives it its slots.

    For a store, all steps but the newest come in *sealed blocks*, which never change: it keeps each once, by its key,
    and ``state``, which is small, with every commit.
    """

    all_streams: npt.NDArray[np.int32]
    newest_positions: Indices
    """Of each stream's newest frame; -1 before the first."""
    episode_starts: Indices
    """Of the first frame of each stream's newest episode."""
    is_open: npt.NDArray[np.bool_]
    """Whether each stream's newest episode goes on."""
    unreadable_before: Indices
    """Of each stream, the position below which frames may be lost."""

    @property
    def num_streams(self) -> int:
        """How many streams feed the memory."""

    @property
    def nbytes(self) -> int:
        """Bytes that the steps take."""

    def begin(self, streams: npt.NDArray[np.integer[Any]]) -> bool:
        """Start an episode on each of ``streams``, ending an open one; False, and nothing done, for unknown streams."""

    def stage(
        self,
        streams: Any,
        actions: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        frames: Any,
        columns: Any = None,
    ) -> bool:
        """Check one step of each of ``streams`` (all if None), arrays or lists of numbers, and hold it ready.

        ``columns``: the extra ones, a dict of arrays; None where there are none.
        False if it breaks a rule or comes in another form than is read here; then nothing is held ready.
        """

    def make_room(self) -> list[Unneeded]:
        """Let transitions go, by the retention's rule, until the staged step fits; gives ``unneeded``."""

    def append_staged(self) -> None:
        """Give the staged step its slots."""

    def let_go(self) -> list[Unneeded]:
        """Let the next transitions go, by the retention's rule, so that at least one sealed segment can go.

        Gives ``unneeded``; lets nothing go where there is no such segment.
        """

    @property
    def unneeded(self) -> list[Unneeded]:
        """Triples (stream, first, before) of frames that no transition needs, until ``forget_unneeded`` is called.

        Call that once a storage has evicted them. If Ctrl-C comes before, the next eviction includes them again.
        """

    def forget_unneeded(self) -> None:
        """Empty ``unneeded``."""

    def resolve(
        self, indices: Indices, with_columns: bool = True
    ) -> tuple[tuple[npt.NDArray[np.int32], Indices, npt.NDArray[np.int32]], Columns]:
        """Give the windows of transitions, and what they carry, in new arrays; IndexError for one that is not held.

        Windows: streams, last positions, counts. With ``n_step`` 1 a transition has one of ``stack + 1`` places, of
        which ``counts`` are frames, the last being what the step led to. Otherwise it has two of ``stack``: those of
        all observations come first, then those of all next observations. Counted actions come as int64. Extra columns
        are given unless they are not asked for, and may be large.
        """

    def resolve_steps(
        self, indices: Indices, with_columns: bool = True
    ) -> tuple[tuple[npt.NDArray[np.int32], Indices, npt.NDArray[np.int32]], Columns]:
        """Give what ``resolve`` would with an ``n_step`` of 1: the steps alone; of pending ones too."""

    @property
    def n_step(self) -> int:
        """How many rewards a transition's return has, unless its episode ends before."""

    @property
    def pending(self) -> Indices:
        """The indices of the pending transitions, ascending: of each stream the newest of all that may be drawn."""

    def held_after(self, after: int, count: int) -> Indices:
        """Give up to ``count`` indices above ``after`` of transitions that may be drawn, ascending."""

    def follow(self, indices: Indices, length: int, crosses: bool = False) -> tuple[Indices, npt.NDArray[np.bool_]]:
        """Give the indices ``(B, length)`` of the steps from each of ``indices`` on, and which begin an episode.

        Such a step may be *read*: all that it looks at is here, which is more than that it may be drawn: nothing needs
        to follow on it. Behind the end of the episode, or where a step may not be read, all are -1; ``crosses`` goes on
        into the stream's next episode, but over no step that may not be read.
        """

    def aligned_starts(self, indices: Indices, stride: int, exact: bool = False) -> Indices:
        """Give for each step the one at or before it that is a multiple of ``stride`` behind its episode's beginning.

        Where steps in between may not be read, the first behind those, or -1 if it must be ``exact``.
        """

    def find_steps(self, streams: Indices, positions: Indices) -> Indices:
        """Give the indices of the steps that start at these frames; -1 where there is none that may be read."""

    def places(self, indices: Indices) -> tuple[Indices, Indices]:
        """Give streams and positions of the frames that steps start at; -1 for a step that may not be read."""

    def episode_spans(self, indices: Indices) -> tuple[Indices, Indices, Indices, Indices]:
        """Give streams, positions that steps start at, and of their episodes the first and the newest frame.

        The first frame may have left. IndexError for a step that may not be read.
        """

    def returns_to_go(self, indices: Indices, discount: float) -> npt.NDArray[np.float64]:
        """Give for each step the discounted rewards from it to the end of its episode, or as far as that has come.

        NaN where a step in between may not be read.
        """

    def readable_runs(self) -> Runs:
        """Give the longest runs of steps of one episode that may be read.

        Of each its stream, the position of its first step, how many steps it has, whether that is a whole episode that
        has ended, whether it goes on, and the position where its episode begins (0 where that is not known). Takes a
        time that grows with the number of episodes, or of transitions where some are lost or leave at random.
        """

    def starts(self) -> tuple[Indices, Indices]:
        """Give how many episodes of each stream are known, and where they begin, one stream behind the other."""

    def restore_starts(self, counts: Indices, positions: Indices) -> None:
        """Take over what ``starts`` gave, after all else."""

    def rebuild_starts(self) -> None:
        """Let the steps tell where episodes begin, as far as they do, after all else was restored."""

    def lose(self, stream: int, first: int, before: int) -> int:
        """Take out of the draw what looks at frames ``first`` up to, not including, ``before`` of ``stream``.

        For frames that cannot be read any more. What is appended later and looks back to them is not drawn either.
        Returns how many could be drawn until now.
        """

    def close_episodes(self) -> None:
        """End every open episode as cut off: all its transitions stay, and nothing follows them."""

    def sealed_steps(self) -> list[StepKey]:
        """Give the keys of the blocks of steps that are here whole and change no more."""

    def step_block(self, key: StepKey) -> bytes:
        """Give a sealed block as a store keeps it: slots, one behind the other; IndexError for one that is not here."""

    def state(self, *, stored: Collection[StepKey] | None = None) -> Arrays:
        """Give, as arrays, everything that is in no sealed block.

        ``stored``: the sealed blocks that the store has, where it may lack some; with none of them, all is given.
        """

    def restore(self, arrays: Arrays, read_steps: ReadSteps) -> int:
        """Take over what ``state`` gave, with the blocks sealed then; the timeline was built with the same arguments.

        Of a block that ``read_steps`` does not give (None) exactly its transitions are lost; returns how many.
        Raises ``DamagedDataError`` for arrays that cannot have come from ``state``.
        """

    def check(self) -> None:
        """Raise ``AssertionError`` with the broken rule if the timeline contradicts itself."""


def runs_of(indices: Indices) -> Indices:
    """Runs of consecutive ``indices``, which ascend: the first of each and their number, ``(runs, 2)``.

    >>> runs_of(np.array([3, 4, 5, 9])).tolist()
    [[3, 3], [9, 1]]
    """
    starts = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
    return np.stack([indices[starts], np.diff(starts, append=len(indices))], axis=1)


def steps_in_pieces(timeline: Timeline, most: int) -> Iterator[Indices]:
    """Give the indices of all steps that are there, at most so many at once: held ones in their order, then pending."""
    for start in range(0, len(timeline), most):
        yield timeline.sampleable_at(np.arange(start, min(start + most, len(timeline))))
    pending = timeline.pending
    for start in range(0, len(pending), most):
        yield pending[start : start + most]


def check_windows(timeline: Timeline, stack: int) -> None:
    """Raise ``AssertionError`` unless the windows of all transitions that may be drawn make sense."""
    held = timeline.sampleable_indices()
    if len(held) != len(timeline) or (np.diff(held) <= 0).any():
        raise AssertionError(f"{len(timeline)} transitions may be drawn, but there are {len(held)} indices")
    slots = timeline.slots_of(held)
    if len(np.unique(slots)) != len(held) or (timeline.indices_in(slots) != held).any():
        raise AssertionError("two transitions have one slot, or slots and indices do not agree")
    everywhere = timeline.indices_in(np.arange(min(timeline.num_slots, MOST_SLOTS_CHECKED)))
    if timeline.num_slots <= MOST_SLOTS_CHECKED and (np.sort(everywhere[everywhere >= 0]) != held).any():
        raise AssertionError("a slot has a transition that may not be drawn")
    if not np.array_equal(timeline.sampleable_runs(), runs_of(held)):
        raise AssertionError("runs and indices of what may be drawn do not agree")
    if not timeline.is_sampleable(held).all() or (timeline.sampleable_at(np.arange(len(held))) != held).any():
        raise AssertionError("ranks, indices and what is held do not agree")
    _check_pending(timeline)
    windows = Windows(*timeline.resolve_steps(held, with_columns=False)[0])
    if (windows.last_positions > timeline.newest_positions[windows.streams]).any():
        raise AssertionError("a transition leads to a frame that was never stored")
    if (windows.counts < 2).any() or (windows.counts > stack + 1).any():
        raise AssertionError(f"a window holds {windows.counts.min()} to {windows.counts.max()} frames")
    places = set(zip(windows.streams.tolist(), windows.last_positions.tolist(), strict=True))
    if len(places) != len(held):
        raise AssertionError("two transitions lead to the same frame")


def _check_pending(timeline: Timeline) -> None:
    pending = timeline.pending
    if timeline.is_sampleable(pending).any():
        raise AssertionError("a transition that may be drawn is pending")
    streams, lasts, _ = timeline.resolve_steps(pending, with_columns=False)[0]
    if not timeline.is_open[streams].all():
        raise AssertionError("a transition of an episode that is over is pending")
    if (timeline.newest_positions[streams] - lasts + 1 >= timeline.n_step).any():
        raise AssertionError("a transition that has all its steps is pending")


def check_starts(timeline: Timeline, stack: int) -> None:
    """Raise ``AssertionError`` unless the episodes that are known begin where the steps say."""
    counts, starts = timeline.starts()
    streams = np.repeat(np.arange(timeline.num_streams), counts)
    if (np.diff(starts)[streams[1:] == streams[:-1]] <= 0).any() or (starts < 0).any():
        raise AssertionError("the episodes of a stream do not begin one after the other")
    has_any = timeline.newest_positions >= 0
    lasts = np.cumsum(counts)[has_any] - 1
    if (counts[has_any] < 1).any() or (starts[lasts] != timeline.episode_starts[has_any]).any():
        raise AssertionError("the newest episode of a stream is not among those that are known")
    held = timeline.sampleable_indices()
    begins = timeline.follow(held, 1)[1][:, 0]
    has_no_history = timeline.resolve_steps(held, with_columns=False)[0][2] == 2
    if stack > 1 and (begins != has_no_history).any():
        raise AssertionError("what is known of episodes and what steps look back to do not agree")


OF_TIMELINE, OF_COLUMNS = ("stream", "position", "history"), ("action", "reward", "flags")

OF_EPISODES = "timeline.num_episodes", "timeline.oldest_episodes", "timeline.episode_frames"

Slots = npt.NDArray[Any]  # of slot_record


def _fields(slots: Slots) -> Arrays:
    """Views of the fields of ``slots``, by the names that they are saved under."""
    extra = slots["extras"] if "extras" in (slots.dtype.names or ()) else np.zeros(0, [])
    return (
        {f"timeline.{name}": slots[name] for name in OF_TIMELINE}
        | {f"columns.{name}": slots[name] for name in OF_COLUMNS}
        | {f"extra.{name}": extra[name] for name in extra.dtype.names or ()}
    )


def arrays_of(slots: Slots) -> Arrays:
    """Give the fields of ``slots``, an array each."""
    return _fields(slots)


def slots_of(arrays: Arrays, record: np.dtype[Any], num_streams: int) -> Slots:
    """Give back what ``arrays_of`` was given; ``DamagedDataError`` for fields that do not fit."""
    slots = np.zeros(len(arrays["timeline.stream"]), record)
    for name, kept in _fields(slots).items():
        if arrays[name].shape != kept.shape:
            raise DamagedDataError(
                f"{name} has shape {arrays[name].shape}: {kept.shape} is what these slots take; take an older save"
            )
        kept[...] = arrays[name]
    if (arrays["timeline.stream"] >= num_streams).any():
        raise DamagedDataError(
            f"a slot is of stream {arrays['timeline.stream'].max()}: there are {num_streams} streams; "
            "take an older save"
        )
    return slots


def slots_in(block: bytes | None, record: np.dtype[Any], num_slots: int, num_streams: int) -> Slots | None:
    """Give the slots of a sealed block; ``None`` for one that is missing, or that no timeline wrote."""
    if block is None or len(block) != num_slots * record.itemsize:
        return None
    slots = np.frombuffer(block, record)
    return None if (slots["stream"] >= num_streams).any() else slots


def streams_state(timeline: Timeline) -> Arrays:
    """Give a copy of the arrays that have one entry a stream."""
    return {f"timeline.{name}": getattr(timeline, name).copy() for name in OF_STREAMS}


def restore_streams(timeline: Timeline, arrays: Arrays) -> None:
    """Take over what ``streams_state`` gave; ``DamagedDataError`` for other streams."""
    saved = {name: arrays[f"timeline.{name}"] for name in OF_STREAMS if f"timeline.{name}" in arrays}
    for name, values in saved.items():
        if values.shape != (timeline.num_streams,):
            raise DamagedDataError(
                f"timeline.{name} has shape {values.shape}: this memory has {timeline.num_streams} streams; "
                "take an older save"
            )
    for name, values in saved.items():
        getattr(timeline, name)[:] = values


def starts_state(timeline: Timeline) -> Arrays:
    """Give where the episodes begin that steps are held of, as three arrays.

    ===========================  =======================================================================
    timeline.num_episodes        of each stream
    timeline.oldest_episodes     where the first of each stream that has any begins
    timeline.episode_frames      how much further each begins than the one before it, 0 for those first ones
    ===========================  =======================================================================
    """
    counts, starts = timeline.starts()
    oldest = (np.cumsum(counts) - counts)[counts > 0]
    num_frames = np.diff(starts, prepend=0)
    num_frames[oldest] = 0
    narrowest = np.min_scalar_type(num_frames.max(initial=0))  # most episodes are short: a byte or two each
    return dict(zip(OF_EPISODES, (counts, starts[oldest], num_frames.astype(narrowest)), strict=True))


def restore_starts(timeline: Timeline, arrays: Arrays) -> None:
    """Take over what ``starts_state`` gave, after all else; where nobody did, the steps tell what they can.

    Raises ``DamagedDataError`` for what cannot have come from there.
    """
    if OF_EPISODES[0] not in arrays:  # a store that was written before there were sequences, or rebuilt
        timeline.rebuild_starts()
        return
    counts, oldest, num_frames = (arrays[name].astype(np.int64) for name in OF_EPISODES)
    fits = counts.shape == (timeline.num_streams,) and (counts >= 0).all() and len(num_frames) == counts.sum()
    if not fits or len(oldest) != (counts > 0).sum():
        raise DamagedDataError(
            f"{OF_EPISODES[2]} has {len(num_frames)} entries and {OF_EPISODES[1]} {len(oldest)}: {counts.tolist()} "
            f"episodes of {timeline.num_streams} streams take others; take an older save"
        )
    firsts = (np.cumsum(counts) - counts)[counts > 0]
    behind = np.cumsum(num_frames)
    starts = behind + np.repeat(oldest - behind[firsts], counts[counts > 0])
    newest = np.repeat(timeline.episode_starts, counts)
    if len(starts) and (starts.min() < 0 or (starts > newest).any() or (np.delete(num_frames, firsts) < 1).any()):
        raise DamagedDataError(
            f"episodes begin at {starts.min()} to {starts.max()}: none begins twice, or behind the newest of its "
            "stream; take an older save"
        )
    timeline.restore_starts(counts, starts)
