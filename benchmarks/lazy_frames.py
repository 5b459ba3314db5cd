"""Measure the bytes of stored observations, before and after each was converted to an array once.

    python benchmarks/lazy_frames.py                          results/lazy_frames.json
    python benchmarks/lazy_frames.py --observations 10_000    fewer, printed only

Frames: sticky random play of Breakout, 84x84 grey, stacks of 4 (atari_frames.py; 20,000 frames, repeated). Each way to
store them runs in its own process. Resident bytes are read when the observations are stored, and again after each was
converted to an array that is not kept.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import FrameStackObservation

from atari_frames import recorded
from framestow import ReplayMemory
from framestow.benchmarking.result_files import write_result
from framestow.integrations.gymnasium import FrameStack
from framestow.process_memory import live_bytes

RESULT = Path(__file__).parent / "results" / "lazy_frames.json"
OBSERVATIONS, RECORDED_FRAMES, STACK, BATCH = 100_000, 20_000, 4, 32


class RecordedGame(gymnasium.Env[Any, Any]):
    """Returns recorded frames one after the other, each copied."""

    observation_space, action_space = Box(0, 255, (84, 84), np.uint8), Discrete(4)

    def __init__(self, has_channel: bool = False) -> None:
        frames = recorded("breakout", RECORDED_FRAMES)
        self.frames = itertools.cycle(frames[..., None] if has_channel else frames)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:  # noqa: ARG002, D102
        return next(self.frames).copy(), {}

    def step(self, action: Any) -> Any:  # noqa: ARG002, D102
        return next(self.frames).copy(), 0.0, False, False, {}


class BaselinesLazyFrames:
    """As in Baselines: the first conversion replaces the frames by the joined array."""

    def __init__(self, frames: list[Any]) -> None:
        self.frames, self.joined = frames, None

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.joined is None:
            self.joined, self.frames = np.concatenate(self.frames, axis=-1), None
        return self.joined


def of_baselines() -> Iterator[Any]:
    env, frames = RecordedGame(has_channel=True), deque(maxlen=STACK)
    frames.extend([env.reset()[0]] * STACK)
    while True:
        yield BaselinesLazyFrames(list(frames))
        frames.append(env.step(0)[0])


def of(wrapper: Callable[..., gymnasium.Env[Any, Any]]) -> Iterator[Any]:
    env = wrapper(RecordedGame(), STACK)
    yield env.reset()[0]
    while True:
        yield env.step(0)[0]


def kept_in_a_list(make: Callable[[], Iterator[Any]], count: int) -> Iterator[int]:
    observations = make()
    look_at = np.asarray(next(observations))
    yield live_bytes()
    kept = list(itertools.islice(observations, count))
    yield live_bytes()
    for observation in kept:
        look_at = np.asarray(observation)
    assert look_at.nbytes == STACK * 84 * 84
    yield live_bytes()


def kept_in_a_memory(count: int) -> Iterator[int]:
    env = RecordedGame()
    bare = live_bytes()
    memory = ReplayMemory(count, env.observation_space, env.action_space, stack=STACK, seed=0)
    yield bare
    memory.begin(env.reset()[0][None])
    for _ in range(count):
        memory.append([0], [0.0], [False], [False], env.step(0)[0][None])
    yield live_bytes()
    for _ in memory.batches(BATCH):
        pass
    yield live_bytes()


WAYS: dict[str, Callable[[int], Iterator[int]]] = {
    "arrays of Gymnasium's FrameStackObservation": lambda n: kept_in_a_list(lambda: of(FrameStackObservation), n),
    "LazyFrames as Baselines'": lambda n: kept_in_a_list(of_baselines, n),
    "LazyFrames of framestow": lambda n: kept_in_a_list(lambda: of(FrameStack), n),
    "a ReplayMemory": kept_in_a_memory,
}


def measure(way: str, count: int) -> dict[str, float]:
    """Return bytes per observation, before and after all were converted."""
    bare, stored, converted = WAYS[way](count)
    return {"kept": (stored - bare) / count, "looked_at": (converted - bare) / count}


def main() -> None:
    parser = argparse.ArgumentParser(description="Bytes an observation, before and after its conversion to an array.")
    parser.add_argument("--observations", type=int, default=OBSERVATIONS)
    count = parser.parse_args().observations
    rows = {}
    print(f"{'bytes an observation':45s} {'kept':>8s} {'converted':>10s}")
    recorded("breakout", RECORDED_FRAMES)
    for way in WAYS:
        with multiprocessing.get_context("spawn").Pool(1) as process:
            rows[way] = process.apply(measure, (way, count))
        print(f"{way:45s} {rows[way]['kept']:8,.0f} {rows[way]['looked_at']:10,.0f}", flush=True)
    if count == OBSERVATIONS:
        print("written:", write_result(RESULT, {"observations": count, "bytes_per_observation": rows}).name)


if __name__ == "__main__":
    main()
