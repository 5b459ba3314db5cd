"""Times several things in turn, so that a slow moment of the machine falls on all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable


def interleaved_medians(
    candidates: dict[str, Callable[[], object]], rounds: int, calls: int, warmup_rounds: int = 3
) -> dict[str, float]:
    """Median microseconds a call of each candidate.

    Each round times ``calls`` calls of every candidate in turn; the median is over the rounds. Garbage collection is
    off while timing.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    gc.disable()
    try:
        for current in range(warmup_rounds + rounds):
            for name, candidate in candidates.items():
                start = time.perf_counter()
                for _ in range(calls):
                    candidate()
                if current >= warmup_rounds:
                    seconds[name].append((time.perf_counter() - start) / calls)
    finally:
        gc.enable()
    return {name: statistics.median(times) * 1e6 for name, times in seconds.items()}
