"""The stored steps, episode by episode, for exports and reports."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import NothingToSampleError
from framestow.frames.observation_spec import AnySpec, each_leaf
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.timelines.timeline import Columns, Indices, Timeline, steps_in_pieces
from framestow.storage.frame_storage import FrameStorage

STEPS_PER_PIECE = 1 << 18  # looked at together, some 40 bytes each: memory stays small beside millions of steps

RUN = np.dtype(
    [
        ("stream", np.int32),
        ("first", np.int64),  # position that its first step starts at
        ("length", np.int64),  # steps
        ("history", np.int32),  # frames of the first observation before its newest one
        ("total_reward", np.float64),
        ("terminated", np.bool_),  # of its last step, as the next one
        ("truncated", np.bool_),
        ("has_beginning", np.bool_),  # its first step is the episode's first
        ("is_open", np.bool_),  # its last step is its stream's newest, and the episode goes on
    ]
)


@dataclass(frozen=True)
class EpisodeRuns:
    """Runs of steps that follow on one another, each an episode or what is held of one, ordered by stream and position.

    ================  ==================  ============================================================
    run               ``is_whole``        told by
    ================  ==================  ============================================================
    whole             yes                 its first step is here, and a step with a flag ends it
    cut off           no                  its last step has no flag: a reset came in between, or a hole
    beginning gone    no                  the steps before it have left the memory
    open              no                  it goes on
    ================  ==================  ============================================================

    ``runs`` is an array of ``RUN``. With a stack of one frame a step does not say whether it is an episode's first;
    then a run has its beginning where its stream begins, or where exactly one position, the last frame of the
    episode before, lies between it and the run before it.
    """

    runs: npt.NDArray[Any]

    @classmethod
    def of(cls, timeline: Timeline, stack: int) -> EpisodeRuns:
        """Walk over every step that is there, in pieces of bounded size; ``stack``: frames an observation."""
        pieces = [_runs_of_piece(timeline, indices) for indices in steps_in_pieces(timeline, STEPS_PER_PIECE)]
        runs = np.concatenate([np.empty(0, RUN), *pieces])
        runs = _joined_runs(runs[np.lexsort((runs["first"], runs["stream"]))])
        _tell_beginnings(runs, stack)
        streams = runs["stream"]
        is_newest = runs["first"] + runs["length"] == timeline.newest_positions[streams]
        runs["is_open"] = is_newest & timeline.is_open[streams]
        return cls(runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.runs)

    @property
    def is_whole(self) -> npt.NDArray[np.bool_]:
        """Which runs are whole episodes."""
        is_whole: npt.NDArray[np.bool_] = self.runs["has_beginning"] & (
            self.runs["terminated"] | self.runs["truncated"]
        )
        return is_whole

    @property
    def num_frames(self) -> npt.NDArray[np.int64]:
        """Frames that the transitions of each run show."""
        num_frames: npt.NDArray[np.int64] = self.runs["length"] + 1 + self.runs["history"]
        return num_frames

    def of_streams(self, streams: npt.ArrayLike) -> EpisodeRuns:
        """Only the runs of these streams."""
        return EpisodeRuns(self.runs[np.isin(self.runs["stream"], streams)])


def _runs_of_piece(timeline: Timeline, indices: Indices) -> npt.NDArray[Any]:
    """Runs within some steps, ``has_beginning`` not told yet."""
    windows, (_, rewards, _, terminated, truncated, _) = timeline.resolve_steps(indices, with_columns=False)
    streams, last_positions, counts = windows
    order = np.lexsort((last_positions, streams))
    streams, positions = streams[order], last_positions[order] - 1  # a window ends in the frame that its step led to
    follows = (streams[1:] == streams[:-1]) & (positions[1:] == positions[:-1] + 1)
    firsts = np.flatnonzero(np.concatenate([[True], ~follows]))
    lasts = np.concatenate([firsts[1:], [len(streams)]]) - 1
    runs = np.zeros(len(firsts), RUN)
    runs["stream"], runs["first"], runs["length"] = streams[firsts], positions[firsts], lasts - firsts + 1
    runs["history"] = counts[order][firsts] - 2  # without the newest frame, and the one that the step led to
    runs["total_reward"] = np.add.reduceat(rewards[order], firsts, dtype=np.float64)
    runs["terminated"], runs["truncated"] = terminated[order][lasts], truncated[order][lasts]
    return runs


def _joined_runs(runs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Join the runs that a border between two pieces divided."""
    follows = (runs["stream"][1:] == runs["stream"][:-1]) & (_ends(runs)[:-1] == runs["first"][1:])
    firsts = np.flatnonzero(np.concatenate([[True], ~follows])[: len(runs)])
    lasts = np.concatenate([firsts[1:], [len(runs)]])[: len(firsts)] - 1
    joined = runs[firsts]
    if len(joined):
        for name in ("length", "total_reward"):
            joined[name] = np.add.reduceat(runs[name], firsts)
        for name in ("terminated", "truncated"):
            joined[name] = runs[name][lasts]
    return joined


