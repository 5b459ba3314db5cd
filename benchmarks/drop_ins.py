"""How many bytes and how much time do the drop-ins take, and the buffers that they replace?

    python benchmarks/drop_ins.py                                     everything, results/drop_ins.json
    python benchmarks/drop_ins.py --libraries tianshou --quick        a trial, printed only

Each library's own buffer and framestow's drop-in store the same recorded frames (atari_frames.py: 20,000 of random
play, repeated) through that library's own calls, as stacks of 4 frames of 84 x 84, and sample batches of 32. Each
library's own buffer is measured at its best setting that keeps truncation, and at the setting that takes the fewest
bytes; the result says what that gives up.

- *bytes a transition*: growth of the resident set, after freed memory is returned, over --transitions (framestow) or as
  many as fit into --gib (the library's own buffer; its bytes do not change with more).
- *sample*: median of single calls, all buffers of a library in turn, PyTorch with one thread.
- *add*: from 1 and from 8 environments, microseconds a transition, into rings that are full: medians of chunks of 64
  calls in turn. Steps and their containers are built before.

Before they are timed, batches are compared with the frames. Each library is measured in its own process. All of the
libraries must be installed, as in the environments of `make bench` and `make libraries`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import chain, islice
from typing import Any

import numpy as np

from atari_frames import Recording, recording
from drop_in_systems import DROP_INS, OURS
from figures import publish
from framestow.benchmarking.buffers import Buffer
from framestow.benchmarking.libraries import System, Task
from framestow.benchmarking.measurement import check_batches
from framestow.benchmarking.play import Play, Row
from framestow.benchmarking.timing import measure_turns, settle_allocator
from framestow.process import live_bytes

GAMES = ("breakout", "ms_pacman")  # what packs well, and what does not
NUM_ACTIONS = 18
STACK, BATCH_SIZE = 4, 32
STEPS_AT_ONCE = {"torchrl": 50}  # of one environment, that a buffer is filled with, as a collector does
OF_ONE_ENVIRONMENT = ("gymnasium", "nnabla-rl", "berkeley")
GIB = 1 << 30
RING = 2_048  # transitions of the rings that additions are timed in
CHUNK = 64  # calls of add between two looks at the clock
ADD_ROUNDS = 24
SAMPLE_ROUNDS, SAMPLE_CALLS = 60, 5
INSTALLED = ("stable-baselines3", "tianshou", "torchrl", "gymnasium")  # the others are scripts, or not on PyPI


def play_of(game: str, recorded: Recording) -> Play:
    """The transitions between the frames of a recording; the episode that it ends in is cut off there."""
    starts = np.zeros(len(recorded.frames), np.int64)
    starts[list(recorded.episode_starts)] = list(recorded.episode_starts)
    starts = np.maximum.accumulate(starts)
    positions = np.flatnonzero(starts[1:] == starts[:-1])
    is_last = np.append(starts[1:] != starts[:-1], True)  # of a frame: whether its episode ends with it
    truncated = positions + 2 == len(starts)  # where the recording ends
    terminated = is_last[positions + 1] & ~truncated
    actions = np.random.default_rng(0).integers(NUM_ACTIONS, size=len(positions))
    return Play(game, NUM_ACTIONS, recorded.frames, starts, positions, actions, terminated, truncated)


def rows_of(play: Play, num_envs: int) -> Iterator[Row]:
    """Yield the play without end, each environment from another reset; a reward is its transition's number."""
    resets = np.flatnonzero(play.episode_starts[play.positions] == play.positions)
    apart = len(play.positions) // num_envs
    firsts = [int(resets[np.searchsorted(resets, env * apart) % len(resets)]) for env in range(num_envs)]
    for steps in zip(*(play.steps(1 << 24, STACK, first=first) for first in firsts), strict=True):
        yield Row.of(*steps).copy()


def filled(system: System, task: Task, play: Play, at_once: int) -> tuple[Buffer, float]:
    """Build a buffer and fill it; return it and its bytes a transition."""
    # Loads the libraries, so that their memory is not counted.
    warm_task = replace(task, capacity=100)
    warm = system.build(warm_task)
    fill(warm, warm_task, play, at_once)
    warm.sample(BATCH_SIZE)
    del warm
    before = live_bytes()
    buffer = system.build(task)
    fill(buffer, task, play, at_once)
    return buffer, max(live_bytes() - before, buffer.read_reported_bytes()) / task.capacity


