"""Measure a sharded replay on Ray beside one memory in this process, with 1, 2 and 4 shards.

    python benchmarks/distributed.py                results/distributed.json
    python benchmarks/distributed.py --seconds 3    shorter rounds

On recorded frames of Breakout, 84x84, a stack of 4, 8 environments, batches of 256:

- steps a second into the memory: one process appends (packing included), until the shards have stored all;
- batches a second: ``sample`` one at a time, and a ``BatchLoader`` with 4 batches ahead;
- seconds from the request of a batch to the batch, median and 99 %, with ``sample``;
- processor time of a step and of a batch, in this process and in the shards, which depends less on other processes;
- bytes a transition in RAM, from the memories' reports after the first steps.

Rounds of the memory and of each number of shards alternate; the medians of the rounds are compared. The result has the
machine's load before each round, since other processes change every figure.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import numpy as np
import psutil

from atari_frames import FRAME_SIDE, Player
from figures import publish
from framestow import FrameSpec, Prioritized, ReplayMemory
from framestow.distributed import ShardedReplay, start_cluster
from framestow.torch import BatchLoader
from saving import NUM_ENVS

SHARDS, BATCH, AHEAD = (1, 2, 4), 256, 4
STORED, FED = 40_000, 8_000  # steps before sampling, and in a round of storing
ROUNDS = 3


def arguments() -> dict[str, Any]:
    space = FrameSpec((FRAME_SIDE, FRAME_SIDE))
    common = {"capacity": 200_000, "observation_space": space, "action_space": 4, "stack": 4}
    return {**common, "num_envs": NUM_ENVS, "seed": 0}


class Subject:
    """A memory to measure: in this process, or in shards."""

    def __init__(self, name: str, shards: int | None) -> None:
        self.name = name
        sampler = Prioritized()
        if shards is None:
            self.memory: Any = ReplayMemory(sampler=sampler, **arguments())
        else:
            self.memory = ShardedReplay(sampler=sampler, shards=shards, timeout_s=120.0, **arguments())
        self.player = Player()
        self.figures: dict[str, list[float]] = {}

    def note(self, **figures: float) -> None:
        for name, value in figures.items():
            self.figures.setdefault(name, []).append(value)

    def store(self, num_steps: int) -> None:
        """Store steps until the shards have them."""
        self.player.play(self.memory, num_steps)
        if isinstance(self.memory, ShardedReplay):
            self.memory.flush()

    def processor_seconds(self) -> tuple[float, float]:
        """Return the processor time of this process and of the shards so far."""
        pids = []
        if isinstance(self.memory, ShardedReplay):
            calls = self.memory.group.calls
            pids = [calls.process_id(number, 300.0) for number in range(calls.num_objects)]
        of_shards = [psutil.Process(pid).cpu_times() for pid in pids]
        return time.process_time(), sum(times.user + times.system for times in of_shards)

    def measure_round(self, seconds: float) -> None:
        cpu, start = self.processor_seconds(), time.perf_counter()
        self.store(FED)
        self.note(steps_a_second=FED / (time.perf_counter() - start))
        here, there = (1e6 * (now - then) / FED for now, then in zip(self.processor_seconds(), cpu, strict=True))
        self.note(processor_us_a_step_here=here, processor_us_a_step_in_shards=there)
        cpu, latencies = self.processor_seconds(), []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            start = time.perf_counter()
            batch = self.memory.sample(BATCH)
            latencies.append(time.perf_counter() - start)
            self.memory.update_priorities(batch.index, np.abs(batch.reward) + 0.1)
        num = len(latencies)
        here, there = (1e3 * (now - then) / num for now, then in zip(self.processor_seconds(), cpu, strict=True))
        self.note(
            processor_ms_a_batch_here=here,
            processor_ms_a_batch_in_shards=there,
            batches_a_second_one_at_a_time=1 / statistics.mean(latencies),
            batch_ms_median=1e3 * statistics.median(latencies),
            batch_ms_99=1e3 * float(np.quantile(latencies, 0.99)),
        )
        with BatchLoader(self.memory, BATCH, "cpu", ahead=AHEAD) as loader:
            next(loader)
            num, start = 0, time.perf_counter()
            while time.perf_counter() < start + seconds:
                next(loader)
                num += 1
            self.note(batches_a_second_ahead=num / (time.perf_counter() - start))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of sampling in a round")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    start = time.perf_counter()
    start_cluster()
    figures["seconds_to_start_ray"] = time.perf_counter() - start
    import ray

    figures["ray"] = ray.__version__
    subjects = [Subject("one memory in this process", None)]
    subjects += [Subject(f"{shards} shard{'s' * (shards > 1)}", shards) for shards in SHARDS]
    for subject in subjects:
        subject.store(STORED)
        subject.note(bytes_a_transition=subject.memory.report().bytes_per_transition)
    loads = []
    for _ in range(given.rounds):
        for subject in subjects:
            loads.append(round(os.getloadavg()[0], 1))
            subject.measure_round(given.seconds)
    figures["load_before_each_round"] = loads
    figures["subjects"] = {
        subject.name: {name: round(statistics.median(values), 3) for name, values in subject.figures.items()}
        for subject in subjects
    }
    for subject in subjects[1:]:
        subject.memory.close()
    ray.shutdown()
    publish("distributed", figures)


if __name__ == "__main__":
    main()