def _tell_beginnings(runs: npt.NDArray[Any], stack: int) -> None:
    if stack > 1:
        runs["has_beginning"] = runs["history"] == 0
        return
    runs["has_beginning"] = runs["first"] == 0
    follows_an_end = (runs["stream"][1:] == runs["stream"][:-1]) & (_ends(runs)[:-1] + 1 == runs["first"][1:])
    runs["has_beginning"][1:] |= follows_an_end


def _ends(runs: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Position of the frame that each run's last step led to."""
    ends: npt.NDArray[np.int64] = runs["first"] + runs["length"]
    return ends


TRANSITIONS_AT_ONCE = 1 << 16  # looked up together
FRAMES_AT_ONCE = 256  # unpacked together


@dataclass(frozen=True)
class HeldEpisode:
    """Consecutive transitions of one episode of a stream, and the frames that they lead through.

    Frames are numbered from the first transition's own, 0, to ``len(self)``, what the last transition led to. Where
    the memory has let go of an episode's beginning, ``history`` frames from before are still there as -history .. -1,
    ``stack - 1`` of them at most: those that the first observation shows.

    ======================  ====================  ===========================================================
    field                   shape                 meaning
    ======================  ====================  ===========================================================
    env_id                                        number of the environment
    indices                 ``(T,)``              of the transitions, as ``Batch.index`` gives them
    actions                 ``(T, *action)``      int64 (of a Box: its own dtype)
    rewards                 ``(T,)``              float32
    terminated, truncated   ``(T,)``              bool; only the last can be true
    has_beginning                                 whether frame 0 is what the episode's reset returned
    history                                       how many frames from before frame 0 are known
    extras                  ``(T, *shape)``       of each extra field, by name
    ======================  ====================  ===========================================================
    """

    env_id: int
    indices: Indices
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    has_beginning: bool
    history: int
    extras: dict[str, npt.NDArray[Any]]
    _storage: FrameStorage
    _first_position: int
    _spec: AnySpec

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def has_end(self) -> bool:
        """Whether it terminated or was truncated; otherwise it still goes on, or was cut off by the next reset."""
        return bool(self.terminated[-1] or self.truncated[-1])

    def frames(self, first: int = 0, before: int | None = None) -> Any:
        """Give the frames ``first`` up to but not including ``before`` (all to the last one by default), a fresh array.

        Of a Dict or Tuple, one such array for each key or part.
        Raises ``IndexError`` for frames that are not of this episode, or that the memory has let go of since.
        """
        stop = len(self) + 1 if before is None else before
        if not -self.history <= first <= stop <= len(self) + 1:
            raise IndexError(
                f"frames {first} to {stop} of an episode of {len(self)} transitions: there are {-self.history} to "
                f"{len(self)}; ask for those"
            )
        frames = self._spec.empty(1, stop - first)
        for start in range(0, stop - first, FRAMES_AT_ONCE):
            count = min(FRAMES_AT_ONCE, stop - first - start)
            piece = each_leaf(lambda part: part[:, start : start + count], frames)  # noqa: B023 - called at once
            last = np.array([self._first_position + first + start + count - 1])
            self._storage.windows(np.array([self.env_id], np.int32), last, np.array([count], np.int32), piece)
        return self._spec.rebuilt(each_leaf(lambda part: part[0], frames))


class _Run(NamedTuple):
    """Transitions of one stream as the timeline gives them; ``last`` are the positions that they lead to."""

    indices: Indices
    last: Indices
    counts: npt.NDArray[np.int32]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]

    def part(self, chosen: slice | Indices) -> _Run:
        """Give those that ``chosen`` picks."""
        return _Run._make(column[chosen] for column in self)

    @classmethod
    def of_parts(cls, parts: list[_Run]) -> _Run:
        """Put ``parts`` behind one another."""
        return cls._make(np.concatenate(columns) for columns in zip(*parts, strict=True))


