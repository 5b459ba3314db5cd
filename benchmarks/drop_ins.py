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
from functools import partial
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from atari_frames import Recording, recording
from drop_in_buffers import BATCH_SIZE, STACK, Candidate, Size
from drop_in_libraries import LIBRARIES
from framestow.benchmarking.buffers import Buffer
from framestow.benchmarking.play import Play, Row
from framestow.benchmarking.result_files import write_result
from framestow.benchmarking.timing import measure_turns, settle_allocator
from framestow.process_memory import live_bytes

RESULT = Path(__file__).parent / "results" / "drop_ins.json"
GAMES = ("breakout", "ms_pacman")  # what packs well, and what does not
NUM_ACTIONS = 18
GIB = 1 << 30
RING = 2_048  # transitions of the rings that additions are timed in
ENVIRONMENTS = (1, 8)
CHUNK = 64  # calls of add between two looks at the clock
ADD_ROUNDS = 24
SAMPLE_ROUNDS, SAMPLE_CALLS = 60, 5
CHECKED_BATCHES = 8
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


def filled(candidate: Candidate, play: Play, transitions: int) -> tuple[Buffer, float]:
    """Build a buffer of one environment and fill it; return it and its bytes a transition."""
    # Loads the libraries, so that their memory is not counted.
    warm = candidate.build(Size(100, 1, play.frames.shape[1:], NUM_ACTIONS))
    fill(warm, candidate, play, 100)
    warm.sample(BATCH_SIZE)
    del warm
    before = live_bytes()
    buffer = candidate.build(Size(transitions, 1, play.frames.shape[1:], NUM_ACTIONS))
    fill(buffer, candidate, play, transitions)
    return buffer, max(live_bytes() - before, buffer.read_reported_bytes()) / transitions


def fill(buffer: Buffer, candidate: Candidate, play: Play, transitions: int) -> None:
    steps = play.steps(transitions, STACK)
    while several := list(islice(steps, candidate.steps_at_once)):
        buffer.add(buffer.prepare(Row.of(*several).copy()))


def check(candidate: Candidate, buffer: Buffer, play: Play, transitions: int) -> None:
    """End the program if a batch is not what was fed, except for what the setting gives up."""
    for _ in range(CHECKED_BATCHES):
        observations, next_observations, rewards, _ = buffer.as_arrays(buffer.sample(BATCH_SIZE))
        numbers = rewards.astype(np.int64)
        newest = play.positions[numbers % len(play.positions)]
        counts = np.full(len(numbers), candidate.pads_as_played) | (newest - play.episode_starts[newest] >= STACK - 1)
        expected = play.observations(numbers, STACK), play.observations(numbers, STACK, steps_later=1)
        follows = counts.copy()
        if not candidate.keeps_last_frames:  # then the newest transition's next observation is not there either
            follows &= ~play.has_ended(numbers) & (numbers < transitions - 1)
        if not (
            numbers.max() < transitions
            and (observations[counts] == expected[0][counts]).all()
            and (next_observations[follows] == expected[1][follows]).all()
        ):
            sys.exit(f"{candidate.name}: a batch is not what was fed; it cannot be compared")


def add_us(candidates: list[Candidate], play: Play, num_envs: int, rounds: int) -> list[float | None]:
    """Microseconds a transition of ``add`` into full rings, one figure a candidate; None of one for fewer."""
    if any(each.most_envs < num_envs for each in candidates):
        return [None for _ in candidates]
    buffers = [each.build(Size(RING, num_envs, play.frames.shape[1:], NUM_ACTIONS)) for each in candidates]
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
    candidates = LIBRARIES[library]()
    np.random.seed(0)  # noqa: NPY002  # libraries draw from it
    rows, draws = [], {}
    for candidate in candidates:
        most = int(gib * GIB / (candidate.stacks_each * STACK * play.frames[0].nbytes))
        count = transitions if candidate.is_ours else min(transitions, most)
        buffer, nbytes = filled(candidate, play, count)
        check(candidate, buffer, play, count)
        draws[candidate.name] = partial(buffer.sample, BATCH_SIZE)
        facts = {"system": candidate.name, "gives_up": candidate.gives_up, "transitions": count}
        rows.append({**facts, "bytes_a_transition": nbytes})
    settle_allocator()
    turns = measure_turns(draws, 5 if quick else SAMPLE_ROUNDS, SAMPLE_CALLS)
    del draws, buffer
    added = {num_envs: add_us(candidates, play, num_envs, 3 if quick else ADD_ROUNDS) for num_envs in ENVIRONMENTS}
    for index, row in enumerate(rows):
        row["sample_us"] = statistics.median(chain.from_iterable(turns[row["system"]])) * 1e6
        row |= {f"add_us_of_{num_envs}": times[index] for num_envs, times in added.items()}
    return rows


def show(library: str, game: str, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        of_8 = row["add_us_of_8"]
        figures = f"{row['transitions']:9,} {row['bytes_a_transition']:9,.0f} {row['sample_us']:8,.0f}"
        added = f"{row['add_us_of_1']:7.1f} {'' if of_8 is None else format(of_8, '.1f'):>7s}"
        print(f"{library:18s} {game:10s} {row['system']:22s} {figures} {added}  {row['gives_up']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=list(GAMES))
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES), metavar="LIBRARY")
    parser.add_argument("--transitions", type=int, default=100_000, help="that framestow stores")
    parser.add_argument("--gib", type=float, default=1.5, help="that a library's own buffer may take")
    parser.add_argument("--quick", action="store_true", help="few rounds of everything")
    parser.add_argument("--only", nargs=2, metavar=("LIBRARY", "GAME"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(*arguments.only, arguments.transitions, arguments.gib, arguments.quick)))
        return
    print(f"{'':18s} {'':10s} {'':22s} {'stored':>9s} {'bytes':>9s} {'sample':>8s}   add, µs, from")
    print(f"{'':18s} {'':10s} {'':22s} {'':>9s} {'a trans.':>9s} {'(32) µs':>8s}  1 env.  8 env.  gives up")
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
            show(library, game, rows)
    is_all = tuple(arguments.games) == GAMES and arguments.libraries == list(LIBRARIES) and not arguments.quick
    if is_all and arguments.transitions == 100_000:
        for library, figures in libraries.items():
            figures["version"] = version(library) if library in INSTALLED else ""
        figures = {"batch_size": BATCH_SIZE, "stack": STACK, "frame": [84, 84], "libraries": libraries}
        print("written:", write_result(RESULT, figures).name)


if __name__ == "__main__":
    main()
