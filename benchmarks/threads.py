"""Measure batches on several threads, and appends beside sampling threads.

    python benchmarks/threads.py                 all ten games, results/threads.json
    python benchmarks/threads.py --games pong    some of them, printed only

First, per game: 256 windows of five frames from a packed store (filled as in packing.py), unpacked by one thread and by
two, in turn with the bare copy of equally many windows: one np.take from an uncompressed array of 4 GiB into a reused
output. Median microseconds.

Second, on the first game: microseconds of one `append` to a full memory of 100,000 transitions that gets a step every
millisecond, as from an environment, while 0, 1, 2 or 4 threads call `sample(256)` without a pause: median and 99th
percentile, and the batches per second over all threads. With more samplers than cores the writer waits for a core, as
beside any other threads.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from atari_frames import FRAME_SIDE, GAMES, recorded
from figures import publish
from framestow import ReplayMemory
from framestow.benchmarking.timing import measure_medians
from framestow.frames.frame_spec import FrameSpec
from packing import BARE_BYTES, bare_copying, filled_store, reading

WINDOWS = 256
FRAME_BYTES = FRAME_SIDE * FRAME_SIDE
CAPACITY = 100_000  # transitions of the memory that is written and sampled at once
NUM_APPENDS = 2_000
STEP_S = 0.001  # between two appends
NUM_SAMPLERS = (0, 1, 2, 4)


def read_times(game: str, bare_copy: Callable[[], object], rounds: int) -> dict[str, float]:
    """Return microseconds per batch on one thread, on two, and of the bare copy."""
    store = filled_store(recorded(game))
    num_frames = store.packed.next_position(0)
    candidates: dict[str, Callable[[], object]] = {
        f"threads_{count}": reading(store.packed, store.num_envs, num_frames, FRAME_BYTES, WINDOWS, count)
        for count in (1, 2)
    }
    medians = measure_medians(candidates | {"bare_copy": bare_copy}, rounds=rounds, calls=2)
    return medians | {"two_threads_to_bare_copy": medians["threads_2"] / medians["bare_copy"]}


def filled_memory(frames: NDArray[np.uint8]) -> ReplayMemory:
    """Return a full memory of one environment of ``frames``, repeated."""
    memory = ReplayMemory(CAPACITY, FrameSpec((FRAME_SIDE, FRAME_SIDE)), 4, stack=4, seed=0)
    memory.begin(frames[:1])
    for step in range(CAPACITY):
        append_step(memory, frames, step)
    return memory


def append_step(memory: ReplayMemory, frames: NDArray[np.uint8], step: int) -> None:
    index = step % len(frames)
    memory.append([0], [0.0], [False], [False], frames[index : index + 1])


def append_times(memory: ReplayMemory, frames: NDArray[np.uint8], num_samplers: int) -> dict[str, float]:
    """Return microseconds per append while that many threads sample, and their batches per second."""
    has_ended = threading.Event()
    num_batches = [0] * num_samplers

    def keep_sampling(sampler: int) -> None:
        while not has_ended.is_set():
            memory.sample(WINDOWS)
            num_batches[sampler] += 1

    samplers = [threading.Thread(target=keep_sampling, args=(number,)) for number in range(num_samplers)]
    for sampler in samplers:
        sampler.start()
    seconds = []
    began = time.perf_counter()
    for step in range(NUM_APPENDS):
        time.sleep(STEP_S)
        start = time.perf_counter()
        append_step(memory, frames, step)
        seconds.append(time.perf_counter() - start)
    lasted = time.perf_counter() - began
    has_ended.set()
    for sampler in samplers:
        sampler.join()
    median, late = np.percentile(seconds, [50, 99]) * 1e6
    return {"median_us": float(median), "percentile_99_us": float(late), "batches_a_s": sum(num_batches) / lasted}


def main() -> None:
    parser = argparse.ArgumentParser(description="Reading on two threads, and appending beside samplers.")
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    parser.add_argument("--rounds", type=int, default=100, help="rounds of 2 batches a candidate and game")
    arguments = parser.parse_args()
    bare_copy = bare_copying(np.ones(BARE_BYTES, np.uint8), FRAME_BYTES, WINDOWS)
    reads = {game: read_times(game, bare_copy, arguments.rounds) for game in arguments.games}
    ratio = statistics.geometric_mean(row["two_threads_to_bare_copy"] for row in reads.values())
    del bare_copy

    frames = recorded(arguments.games[0])
    memory = filled_memory(frames)
    appends = {str(count): append_times(memory, frames, count) for count in NUM_SAMPLERS}
    figures = {"read": reads, "two_threads_to_bare_copy": ratio, "append_beside_samplers": appends}
    publish("threads", figures, arguments.games == list(GAMES))


if __name__ == "__main__":
    main()
