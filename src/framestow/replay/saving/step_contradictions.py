"""Whether the steps of a memory fit one another and the frames that are there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from framestow.replay.episodes.episode_runs import STEPS_PER_PIECE, EpisodeRuns
from framestow.replay.timelines.timeline import Timeline, steps_in_pieces

Numbers = npt.NDArray[np.int64]


class HeldFrames:
    """Which frames there are: whole segments by number, and of each stream an open one's frames behind them.

    ``sealed``, ``next_positions`` and ``has_open`` have an entry a stream of frames: ``num_streams`` for each leaf.
    """

    def __init__(
        self,
        frames_per_segment: int,
        sealed: list[Numbers],
        next_positions: Numbers,
        has_open: npt.NDArray[np.bool_],
        num_streams: int,
    ) -> None:
        self.frames_per_segment, self._num_streams = frames_per_segment, num_streams
        self._next_positions = next_positions
        open_numbers = next_positions // frames_per_segment
        self._numbers = [
            np.append(numbers, open_number) if is_open else numbers
            for numbers, open_number, is_open in zip(sealed, open_numbers.tolist(), has_open.tolist(), strict=True)
        ]

    def holds(self, stream: int, firsts: Numbers, lasts: Numbers) -> npt.NDArray[np.bool_]:
        """Which of the spans of frames ``firsts`` to ``lasts``, both included, are there from end to end.

        Of every leaf of ``stream``.
        """
        first_numbers, last_numbers = firsts // self.frames_per_segment, lasts // self.frames_per_segment
        has_all: npt.NDArray[np.bool_] = firsts >= 0
        for leaf in range(stream, len(self._numbers), self._num_streams):
            numbers = self._numbers[leaf]
            found = np.searchsorted(numbers, last_numbers, "right") - np.searchsorted(numbers, first_numbers, "left")
            has_all = has_all & (lasts < self._next_positions[leaf]) & (found == last_numbers - first_numbers + 1)
        return has_all


def contradictions(timeline: Timeline, held: HeldFrames, stack: int) -> Iterator[str]:
    """Tell what of the steps cannot be, if anything: pairs that follow on one another, then windows without frames."""
    yield from _broken_courses(timeline, stack)
    runs = EpisodeRuns.of(timeline, stack).runs
    for stream in range(timeline.num_streams):
        mine = runs[runs["stream"] == stream]
        firsts, lasts = mine["first"] - mine["history"], mine["first"] + mine["length"]
        for run in np.flatnonzero(~held.holds(stream, firsts, lasts)):
            yield f"stream {stream}: transitions show frames {firsts[run]} to {lasts[run]}, of which some are not there"


def _broken_courses(timeline: Timeline, stack: int) -> Iterator[str]:
    """Within each stream: positions ascend, nothing follows an end, and histories grow by a frame a step."""
    carried = np.empty((4, 0), np.int64)
    for indices in steps_in_pieces(timeline, STEPS_PER_PIECE):
        windows, (_, rewards, _, terminated, truncated, _) = timeline.resolve_steps(indices, with_columns=False)
        streams, lasts, counts = windows
        piece = np.stack([streams, lasts, counts, terminated | truncated])
        steps = np.concatenate([carried, piece], axis=1)
        steps = steps[:, np.lexsort((steps[1], steps[0]))]
        streams, lasts, counts, ended = steps
        is_same = streams[1:] == streams[:-1]
        apart = lasts[1:] - lasts[:-1]
        follows = is_same & (apart == 1)
        for what, is_wrong in (
            ("two transitions lead to that frame", is_same & (apart == 0)),
            ("a step follows the end of its episode", follows & (ended[:-1] == 1)),
            (
                "it does not look back as far as its episode goes",
                follows & (counts[1:] != np.minimum(counts[:-1] + 1, stack + 1)),
            ),
        ):
            for place in np.flatnonzero(is_wrong) + 1:
                yield f"stream {streams[place]}, frame {lasts[place]}: {what}"
        if not np.isfinite(rewards).all():
            yield "a reward is not finite"
        carried = steps[:, np.append(~is_same, True)]
