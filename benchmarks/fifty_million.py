"""Sample from a memory of 50,000,000 transitions on disk with 2 GB of RAM.

    python benchmarks/fifty_million.py                               5,000,000 transitions: a few minutes
    python benchmarks/fifty_million.py --transitions 50_000_000      results/fifty_million.json

The memory is built in a folder (`--folder`) that is removed afterwards, unless `--keep` is given. Ten environments,
one per game of docs/packing.md, play takes of 300 to 3,000 frames as episodes. The takes come from recordings of
random play (atari_frames.py), 20,000 frames of each; their start, length and orientation are random, as rewards and
actions. After a flush the writer continues and is killed with SIGKILL.

Another process then opens the folder. A memory control group limits it together with the page cache of the files that
it reads (the writer's page cache is dropped before, if this user may). `opening_s` is the time until the memory can be
sampled. Only root can make a group; otherwise the limit covers the process's own memory (RLIMIT_DATA), and the result
says so. This is done three times, since the host of a virtual machine may have the files in its own cache. The figures
are those of the first run; `sample(32)_of_all_runs_ms` has the medians of all in order.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atari_frames import GAMES, recorded
from figures import publish
from framestow import ReplayMemory
from framestow.frames.frame_spec import FrameSpec
from framestow.process import resident_bytes
from memory_limit import MemoryLimit

HERE = Path(__file__).parent
SHORTEST, LONGEST = 300, 3_000  # frames of a take
NUM_ACTIONS = 4
SPEC = FrameSpec((84, 84))
NUM_ENVS = len(GAMES)
WARM_UP_BATCHES, BATCHES = 20, 300
RUNS = 3
MB = 10**6


def memory_in(folder: Path, capacity: int) -> ReplayMemory:
    return ReplayMemory(capacity, SPEC, NUM_ACTIONS, stack=4, num_envs=NUM_ENVS, seed=0, directory=folder, label=GAMES)


def takes(recording: NDArray[np.uint8], seed: int) -> Iterator[tuple[NDArray[np.uint8], bool]]:
    """Yield frames without end, and whether the frame is the last of its take.

    A take has a random start, length and orientation, upright or upside down. So a segment of a memory may begin at any
    frame of any take, and few segments are equal.
    """
    random = np.random.default_rng(seed)
    while True:
        length = int(random.integers(SHORTEST, LONGEST))
        start = int(random.integers(len(recording) - length))
        take = recording[start : start + length]
        if random.integers(2):
            take = take[:, ::-1]
        for number, frame in enumerate(take, start=1):
            yield frame, number == length


def build(folder: Path, capacity: int) -> None:
    """Fill a memory, flush it, report that, and continue until this process is killed."""
    plays = [takes(recorded(game), env_id) for env_id, game in enumerate(GAMES)]
    memory = memory_in(folder, capacity)
    memory.begin(np.stack([next(play)[0] for play in plays]))
    random, nothing = np.random.default_rng(0), np.zeros(NUM_ENVS, np.bool_)
    start = shown = time.monotonic()
    is_full = False
    while True:
        frames, ends = zip(*map(next, plays), strict=True)
        ended = np.array(ends)
        actions = random.integers(NUM_ACTIONS, size=NUM_ENVS)
        memory.append(actions, random.random(NUM_ENVS, np.float32), ended, nothing, np.stack(frames))
        if ended.any():
            env_ids = np.flatnonzero(ended)
            memory.begin(np.stack([next(plays[env_id])[0] for env_id in env_ids]), env_ids=env_ids)
        if time.monotonic() - shown > 20:
            shown = time.monotonic()
            print(f"{len(memory):>11,} transitions, {len(memory) / (shown - start):,.0f} a second", file=sys.stderr)
        if not is_full and len(memory) == capacity:
            is_full = True
            before = time.monotonic()
            memory.flush()
            facts = {"building_s": round(before - start), "last_flush_s": round(time.monotonic() - before, 2)}
            print(json.dumps(facts | {"resident_mb_of_the_writer": resident_bytes() // MB}), flush=True)


def kill_when_built(folder: Path, capacity: int) -> dict[str, Any]:
    """Start ``build``, wait for its flush and a moment longer, and kill it."""
    command = [sys.executable, __file__, "--build", str(folder), "--transitions", str(capacity)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as builder:
        assert builder.stdout is not None
        facts: dict[str, Any] = json.loads(builder.stdout.readline())
        time.sleep(3)
        builder.send_signal(signal.SIGKILL)
    return facts


def sample_times(memory: ReplayMemory, batch_size: int) -> dict[str, float]:
    """Return milliseconds of the first batches, with nothing cached, and of later ones."""
    times = []
    for _ in range(WARM_UP_BATCHES + BATCHES):
        start = time.perf_counter()
        memory.sample(batch_size)
        times.append(1e3 * (time.perf_counter() - start))
    first, later = times[:WARM_UP_BATCHES], times[WARM_UP_BATCHES:]
    return {
        "first_batches_ms": round(float(np.median(first)), 2),
        "median_ms": round(float(np.median(later)), 2),
        "99th_percentile_ms": round(float(np.percentile(later, 99)), 2),
    }


def sample(folder: Path, capacity: int) -> None:
    """Open the memory, sample from it, and print the times and bytes."""
    bare = resident_bytes()
    start = time.monotonic()
    memory = memory_in(folder, capacity)
    opening_s = time.monotonic() - start
    facts: dict[str, Any] = {"opening_s": round(opening_s, 2), "transitions": len(memory)}
    facts["resident_mb_before_opening"] = bare // MB
    facts["resident_mb_after_opening"] = resident_bytes() // MB
    for batch_size in (32, 256):
        facts[f"sample({batch_size})"] = sample_times(memory, batch_size)
    facts["resident_mb_after_sampling"] = resident_bytes() // MB
    facts["most_resident_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // MB
    print(memory.report(), file=sys.stderr)
    print(json.dumps(facts), flush=True)


def sampled_under_limit(folder: Path, capacity: int, limit_bytes: int) -> dict[str, Any]:
    """Return the output of ``sample`` and the system's figures of its memory."""
    limit = MemoryLimit.make(f"framestow-{os.getpid()}", limit_bytes)
    was_dropped = drop_page_cache()

    def enter() -> None:
        if limit is not None:
            limit.enter()
        else:
            resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))

    command = [sys.executable, __file__, "--sample", str(folder), "--transitions", str(capacity)]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=enter) as sampler:  # noqa: PLW1509  no threads
            assert sampler.stdout is not None
            line = sampler.stdout.readline()
            system = limit.figures() if limit is not None else {}
        if sampler.returncode != 0:
            raise SystemExit(f"sampling under {limit_bytes // MB} MB ended with {sampler.returncode}")
    finally:
        if limit is not None:
            limit.remove()
    kind = "memory control group, page cache included" if limit is not None else "RLIMIT_DATA, page cache not limited"
    facts: dict[str, Any] = json.loads(line)
    facts["limit"] = {"kind": kind, "page_cache_dropped_before": was_dropped, "mb": limit_bytes // MB}
    facts["limit"] |= {f"{name}_mb": value // MB for name, value in system.items() if name != "limit"}
    return facts


def drop_page_cache() -> bool:
    """Drop the system's page cache; False if this user may not."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1")
    except OSError:
        return False
    return True


def bytes_on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--transitions", type=int, default=5_000_000)
    parser.add_argument("--limit-mb", type=int, default=2_000)
    parser.add_argument("--folder", type=Path, default=HERE / ".fifty_million")
    parser.add_argument("--keep", action="store_true", help="the folder")
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sample", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build:
        build(arguments.build, arguments.transitions)
    elif arguments.sample:
        sample(arguments.sample, arguments.transitions)
    else:
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    """Build, kill, sample, and write the figures."""
    built = arguments.folder.with_suffix(".json")
    if not built.exists():
        built.write_text(json.dumps(kill_when_built(arguments.folder, arguments.transitions)))
    figures = json.loads(built.read_text())
    try:
        figures["gb_on_disk"] = round(bytes_on_disk(arguments.folder) / 1e9, 2)
        limit_bytes = arguments.limit_mb * MB
        runs = [sampled_under_limit(arguments.folder, arguments.transitions, limit_bytes) for _ in range(RUNS)]
    finally:
        if not arguments.keep:
            shutil.rmtree(arguments.folder)
            built.unlink()
    medians = [run["sample(32)"]["median_ms"] for run in runs]
    figures |= runs[0] | {"sample(32)_of_all_runs_ms": medians}
    publish("fifty_million", figures, arguments.transitions >= 50_000_000)


if __name__ == "__main__":
    main()
