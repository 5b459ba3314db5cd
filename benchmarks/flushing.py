"""Measure the cost of keeping a memory on disk while it is written and sampled.

    python benchmarks/flushing.py                    results/flushing.json
    python benchmarks/flushing.py --folder FOLDER    on the disk of that folder; of the temporary files otherwise

Two questions, on recorded frames of Breakout (atari_frames.py), 8 environments, a ring of 200,000
transitions:

- How long does a step wait while 20,000 new ones are flushed? A thread appends a step every 200 µs and does nothing
  else, in turn without flushes and beside flushes; the result has the longest append of each.
- What does a flush every 5 seconds cost a loop that acts and learns: a step of all environments, then a batch of 32?
  Rounds of the loop with and without a flush in the background alternate in one process. Compared is the processor
  time of the whole process, flushes included. One flush per round of 5 seconds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

from atari_frames import FRAME_SIDE, Player
from figures import publish
from framestow import FrameSpec, ReplayMemory
from saving import NUM_ENVS

CAPACITY, NEW_STEPS, NUM_FLUSHES = 200_000, 20_000, 15
PAUSE_S = 200e-6  # between two steps
ROUND_S, NUM_ROUNDS = 5.0, 3  # rounds of each kind
BATCH = 32


def new_memory(folder: Path) -> ReplayMemory:
    space = FrameSpec((FRAME_SIDE, FRAME_SIDE))
    return ReplayMemory(CAPACITY, space, 4, stack=4, num_envs=NUM_ENVS, seed=0, directory=folder, flush_every=None)


def append_steadily(memory: ReplayMemory, player: Player, until: threading.Event, times: list[float]) -> None:
    """Append until stopped; record the seconds of each append."""
    while not until.is_set():
        start = time.perf_counter()
        player.play(memory, NUM_ENVS)
        times.append(time.perf_counter() - start)
        time.sleep(PAUSE_S)


def waits(memory: ReplayMemory, player: Player) -> dict[str, float]:
    """Return longest and median append beside flushes of ``NEW_STEPS`` and without them, in turn."""
    beside: dict[bool, list[list[float]]] = {True: [], False: []}
    flush_s = []
    for number in range(2 * NUM_FLUSHES):
        player.play(memory, NEW_STEPS)
        until, times = threading.Event(), list[float]()
        thread = threading.Thread(target=append_steadily, args=(memory, player, until, times))
        thread.start()
        start = time.perf_counter()
        if number % 2:
            memory.flush()
            flush_s.append(time.perf_counter() - start)
        else:
            time.sleep(statistics.median(flush_s) if flush_s else 0.1)
        until.set()
        thread.join()
        beside[bool(number % 2)].append(times)
        if not number % 2:
            memory.flush()
    longest = {is_beside: [max(times) for times in rounds] for is_beside, rounds in beside.items()}
    return {
        "flush_of_new_steps_s_median": statistics.median(flush_s),
        "longest_append_beside_a_flush_s_median": statistics.median(longest[True]),
        "longest_append_beside_a_flush_s_worst": max(longest[True]),
        "longest_append_without_s_median": statistics.median(longest[False]),
        "longest_append_without_s_worst": max(longest[False]),
    }


def round_of_steps(memory: ReplayMemory, player: Player, num_steps: int) -> None:
    for _ in range(num_steps):
        player.play(memory, NUM_ENVS)
        memory.sample(BATCH)


def flush_and_note(memory: ReplayMemory, seconds: list[float]) -> None:
    start = time.thread_time()
    memory.flush()
    seconds.append(time.thread_time() - start)


def cost(memory: ReplayMemory, player: Player) -> dict[str, float]:
    """Run rounds of equally many steps, every second one with a flush beside it."""
    start = time.process_time()
    round_of_steps(memory, player, 2_000)
    steps = int(2_000 * ROUND_S / (time.process_time() - start))
    cpu: dict[bool, list[float]] = {True: [], False: []}
    flush_cpu: list[float] = []
    for number in range(2 * NUM_ROUNDS):
        flushes = bool(number % 2)
        if not flushes:
            memory.flush()  # so that the next flush writes one round
        beside = threading.Thread(target=flush_and_note, args=(memory, flush_cpu))
        began = time.process_time()
        if flushes:
            beside.start()
        round_of_steps(memory, player, steps)
        if flushes:
            beside.join()
        cpu[flushes].append(time.process_time() - began)
    return {
        "steps_a_round": steps * NUM_ENVS,
        "round_cpu_s_without": statistics.median(cpu[False]),
        "round_cpu_s_with_a_flush": statistics.median(cpu[True]),
        "flush_thread_cpu_s": statistics.median(flush_cpu),
        "flush_thread_cpu_share": statistics.median(flush_cpu) / statistics.median(cpu[False]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the store is written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        memory, player = new_memory(Path(scratch) / "memory"), Player()
        player.play(memory, CAPACITY + NEW_STEPS)
        memory.flush()
        figures = waits(memory, player) | cost(memory, player)
        memory.close()
    publish("flushing", figures)


if __name__ == "__main__":
    main()
