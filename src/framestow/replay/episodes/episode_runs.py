"""Where the episodes that a memory holds lie and what they returned: a record each, told from the steps alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.replay.timelines.timeline import Indices, Timeline, steps_in_pieces

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
        runs = _joined(runs[np.lexsort((runs["first"], runs["stream"]))])
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


def _joined(runs: npt.NDArray[Any]) -> npt.NDArray[Any]:
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