def fill(buffer: Buffer, task: Task, play: Play, at_once: int) -> None:
    steps = play.steps(task.capacity, STACK)
    while several := list(islice(steps, at_once)):
        buffer.add(buffer.prepare(Row.of(*several).copy()))


def add_us(systems: list[System], task: Task, play: Play, rounds: int) -> list[float]:
    """Microseconds a transition of ``add`` into full rings, one figure a system."""
    num_envs = task.num_envs
    buffers = [system.build(task) for system in systems]
    rows = rows_of(play, num_envs)
    for row in islice(rows, RING // num_envs):
        for buffer in buffers:
            buffer.add(buffer.prepare(row))
    times: list[list[float]] = [[] for _ in buffers]
    for _ in range(rounds):
        chunk = list(islice(rows, CHUNK))
        for buffer, seconds in zip(buffers, times, strict=True):
            prepared = [buffer.prepare(row) for row in chunk]
            start = time.perf_counter()
            for step in prepared:
                buffer.add(step)
            seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds) / (CHUNK * num_envs) * 1e6 for seconds in times]


def measure(library: str, game: str, transitions: int, gib: float, quick: bool) -> list[dict[str, Any]]:
    """Measure one library's buffers on one game; run in a process of its own."""
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    play = play_of(game, recording(game))
    systems = DROP_INS[library]()
    np.random.seed(0)  # noqa: NPY002  # libraries draw from it
    task = Task(transitions, play.frames.shape[1:], STACK, NUM_ACTIONS, BATCH_SIZE, threads=1, seed=0)
    rows, draws = [], {}
    for system in systems:
        most = transitions if system.name == OURS else int(gib * GIB / system.bytes_reserved(task))
        smaller = replace(task, capacity=min(transitions, most))
        buffer, nbytes = filled(system, smaller, play, STEPS_AT_ONCE.get(library, 1))
        check_batches(system, buffer, play, smaller, smaller.capacity)
        draws[system.name] = partial(buffer.sample, BATCH_SIZE)
        facts = {"system": system.name, "gives_up": system.gives_up, "transitions": smaller.capacity}
        rows.append({**facts, "bytes_a_transition": nbytes})
    settle_allocator()
    turns = measure_turns(draws, 5 if quick else SAMPLE_ROUNDS, SAMPLE_CALLS)
    del draws, buffer
    for row in rows:
        row["sample_us"] = statistics.median(chain.from_iterable(turns[row["system"]])) * 1e6
    for num_envs in (1,) if library in OF_ONE_ENVIRONMENT else (1, 8):
        ring = replace(task, capacity=RING, num_envs=num_envs)
        for row, microseconds in zip(rows, add_us(systems, ring, play, 3 if quick else ADD_ROUNDS), strict=True):
            row[f"add_us_of_{num_envs}"] = microseconds
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=list(GAMES))
    parser.add_argument("--libraries", nargs="+", choices=DROP_INS, default=list(DROP_INS), metavar="LIBRARY")
    parser.add_argument("--transitions", type=int, default=100_000, help="that framestow stores")
    parser.add_argument("--gib", type=float, default=1.5, help="that a library's own buffer may take")
    parser.add_argument("--quick", action="store_true", help="few rounds of everything")
    parser.add_argument("--only", nargs=2, metavar=("LIBRARY", "GAME"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(*arguments.only, arguments.transitions, arguments.gib, arguments.quick)))
        return
    libraries: dict[str, Any] = {}
    for library in arguments.libraries:
        libraries[library] = {"games": {}}
        for game in arguments.games:
            command = [sys.executable, __file__, *sys.argv[1:], "--only", library, game]
            ran = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
            if ran.returncode:
                sys.exit(f"{library}, {game}: it ended with {ran.returncode}; see above")
            rows = json.loads(ran.stdout.splitlines()[-1])
            libraries[library]["games"][game] = rows
        libraries[library]["version"] = version(library) if library in INSTALLED else ""
    is_all = tuple(arguments.games) == GAMES and arguments.libraries == list(DROP_INS) and not arguments.quick
    figures = {"batch_size": BATCH_SIZE, "stack": STACK, "frame": [84, 84], "libraries": libraries}
    publish("drop_ins", figures, is_all and arguments.transitions == parser.get_default("transitions"))


if __name__ == "__main__":
    main()
