"""Measure random retention, in time and in transitions.

    python benchmarks/retention.py              Breakout, results/retention.json
    python benchmarks/retention.py --game pong  another game, printed only

Frames: 20,000 of sticky random play (atari_frames.py), repeated; an episode has 500 steps. Memories of 100,000
transitions of 84x84 frames, stack 4, one environment or eight, are filled four times, one with each retention. In turn:
appends (also their mean, since a segment is evicted once in 320 steps) and sample(32).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from atari_frames import FRAME_SIDE, GAMES, recorded
from figures import publish
from framestow import ReplayMemory
from framestow.benchmarking.timing import measure_turns
from framestow.frames.frame_spec import FrameSpec

CAPACITY, FILLED_TIMES = 100_000, 4  # transitions
STACK, BATCH, EPISODE_STEPS = 4, 32, 500
SHAPE = (FRAME_SIDE, FRAME_SIDE)


def appending(memory: ReplayMemory, frames: NDArray[np.uint8]) -> Callable[[], object]:
    """Return a call that stores one step of every environment; all episodes end together."""
    count = memory.num_envs
    starts = np.arange(count) * (len(frames) // count)
    rows = [frames[(starts + step) % len(frames)] for step in range(len(frames) // count)]
    actions, rewards, going = np.ones(count, np.int64), np.zeros(count), np.zeros(count, np.bool_)
    turns = cycle([(step % EPISODE_STEPS == EPISODE_STEPS - 1, row) for step, row in enumerate(rows)])
    memory.begin(rows[0])

    def append() -> None:
        is_last, row = next(turns)
        memory.append(actions, rewards, going, ~going if is_last else going, row)
        if is_last:
            memory.begin(next(turns)[1])

    return append


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", choices=GAMES, default="breakout")
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()

    frames = recorded(arguments.game)
    candidates: dict[str, Callable[[], object]] = {}
    bytes_each = {}
    for num_envs in (1, 8):
        for retention in ("fifo", "random"):
            memory = ReplayMemory(
                CAPACITY, FrameSpec(SHAPE), 4, stack=STACK, num_envs=num_envs, retention=retention, seed=0
            )
            append = appending(memory, frames)
            for _ in range(FILLED_TIMES * CAPACITY // num_envs):
                append()
            name = f"{retention}, environments: {num_envs}"
            candidates[f"append, {name}"] = append
            candidates[f"sample({BATCH}), {name}"] = lambda memory=memory: memory.sample(BATCH)
            bytes_each[name] = round(memory.report().bytes_per_transition, 1)

    turns = measure_turns(candidates, arguments.rounds, calls=50)
    times = {
        name: {"median": 1e6 * float(np.median(of_name)), "mean": 1e6 * float(np.mean(of_name))}
        for name, of_name in turns.items()
    }
    figures = {"microseconds": times, "bytes_a_transition": bytes_each}
    publish("retention", {"game": arguments.game, **figures}, arguments.game == parser.get_default("game"))


if __name__ == "__main__":
    main()