def held_episodes(parts: MemoryParts) -> Iterator[HeldEpisode]:
    """Give the episodes of a memory, stream by stream, the oldest first; cut where transitions between have left.

    Frames are read when they are asked for, and of the rest no more is in RAM than the longest episode. Raises
    ``NothingToSampleError`` if the memory lets transitions go while this goes through them.
    """
    for stream in range(parts.settings.num_envs):
        before = None
        for run in _joined(_runs(parts, stream)):
            yield _episode(parts, stream, run, before)
            before = run


def _episode(parts: MemoryParts, stream: int, run: _Run, before: _Run | None) -> HeldEpisode:
    first_position, history = int(run.last[0]) - 1, int(run.counts[0]) - 2
    follows_an_end = before is not None and before.last[-1] == first_position - 1
    is_younger_than_stack = history < parts.settings.stack - 1
    return HeldEpisode(
        env_id=stream,
        indices=run.indices,
        actions=run.actions,
        rewards=run.rewards,
        terminated=run.terminated,
        truncated=run.truncated,
        has_beginning=history == 0 and (is_younger_than_stack or follows_an_end or first_position == 0),
        history=history,
        extras=_columns_of(parts, run.indices) if parts.settings.extras else {},
        _storage=parts.storage,
        _first_position=first_position,
        _spec=parts.settings.frame,
    )


def _columns_of(parts: MemoryParts, indices: Indices) -> dict[str, npt.NDArray[Any]]:
    """Read the extra columns of one episode; they may be large, so those of no other are looked at."""
    with parts.lock:
        return _looked_up(parts, indices, with_columns=True)[1][-1]


def _has_left(before: int) -> NothingToSampleError:
    return NothingToSampleError(
        f"a transition before {before} has left while the episodes were gone through: nothing may be appended to a "
        "full memory meanwhile; pause what feeds it"
    )


def _joined(runs: Iterator[_Run]) -> Iterator[_Run]:
    """Put together what belongs to one episode: each transition leads to the frame after the last one's."""
    open_parts: list[_Run] = []
    for run in runs:
        breaks = np.flatnonzero(np.diff(run.last) != 1) + 1
        borders = [0, *breaks.tolist(), len(run.last)]
        for start, stop in itertools.pairwise(borders):
            part = run.part(slice(start, stop))
            if open_parts and part.last[0] != open_parts[-1].last[-1] + 1:
                yield _Run.of_parts(open_parts)
                open_parts = []
            open_parts.append(part)
    if open_parts:
        yield _Run.of_parts(open_parts)


def _runs(parts: MemoryParts, stream: int) -> Iterator[_Run]:
    """Give the steps of ``stream``, the oldest first, some tens of thousands at once; pending ones are its newest."""
    with parts.lock:
        num_held, pending, last_seen = len(parts.timeline), parts.timeline.pending, np.zeros(0, np.int64)
    for start in range(0, num_held, TRANSITIONS_AT_ONCE):
        with parts.lock:
            # By ranks and not by all indices, of which fifty million would take 400 MB.
            if start and not np.array_equal(parts.timeline.sampleable_at(np.array([start - 1])), last_seen):
                raise _has_left(before=int(last_seen[0]))
            stop = min(start + TRANSITIONS_AT_ONCE, num_held, len(parts.timeline))
            indices = parts.timeline.sampleable_at(np.arange(start, stop))
            run = _steps_of(parts, indices, stream)
        last_seen = indices[-1:]
        if len(run.indices):
            yield run
    with parts.lock:
        run = _steps_of(parts, pending, stream)
    if len(run.indices):
        yield run


def _steps_of(parts: MemoryParts, indices: Indices, stream: int) -> _Run:
    """Look up those of the steps that are of ``stream``."""
    windows, (actions, rewards, _, terminated, truncated, _) = _looked_up(parts, indices, with_columns=False)
    streams, last, counts = windows
    return _Run(indices, last, counts, actions, rewards, terminated, truncated).part(np.flatnonzero(streams == stream))


def _looked_up(parts: MemoryParts, indices: Indices, with_columns: bool) -> tuple[Any, Columns]:
    try:
        return parts.timeline.resolve_steps(indices, with_columns)
    except IndexError:
        missing = np.setdiff1d(indices[~parts.timeline.is_sampleable(indices)], parts.timeline.pending)
        raise _has_left(before=int(missing[0]) + 1) from None
