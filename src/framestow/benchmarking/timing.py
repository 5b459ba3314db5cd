"""Time several candidates in turn, beside a bare copy of as many frames."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.play import Play


def interleaved_medians(
    candidates: Mapping[str, Callable[[], object]], rounds: int, calls: int, warmup_rounds: int = 3
) -> dict[str, float]:
    """Median over the rounds of the mean microseconds of a turn's calls: whatever comes at times is in it."""
    turns = interleaved_turns(candidates, rounds, calls, warmup_rounds)
    return {name: statistics.median(map(statistics.fmean, times)) * 1e6 for name, times in turns.items()}


def interleaved_turns(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    calls: int,
    warmup_rounds: int = 3,
    *,
    before_turn: Mapping[str, Callable[[], object]] | None = None,
    after_round: Callable[[], object] | None = None,
) -> dict[str, list[list[float]]]:
    """Seconds of each call of each candidate, a list a turn.

    Each round times ``calls`` calls of every candidate in turn. What ``before_turn`` has for a candidate is called
    before each of its turns, ``after_round`` after each round, warming up included; neither is timed. Garbage
    collection is off while timing.
    """
    turns: dict[str, list[list[float]]] = {name: [] for name in candidates}
    preparations = before_turn or {}
    gc.disable()
    try:
        for current in range(warmup_rounds + rounds):
            for name, candidate in candidates.items():
                if name in preparations:
                    preparations[name]()
                times = _timed(candidate, calls)
                if current >= warmup_rounds:
                    turns[name].append(times)
            if after_round is not None:
                after_round()
    finally:
        gc.enable()
    return turns


def _timed(candidate: Callable[[], object], calls: int) -> list[float]:
    marks = [time.perf_counter()]
    for _ in range(calls):
        candidate()
        marks.append(time.perf_counter())
    return [end - start for start, end in itertools.pairwise(marks)]


NUM_BATCHES = 257  # drawn beforehand, taken in turn


class BareCopy:
    """Copies ``batch_size`` windows of ``stack + 1`` consecutive frames with one ``np.take`` into a kept output.

    The array holds the play's frames again and again, ``num_bytes`` of them, so that it lies in no cache. No episode is
    respected and nothing but frames is kept: no memory can do with less work from uncompressed frames.
    """

    name = "bare NumPy copy"

    def __init__(self, play: Play, num_bytes: int, batch_size: int, stack: int, seed: int) -> None:
        frame_shape = play.frames.shape[1:]
        self.frame_bytes = int(np.prod(frame_shape))
        self.num_frames = max(num_bytes // self.frame_bytes, stack + 2)
        self._frames = np.empty((self.num_frames, *frame_shape), np.uint8)
        for start in range(0, self.num_frames, len(play.frames)):
            part = self._frames[start : start + len(play.frames)]
            part[:] = play.frames[: len(part)]
        self._out = np.empty((batch_size, stack + 1, *frame_shape), np.uint8)
        firsts = np.random.default_rng(seed).integers(self.num_frames - stack, size=(NUM_BATCHES, batch_size, 1))
        self._windows = list(firsts + np.arange(stack + 1))
        self._next = 0

    def sample(self) -> npt.NDArray[np.uint8]:
        """Copy the next batch of windows; the array that comes back is written over by the next call."""
        self._next = (self._next + 1) % NUM_BATCHES
        return np.take(self._frames, self._windows[self._next], axis=0, out=self._out, mode="clip")
