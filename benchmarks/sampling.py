"""How long does sample(32) take, beside a bare copy and beside other libraries' buffers?

    python benchmarks/sampling.py --memory FOLDER       FOLDER as million.py --keep wrote it

Everything is measured in one process, in turn, as medians. The bare copy gathers the same number of frames (32 windows
of 5) from an uncompressed NumPy array into an output that is kept. The others are at their best setting for memory and
speed: Stable-Baselines3 with optimize_memory_usage (which gives up truncation), Tianshou with stack_num=4,
save_only_last_obs and ignore_obs_next. They are smaller than a million transitions where that would not fit into the
machine, which is to their advantage. A library that is not installed is left out:
``pip install stable-baselines3 tianshou`` brings both.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from framestow import ReplayMemory
from framestow.benchmarking.interleaved import interleaved_medians
from framestow.benchmarking.result_files import write_result
from framestow.process_memory import resident_bytes

RESULTS = Path(__file__).parent / "results"

STACK, SIDE = 4, 84
BARE_FRAMES = 500_000  # 3.5 GB
TIANSHOU_TRANSITIONS = 300_000  # 2.1 GB of frames
STABLE_BASELINES_TRANSITIONS = 120_000  # 3.4 GB of stacks


def bare_copy(batch_size: int, frames: np.ndarray) -> Callable[[], object]:
    ring = np.empty((BARE_FRAMES, SIDE, SIDE), np.uint8)
    for start in range(0, BARE_FRAMES, len(frames)):
        ring[start : start + len(frames)] = frames[: BARE_FRAMES - start]
    out = np.empty((batch_size, STACK + 1, SIDE, SIDE), np.uint8)
    random = np.random.default_rng(0)
    window = np.arange(STACK + 1)

    def copy() -> object:
        first = random.integers(0, BARE_FRAMES - STACK, batch_size)
        return np.take(ring, first[:, None] + window, axis=0, out=out, mode="clip")

    return copy


def stable_baselines3(batch_size: int, frames: np.ndarray) -> Callable[[], object]:
    import torch
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import ReplayBuffer

    torch.set_num_threads(1)  # its copies into tensors are small: waking a second thread costs more than it saves
    buffer = ReplayBuffer(
        STABLE_BASELINES_TRANSITIONS,
        Box(0, 255, (STACK, SIDE, SIDE), np.uint8),
        Discrete(4),
        device="cpu",
        optimize_memory_usage=True,
        handle_timeout_termination=False,
    )
    observation = np.empty((1, STACK, SIDE, SIDE), np.uint8)
    for step in range(STABLE_BASELINES_TRANSITIONS):
        observation[0] = frames[step % (len(frames) - STACK) :][:STACK]
        buffer.add(observation, observation, np.array([0]), np.array([0.0]), np.array([False]), [{}])
    return lambda: buffer.sample(batch_size)


def tianshou(batch_size: int, frames: np.ndarray) -> Callable[[], object]:
    from tianshou.data import Batch, ReplayBuffer

    buffer = ReplayBuffer(TIANSHOU_TRANSITIONS, stack_num=STACK, ignore_obs_next=True, save_only_last_obs=True)
    for step in range(TIANSHOU_TRANSITIONS):
        observation = frames[step % (len(frames) - STACK) :][:STACK]
        ended = step % 200 == 199
        buffer.add(
            Batch(
                obs=observation,
                act=0,
                rew=0.0,
                terminated=ended,
                truncated=False,
                obs_next=observation,
                info={},
            )
        )
    return lambda: buffer.sample(batch_size)


PEERS = {
    "Stable-Baselines3, optimize_memory_usage": (stable_baselines3, STABLE_BASELINES_TRANSITIONS),
    "Tianshou, stack_num=4, save_only_last_obs, ignore_obs_next": (tianshou, TIANSHOU_TRANSITIONS),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=Path, required=True, help="folder of a saved memory")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()

    memory = ReplayMemory.load(arguments.memory)
    frames = memory.transitions(memory.sampleable_indices()[:40_000:8]).observation[:, -1].copy()
    size = arguments.batch_size
    candidates = {
        "bare NumPy copy": bare_copy(size, frames),
        f"framestow, packed, {len(memory):,} transitions": lambda: memory.sample(size),
    }
    bytes_each = dict(zip(candidates, (SIDE * SIDE, memory.report().bytes_per_transition), strict=True))
    for name, (make, num_transitions) in PEERS.items():
        before = resident_bytes()
        try:
            candidates[name] = make(size, frames)
        except ImportError as error:
            print(f"left out: {name} ({error.name} is not installed)")
            continue
        bytes_each[name] = (resident_bytes() - before) / num_transitions
    medians = interleaved_medians(candidates, arguments.rounds, calls=10)
    bare = medians["bare NumPy copy"]
    for name, microseconds in medians.items():
        print(
            f"{name:<62} {microseconds:>6.0f} µs  {microseconds / bare:>5.2f} of the bare copy  "
            f"{bytes_each[name]:>8,.0f} bytes a transition"
        )
    figures = {
        "batch_size": size,
        "transitions": len(memory),
        "microseconds": medians,
        "resident_bytes_a_transition": bytes_each,
    }
    print("written to", write_result(RESULTS / "sampling.json", figures).name)


if __name__ == "__main__":
    main()
