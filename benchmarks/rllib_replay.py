"""Measure a replay actor of RLlib on recorded frames; ``distributed.py --rllib PYTHON`` runs it in RLlib's environment.

    PYTHON benchmarks/rllib_replay.py FRAMES.npy --transitions 20000 --seconds 5

The actor is RLlib's ``MultiAgentPrioritizedReplayBuffer``, made remote as in its Ape-X. It gets fragments of 50
transitions with stacks of 4 frames, and gives batches of 256. The last line of the output has the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}

import numpy as np
import psutil
import ray
from ray.rllib.policy.sample_batch import SampleBatch
from ray.rllib.utils.replay_buffers import MultiAgentPrioritizedReplayBuffer

ENVS, STACK, FRAGMENT, BATCH, EPISODE = 8, 4, 50, 256, 1_000


class ReplayActor(MultiAgentPrioritizedReplayBuffer):
    """The buffer, and the process that it lives in."""

    def process_id(self) -> int:
        """Return the id of the actor's process."""
        return os.getpid()


def fragments(frames: np.ndarray, num_transitions: int):
    """Yield fragments of each environment in turn: the steps that ``saving.Player`` plays."""
    random, num = np.random.default_rng(0), len(frames)
    for first in range(0, num_transitions // ENVS, FRAGMENT):
        for env_id in range(ENVS):
            steps = np.arange(first, first + FRAGMENT)
            starts = steps // EPISODE * EPISODE  # of each step's episode
            indices = np.maximum(steps[:, None] + np.arange(1 - STACK, 2), starts[:, None])
            windows = frames[(env_id * (num // ENVS) + indices) % num]
            stacks = np.ascontiguousarray(windows.transpose(0, 2, 3, 1))  # RLlib's networks take channels last
            yield SampleBatch(
                {
                    "obs": stacks[..., :STACK].copy(),
                    "new_obs": stacks[..., 1:].copy(),
                    "actions": random.integers(0, 4, FRAGMENT),
                    "rewards": random.random(FRAGMENT).astype(np.float32),
                    "terminateds": (steps + 1) % EPISODE == 0,
                    "truncateds": np.zeros(FRAGMENT, bool),
                    "weights": np.ones(FRAGMENT, np.float32),
                }
            )


def processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frames", type=Path)
    parser.add_argument("--transitions", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    frames = np.load(given.frames, mmap_mode="r")
    ray.init(address="local", include_dashboard=False, log_to_driver=False, object_store_memory=2**30)
    make = ray.remote(num_cpus=0)(ReplayActor)
    actor = make.remote(capacity=200_000, num_shards=1, replay_mode="independent")
    process = psutil.Process(ray.get(actor.process_id.remote()))
    before = process.memory_info().rss
    start, here, there = time.perf_counter(), time.process_time(), processor_seconds(process)
    stored, waiting = 0, []
    for fragment in fragments(frames, given.transitions):
        waiting.append(actor.add.remote(fragment))
        stored += len(fragment["obs"])
        if len(waiting) > 2:
            ray.get(waiting.pop(0))
    ray.get(waiting)
    seconds = time.perf_counter() - start
    figures = {
        "ray": ray.__version__,
        "transitions": stored,
        "bytes_a_transition": (process.memory_info().rss - before) / stored,
        "steps_a_second": stored / seconds,
        "processor_us_a_step_here": 1e6 * (time.process_time() - here) / stored,
        "processor_us_a_step_in_actor": 1e6 * (processor_seconds(process) - there) / stored,
    }
    latencies, here, there = [], time.process_time(), processor_seconds(process)
    until = time.perf_counter() + given.seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        batch = ray.get(actor.sample.remote(BATCH))
        latencies.append(time.perf_counter() - start)
        [of_policy] = batch.policy_batches.values()
        assert of_policy["obs"].shape == (BATCH, 84, 84, STACK)
        errors = np.abs(of_policy["rewards"]) + 0.1
        actor.update_priorities.remote({"default_policy": (of_policy["batch_indexes"], errors)})
    num = len(latencies)
    figures |= {
        "batches_a_second_one_at_a_time": 1 / statistics.mean(latencies),
        "batch_ms_median": 1e3 * statistics.median(latencies),
        "batch_ms_99": 1e3 * float(np.quantile(latencies, 0.99)),
        "processor_ms_a_batch_here": 1e3 * (time.process_time() - here) / num,
        "processor_ms_a_batch_in_actor": 1e3 * (processor_seconds(process) - there) / num,
    }
    print(json.dumps(figures))
    ray.shutdown()


if __name__ == "__main__":
    main()
