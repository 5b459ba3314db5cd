"""Measure random retention, in time and in transitions.

    python benchmarks/retention.py              Breakout, results/retention.json
    python benchmarks/retention.py --game pong  another game, printed only

Frames: 20,000 of sticky random play (atari_frames.py), repeated; an episode has 500 steps. Memories of 100,000
transitions of 84x84 frames, stack 4, one environment or eight, are filled four times, one with each retention. In turn:
appends (also their mean, since a segment is evicted once in 320 steps) and sample(32).

Then, without frames: how many of a million transitions are sampleable after ten million steps of endless episodes. The
others are beside gaps, or are free slots until the next eviction.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from atari_frames import FRAME_SIDE, GAMES, recorded
from framestow import ReplayMemory
from framestow.benchmarking.result_files import write_result
from framestow.benchmarking.timing import measure_turns
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.action_spec import ActionSpec
from framestow.replay.eviction import RandomRetention
from framestow.replay.steps.block_steps import BlockSteps
from framestow.replay.steps.step_store import StepSettings

RESULTS = Path(__file__).parent / "results"
NUM_FRAMES = 20_000  # recorded
CAPACITY, FILLED_TIMES = 100_000, 4  # transitions
STACK, BATCH, EPISODE_STEPS = 4, 32, 500
SHAPE = (FRAME_SIDE, FRAME_SIDE)
MANY = 1_000_000  # transitions of the memory without frames


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


def share_drawable(segment_frames: int) -> dict[str, float]:
    """Return the shares of the capacity that are sampleable and beside gaps; means over the last million steps."""
    frame = FrameSpec((1, 1))
    steps = BlockSteps(
        StepSettings(MANY, 1, STACK, frame, ActionSpec.from_space(4), 0.99, segment_frames), RandomRetention(seed=0)
    )
    steps.begin(np.zeros(1, np.int64))
    step = [0], [0.0], [False], [False], np.zeros((1, *frame.shape), frame.dtype)
    drawable, beside_holes = [], []
    for number in range(10 * MANY):
        steps.stage([0], *step)
        if steps.evict_for_staged():
            steps.clear_unreferenced_frames()
        steps.append_staged()
        if number >= 9 * MANY and number % 97 == 0:
            drawable.append(len(steps) / MANY)
            beside_holes.append((steps.num_steps - len(steps)) / MANY)
    return {"drawable": float(np.mean(drawable)), "beside holes": float(np.mean(beside_holes))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", choices=GAMES, default="breakout")
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()

    frames = recorded(arguments.game, NUM_FRAMES)
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
    for name, microseconds in times.items():
        print(f"{name:<32} median {microseconds['median']:>7.1f} µs, mean {microseconds['mean']:>7.1f}")
    print(f"bytes a transition: {bytes_each}")
    shares = {str(segment_frames): share_drawable(segment_frames) for segment_frames in (40, 320)}
    for segment_frames, share in shares.items():
        print(f"segments of {segment_frames} frames: {share['drawable']:.2%} of the capacity is sampleable, "
              f"{share['beside holes']:.2%} lies beside holes")  # fmt: skip
    if arguments.game == "breakout":
        result = {"microseconds": times, "bytes_a_transition": bytes_each, "share_of_capacity": shares}
        write_result(RESULTS / "retention.json", {"game": arguments.game} | result)


if __name__ == "__main__":
    main()
