"""Times several things in turn, so that a slow moment of the machine falls on all of them."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Mapping


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
