"""Measure a sharded replay on Ray beside one memory in this process, with 1, 2 and 4 shards.

    python benchmarks/distributed.py                results/distributed.json
    python benchmarks/distributed.py --seconds 3    shorter rounds
    python benchmarks/distributed.py --parts        only the parts of a batch of one shard, printed

On recorded frames of Breakout, 84x84, a stack of 4, 8 environments, batches of 256:

- steps a second into the memory: one process appends (packing included), until the shards have stored all;
- bytes a step on the wire: the chunks as Ray sends them, and the same steps with raw frames;
- the parts of storing a step: packing in the actor, taking a packed segment, and appending raw frames;
- batches a second: ``sample`` one at a time, and a ``BatchLoader`` with 4 batches ahead;
- seconds from the request of a batch to the batch, median and 99 %, with ``sample``;
- processor time of a step and of a batch, in this process and in the shards, which depends less on other processes;
- bytes a transition in RAM, from the memories' reports after the first steps;
- the parts of a batch of one shard, each alone: milliseconds in this process, of which the whole batch is no sum, since
  Ray's own threads and processes take turns on the cores.

Rounds of the memory and of each number of shards alternate; the medians of the rounds are compared. The result has the
machine's load before each round, since other processes change every figure.
"""

from __future__ import annotations

import argparse
import math
import os
import pickle
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from atari_frames import FRAME_SIDE, Player
from framestow import FrameSpec, Prioritized, ReplayMemory
from framestow.benchmarking.result_files import write_result
from framestow.distributed import ShardedReplay, start_cluster, start_local_shards, start_ray_shards
from framestow.distributed.chunk_sender import WriterSettings
from framestow.distributed.chunks import Chunk, ShardReport, Taken
from framestow.distributed.merging import merge
from framestow.distributed.shard_writer import ShardWriter
from framestow.torch import BatchLoader
from saving import NUM_ENVS

RESULTS = Path(__file__).parent / "results"
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


class UnsentCalls:
    """Takes the chunks of a writer and stores them nowhere, to measure the writer alone."""

    num_objects = 1

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def call(self, _number: int, _method: str, chunks: list[Chunk]) -> list[Chunk]:
        self.chunks += chunks
        return chunks

    def result(self, chunks: list[Chunk], _timeout_s: float) -> Taken:
        report = ShardReport(0, 0, 0.0, math.inf, 0, math.inf, 0, 0, 0)
        return Taken(["stored"] * len(chunks), [0] * len(chunks), report)


def parts_of_a_step() -> dict[str, dict[str, float]]:
    """Return the bytes that a step sends, and the processor time of the parts of storing it, each alone."""
    replay, calls = ShardedReplay(start=start_local_shards, **arguments()), UnsentCalls()
    writer = ShardWriter(calls, WriterSettings(replay.settings, tuple(range(NUM_ENVS))))  # type: ignore[arg-type]
    player = Player()
    start = time.process_time()
    player.play(writer, FED)
    packing = time.process_time() - start
    chunks, shard = calls.chunks, replay.group.calls.objects[0]  # type: ignore[attr-defined]
    steps, frames = sum(chunk.steps.num_steps for chunk in chunks), sum(chunk.num_frames for chunk in chunks)
    start = time.process_time()
    for chunk in chunks:
        shard.take([chunk])
    taking = time.process_time() - start
    memory, player = ReplayMemory(**arguments()), Player()
    start = time.process_time()
    player.play(memory, FED)
    appending = time.process_time() - start
    message = len(pickle.dumps(chunks, protocol=5))
    of_frames = sum(len(segment) for chunk in chunks for segment in chunk.segments)
    return {
        "bytes_a_step": {
            "frames_in_a_chunk": chunks[0].num_frames,
            "sent": message / steps,
            "of_which_packed_frames": of_frames / steps,
            "with_raw_frames": (message - of_frames + frames * FRAME_SIDE**2) / steps,
            "with_raw_stacked_pairs": (message - of_frames) / steps + 2 * 4 * FRAME_SIDE**2,
        },
        "processor_microseconds_a_step": {
            "actor_collects_and_packs": 1e6 * packing / FED,
            "shard_takes_a_packed_chunk": 1e6 * taking / steps,
            "one_memory_appends": 1e6 * appending / FED,
        },
    }


def milliseconds(call: Callable[[], Any], num_calls: int = 100) -> dict[str, float]:
    """Return the median and the least time of a call, and its processor time in this process."""
    seconds, processor = [], time.process_time()
    for _ in range(num_calls):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    processor = time.process_time() - processor
    figures = {"median": statistics.median(seconds), "least": min(seconds), "processor": processor / num_calls}
    return {name: round(1e3 * value, 3) for name, value in figures.items()}


def parts_of_a_batch() -> dict[str, Any]:
    """Return the milliseconds of a batch of one shard on Ray, and of its parts, each alone."""
    import ray

    of_ray, local = (
        ShardedReplay(sampler=Prioritized(), start=start, **arguments())
        for start in (start_ray_shards, start_local_shards)
    )
    for replay in (of_ray, local):
        Player().play(replay, STORED)
        replay.flush()
    calls, shard = of_ray.group.calls, local.group.calls.objects[0]  # type: ignore[attr-defined]
    rows = shard.sample(BATCH)
    rows = rows._replace(frames=tuple(array.copy() for array in rows.frames))  # the pool reuses the shard's array
    reference = ray.put(rows)
    weights = np.ones(BATCH, np.float32)

    def sample_and_update() -> None:
        batch = of_ray.sample(BATCH)
        of_ray.update_priorities(batch.index, np.abs(batch.reward) + 0.1)

    def read_frames() -> None:
        frames = of_ray.sample(BATCH).observation
        since = time.perf_counter()
        frames.max()
        reads.append(time.perf_counter() - since)

    reads: list[float] = []
    load = round(os.getloadavg()[0], 1)
    figures = {
        "whole batch": milliseconds(lambda: of_ray.sample(BATCH)),
        "whole batch with new priorities": milliseconds(sample_and_update),
        "call without rows": milliseconds(lambda: calls.result(calls.call(0, "report"), 120.0)),
        "call with one row": milliseconds(lambda: calls.result(calls.call(0, "sample", 1), 120.0)),
        "shard draws and unpacks": milliseconds(lambda: shard.sample(BATCH)),
        "rows into the object store": milliseconds(lambda: ray.put(rows)),
        "rows out of it, as views": milliseconds(lambda: ray.get(reference)),
        "rows become a batch": milliseconds(lambda: merge([0], [rows], weights, of_ray.settings)),
    }
    milliseconds(read_frames)
    figures["frames are read the first time"] = {"median": round(1e3 * statistics.median(reads), 3)}
    of_ray.close()
    return {"load_before": load, "megabytes": round(sum(each.nbytes for each in rows.frames) / 1e6, 1), **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of sampling in a round")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--result", type=Path, default=RESULTS / "distributed.json")
    parser.add_argument("--parts", action="store_true", help="only print the parts of a batch")
    given = parser.parse_args()
    if given.parts:
        start_cluster()
        for name, value in parts_of_a_batch().items():
            print(f"{name}: {value}")
        return
    figures: dict[str, Any] = {**parts_of_a_step()}
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
    figures["milliseconds_of_a_batch_of_one_shard"] = parts_of_a_batch()
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
    print(write_result(given.result, figures, "python benchmarks/distributed.py"))


if __name__ == "__main__":
    main()
