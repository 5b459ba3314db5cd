"""Time several candidates in turn, and the bare copy that they are compared with."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from framestow.benchmarking.play import Play

SETTLING_BYTES = 31 << 20  # just below the largest block that glibc adapts its threshold to
NUM_BATCHES = 257  # batches of the bare copy that are drawn beforehand and copied in turn


def measure_medians(
    candidates: Mapping[str, Callable[[], object]], rounds: int, calls: int, warmup_rounds: int = 3
) -> dict[str, float]:
    """Return the median over the rounds of a turn's mean microseconds a call, rare slow calls included."""
    turns = measure_turns(candidates, rounds, calls, warmup_rounds)
    return {name: statistics.median(map(statistics.fmean, times)) * 1e6 for name, times in turns.items()}


def measure_turns(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    calls: int,
    warmup_rounds: int = 3,
    *,
    before_turn: Mapping[str, Callable[[], object]] | None = None,
    after_round: Callable[[], object] | None = None,
) -> dict[str, list[list[float]]]:
    """Return the seconds of each call of each candidate, a list a turn.

    Each round times ``calls`` calls of every candidate in turn, so a slow moment of the machine affects all of them.
    ``before_turn[name]`` is called before each turn of that candidate and ``after_round`` after each round, warm-up
    included; neither is timed. Garbage collection is off while timing.
    """
    turns: dict[str, list[list[float]]] = {name: [] for name in candidates}
    preparations = before_turn or {}
    gc.disable()
    try:
        for current in range(warmup_rounds + rounds):
            for name, candidate in candidates.items():
                if name in preparations:
                    preparations[name]()
                times = _time_calls(candidate, calls)
                if current >= warmup_rounds:
                    turns[name].append(times)
            if after_round is not None:
                after_round()
    finally:
        gc.enable()
    return turns


def _time_calls(candidate: Callable[[], object], calls: int) -> list[float]:
    marks = [time.perf_counter()]
    for _ in range(calls):
        candidate()
        marks.append(time.perf_counter())
    return [end - start for start, end in itertools.pairwise(marks)]


def settle_allocator() -> None:
    """Make the C library keep freed batches, as in a process that has freed a large array before.

    glibc returns large freed blocks to the system until a larger one has been freed. Until then every batch in new
    arrays pays for its pages again, which changes its time by a factor of up to five.
    The other libraries gain from this call; framestow reuses its arrays.
    """
    np.ones(SETTLING_BYTES, np.uint8)


class BareCopy:
    """Copies windows of consecutive frames out of an uncompressed array with one ``np.take`` into a reused output.

    The array repeats the play's frames up to ``num_bytes``. Give it as many frames as the memory stores: a small memory
    fits into the processor's cache, a larger array does not. No memory of uncompressed frames samples with less work,
    since this array knows no episodes and stores no actions.
    """

    name = "bare NumPy copy"

    def __init__(self, play: Play, num_bytes: int, seed: int = 0) -> None:
        frame_shape = play.frames.shape[1:]
        self.frame_bytes = int(np.prod(frame_shape))
        self.num_frames = num_bytes // self.frame_bytes
        # The play's frames, again and again, ``(num_frames, *frame)``.
        self._frames = np.empty((self.num_frames, *frame_shape), np.uint8)
        for start in range(0, self.num_frames, len(play.frames)):
            part = self._frames[start : start + len(play.frames)]
            part[:] = play.frames[: len(part)]
        self._seed = seed  # of the windows
        self._out = np.empty(0, np.uint8)  # ``(batch_size, length, *frame)``, reused by every call of that shape
        # The frames of each of ``NUM_BATCHES`` batches, ``(NUM_BATCHES, batch_size, length)``; ``_next`` is the next
        # batch.
        self._windows: npt.NDArray[np.int64] = np.empty((NUM_BATCHES, 0, 0), np.int64)
        self._next = 0

    def copy(self, batch_size: int, length: int) -> npt.NDArray[np.uint8]:
        """Copy the next batch of windows of ``length`` frames each; the next call overwrites the returned array."""
        if self._windows.shape[1:] != (batch_size, length):
            generator = np.random.default_rng(self._seed)
            firsts = generator.integers(self.num_frames - length + 1, size=(NUM_BATCHES, batch_size, 1))
            self._windows = firsts + np.arange(length)
            self._out = np.empty((batch_size, length, *self._frames.shape[1:]), np.uint8)
        self._next = (self._next + 1) % NUM_BATCHES
        return np.take(self._frames, self._windows[self._next], axis=0, out=self._out, mode="clip")
