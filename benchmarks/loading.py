"""Measure how long a learner waits for its batches, with and without a loader that prepares them ahead.

    python benchmarks/loading.py                 all settings, results/loading.json
    python benchmarks/loading.py --rounds 3      a quick trial, printed only

A packed memory of 50,000 transitions, stack of four 84x84 frames, recorded from random play. Each update takes a batch
as tensors on the CPU and learns from it, three ways in turn, a hundred updates per turn (four for the slow learner):

    sample    to_tensors(memory.sample(n)), then the learner
    loader    next(BatchLoader(memory, n)), ahead by two batches on one thread, then the learner
    learner   the learner alone, always on the same batch

There are two learners. One sleeps 5 ms and leaves the cores free, like a learner that waits for an accelerator. The
other runs an update of the Nature CNN (Mnih et al. 2015) on one thread of this machine, which shares its caches and
memory with the loader's thread. Medians over the turns: microseconds until a batch is there, microseconds of the
learner thread's processor time for it, milliseconds per update. The loader also hides the copy to a CUDA device; none
has been measured.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import smooth_l1_loss

from atari_frames import FRAME_SIDE, recorded
from figures import publish
from framestow import FrameSpec, ReplayMemory
from framestow.agents.networks import build_network
from framestow.torch import BatchLoader, TensorBatch, to_tensors
from framestow.training import Settings

CAPACITY = 50_000
WAIT_S = 0.005
NUM_ACTIONS = 4


class Setting(NamedTuple):
    """A measured setting: frames, batch size, and learner."""

    game: str
    dtype: str
    batch_size: int
    learner: str


SETTINGS = (
    Setting("breakout", "uint8", 32, "waits 5 ms"),
    Setting("breakout", "uint8", 256, "waits 5 ms"),
    Setting("enduro", "uint8", 256, "waits 5 ms"),
    Setting("enduro", "uint8", 1024, "waits 5 ms"),
    Setting("breakout", "float32", 256, "waits 5 ms"),
    Setting("breakout", "uint8", 32, "Nature CNN"),
    Setting("enduro", "uint8", 256, "Nature CNN"),
)


def filled_memory(game: str, dtype: str) -> ReplayMemory:
    """Return a full memory of one environment of the game's frames, repeated, as pixels or divided by 255."""
    frames = recorded(game)
    is_scaled = dtype == "float32"
    memory = ReplayMemory(
        CAPACITY, FrameSpec(frames.shape[1:], np.dtype(dtype), is_scaled=is_scaled), NUM_ACTIONS, stack=4, seed=0
    )
    memory.begin(in_dtype(frames[:1], dtype))
    for step in range(1, CAPACITY + 1):
        index = step % len(frames)
        memory.append([step % NUM_ACTIONS], [0.0], [False], [False], in_dtype(frames[index : index + 1], dtype))
    return memory


def in_dtype(frames: np.ndarray, dtype: str) -> np.ndarray:
    return frames if dtype == "uint8" else frames / np.float32(255)


def waiting(_batch: TensorBatch) -> None:
    time.sleep(WAIT_S)


def nature_cnn() -> Callable[[TensorBatch], None]:
    """An update of deep Q-learning: two forward passes, one backward, Adam."""
    torch.manual_seed(0)
    settings = Settings("Breakout", recipe="dqn").agent()
    network = build_network((4, FRAME_SIDE, FRAME_SIDE), NUM_ACTIONS, 1, settings)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True)

    def learn(batch: TensorBatch) -> None:
        with torch.no_grad():
            target = batch.reward + batch.discount * network(batch.next_observation)[:, :, 0].max(1).values
        values = network(batch.observation)[:, :, 0].gather(1, batch.action[:, None])[:, 0]
        optimizer.zero_grad(set_to_none=True)
        smooth_l1_loss(values, target).backward()
        optimizer.step()

    return learn


class Turn(NamedTuple):
    """Means over the updates of a turn, in seconds."""

    wait: float
    processor: float
    update: float


def turn(fetch: Callable[[], TensorBatch], learn: Callable[[TensorBatch], None], num_updates: int) -> Turn:
    """Return the wait for a batch, the learner thread's processor time for it, and the time of an update."""
    waits, processor_times = [], []
    began = time.perf_counter()
    for _ in range(num_updates):
        start, processor_start = time.perf_counter(), time.thread_time()
        batch = fetch()
        processor_times.append(time.thread_time() - processor_start)
        waits.append(time.perf_counter() - start)
        learn(batch)
    return Turn(fmean(waits), fmean(processor_times), (time.perf_counter() - began) / num_updates)


def measured(memory: ReplayMemory, setting: Setting, rounds: int) -> dict[str, dict[str, float]]:
    """Return microseconds of waiting and of processor time, and milliseconds per update, of each way."""
    is_slow = setting.learner == "Nature CNN"
    learn = nature_cnn() if is_slow else waiting
    num_updates = 4 if is_slow else 100
    kept = copy.deepcopy(to_tensors(memory.sample(setting.batch_size)))  # a copy, since the memory reuses its arrays
    turns: dict[str, list[Turn]] = {"sample": [], "loader": [], "learner": []}
    with BatchLoader(memory, setting.batch_size) as loader:
        ways: dict[str, Callable[[], TensorBatch]] = {
            "sample": lambda: to_tensors(memory.sample(setting.batch_size)),
            "loader": loader.__next__,
            "learner": lambda: kept,
        }
        for current in range(rounds + 1):
            for name, fetch in ways.items():
                figures = turn(fetch, learn, num_updates)
                if current:  # the first warms up
                    turns[name].append(figures)
    return {
        name: {
            "wait_us": median(figures.wait for figures in of_way) * 1e6,
            "processor_us": median(figures.processor for figures in of_way) * 1e6,
            "update_ms": median(figures.update for figures in of_way) * 1e3,
        }
        for name, of_way in turns.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Batches prepared ahead beside batches that are sampled.")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each way and setting")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    memories: dict[tuple[str, str], ReplayMemory] = {}
    results = []
    for setting in SETTINGS:
        kind = setting.game, setting.dtype
        if kind not in memories:
            memories[kind] = filled_memory(*kind)
        row = measured(memories[kind], setting, arguments.rounds)
        results.append({**setting._asdict(), **row})
    publish("loading", {"rounds": arguments.rounds, "settings": results}, arguments.rounds >= 10)


if __name__ == "__main__":
    main()
