"""How long does a learner's update wait for its memory, with framestow and with other libraries?

    python benchmarks/learners.py                                  both games, results/learners.json
    python benchmarks/learners.py --games Breakout --transitions 50_000 --quick     a trial, printed only

Four questions, of a million transitions of a game played at random (`framestow.benchmarking.play`, 50,000 frames,
repeated), observations of 4 frames of 84 x 84:

    uniform       a batch sampled uniformly
    prioritized   a batch sampled by priority (alpha 0.5, beta 0.4) with its weights, and new priorities for it
    n_step        a batch of 3-step transitions (discount 0.99)
    sequences     sequences of 80 steps

The systems are those of `learner_systems.py`, each at its best setting for the same work; the result says what it
gives up. Before anything is timed, batches are compared with the play, and samples by priority with the priorities. A
system that takes more than `--gib` for a million transitions has as many as fit. No two large systems fit into RAM
together, so each is measured in a process with framestow (one thread, and two) and with the bare copy of as many frames
from an uncompressed array of 2 GiB, all in turn. Ratios are within a process. Times are median microseconds of single
calls. PyTorch has one thread or its default, whichever is quicker.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from figures import publish
from framestow.benchmarking.libraries import LIBRARIES
from framestow.benchmarking.play import record_play
from framestow.benchmarking.timing import BareCopy, measure_turns, settle_allocator
from framestow.process import live_bytes
from learner_systems import GROUPS, framestow, saved_memory
from learner_workload import QUESTIONS, SEQUENCE_LENGTH, Learner, Question, Workload, check_priorities, check_samples

GIB = 1 << 30
GAMES = ("Breakout", "MsPacman")  # cheap and costly to unpack
NUM_FRAMES = 50_000  # played a game
STACK, N_STEP, DISCOUNT = 4, 3, 0.99
THREADS = (1, 2)
BARE_BYTES = 2 * GIB
ROUNDS = {32: 80, 256: 30, 1024: 10}  # for each batch size
SEQUENCE_ROUNDS = {16: 30, 32: 20, 256: 5}  # 1,024 sequences of stacks would take over 2.3 GB
CALLS = 3  # a round


def window_length(question: Question) -> int:
    """Return how many frames the bare copy copies for a sample: the fewest that contain all its observations."""
    return STACK + {"uniform": 1, "prioritized": 1, "n_step": N_STEP, "sequences": SEQUENCE_LENGTH}[question]


def prepare(game: str, transitions: int, folder: Path) -> float:
    """Play the game and save framestow's memories of it into the folder; return their bytes a transition."""
    workload = Workload(record_play(game, NUM_FRAMES), transitions, STACK, N_STEP, DISCOUNT)
    (folder / "workload").write_bytes(pickle.dumps(workload))
    saved_memory(workload, N_STEP, folder / f"{N_STEP}-step")
    return saved_memory(workload, 1, folder / "1-step")


def framestow_learners(question: Question, folder: Path) -> list[Learner]:
    path = folder / f"{N_STEP if question == 'n_step' else 1}-step"
    return [framestow(question, path, threads) for threads in THREADS]


def measure(name: str, folder: Path, gib: float, quick: bool) -> list[dict[str, Any]]:
    """Measure one group's systems beside framestow's; run in a process of its own."""
    warnings.simplefilter("ignore")
    workload: Workload = pickle.loads((folder / "workload").read_bytes())
    group = GROUPS[name]
    needed = group.bytes_a_transition(workload.play.frames[0].nbytes, STACK)
    shorter = replace(workload, num_steps=min(workload.num_steps, int(gib * GIB) // needed))
    group.build(replace(workload, num_steps=1_000))  # so that what libraries allocate once is not counted
    before = live_bytes()
    others = group.build(shorter)
    bytes_each = (live_bytes() - before) / shorter.num_steps / group.copies
    bare = BareCopy(workload.play, BARE_BYTES)
    settle_allocator()
    rows = []
    for question in group.questions:
        ours = framestow_learners(question, folder)
        asked = [system for system in others if system.question == question]
        for system, fed in [*((each, workload) for each in ours), *((each, shorter) for each in asked)]:
            check(system, fed)
        rows += timed(question, bare, ours, asked, quick)
    facts = {"version": LIBRARIES[group.library].version, "bytes_a_transition": bytes_each}
    return [row | (facts if not row["system"].startswith(("framestow", "bare")) else {}) for row in rows]


def check(system: Learner, workload: Workload) -> None:
    if system.question == "prioritized":
        check_priorities(system)
    check_samples(system, workload, 16 if system.question == "sequences" else 256)


def timed(
    question: Question, bare: BareCopy, ours: list[Learner], others: list[Learner], quick: bool
) -> list[dict[str, Any]]:
    """Time one question's systems in turn, for every size of a batch; PyTorch's with one thread and its default."""
    torch: Any = sys.modules.get("torch")
    default = torch.get_num_threads() if torch else 1
    rows = []
    for batch_size, rounds in (SEQUENCE_ROUNDS if question == "sequences" else ROUNDS).items():
        candidates: dict[str, Callable[[], object]] = {}
        candidates["bare copy"] = partial(bare.copy, batch_size, window_length(question))
        before_turn = {}
        names: dict[str, Learner] = {}
        for system in (*ours, *others):
            for threads in dict.fromkeys((1, default)) if system.uses_torch else (0,):
                name = f"{system.library}: {system.setting}, {threads}"
                names[name] = system
                candidates[name] = partial(system.buffer.sample, batch_size)
                if threads:
                    before_turn[name] = partial(torch.set_num_threads, threads)
        turns = measure_turns(candidates, 3 if quick else rounds, CALLS, 1 if quick else 3, before_turn=before_turn)
        medians = {name: statistics.median(chain.from_iterable(times)) * 1e6 for name, times in turns.items()}
        rows += [row(question, batch_size, name, medians, names) for name in medians]
    return rows


def row(
    question: Question, batch_size: int, name: str, medians: dict[str, float], systems: dict[str, Learner]
) -> dict[str, Any]:
    ours = next(name for name in medians if name.startswith("framestow:"))
    figures = {
        "question": question,
        "batch_size": batch_size,
        "us": medians[name],
        "times_bare_copy": medians[name] / medians["bare copy"],
        "times_framestow": medians[name] / medians[ours],
    }
    if name not in systems:
        return {"system": name, **figures}
    system = systems[name]
    return {
        "system": system.library,
        "setting": system.setting,
        "gives_up": system.gives_up,
        "transitions": system.num_transitions,
        "torch_threads": int(name.rpartition(", ")[2]) or None,
        **figures,
    }


def measured(game: str, names: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the groups on a game, a process each."""
    rows: list[dict[str, Any]] = []
    failures = {}
    with tempfile.TemporaryDirectory() as scratch:
        framestow_bytes = prepare(game, arguments.transitions, Path(scratch))
        for name in names:
            start = time.monotonic()
            command = [sys.executable, __file__, "--group", name, "--folder", scratch, "--gib", str(arguments.gib)]
            ran = subprocess.run(
                [*command, *["--quick"] * arguments.quick], check=False, capture_output=True, text=True
            )
            print(f"{game}, {name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
            if ran.returncode:
                failures[name] = ran.stderr.strip().splitlines()[-1]
                print(ran.stderr, file=sys.stderr)
            else:
                rows += json.loads(ran.stdout.splitlines()[-1])
    return {"framestow_bytes_a_transition": framestow_bytes, "rows": combined(rows), "failed": failures}


def combined(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each system, question and batch size.

    Another library's row has its better number of threads; framestow's has the median over all processes.
    """
    kinds: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for each in rows:
        kinds.setdefault((each["question"], each["batch_size"], each["system"], each.get("setting")), []).append(each)
    result = []
    for same in kinds.values():
        best = min(same, key=lambda each: each["us"])
        if best["system"].startswith(("framestow", "bare")):
            for name in ("us", "times_bare_copy", "times_framestow"):
                best[name] = statistics.median(each[name] for each in same)
        result.append(best)
    return sorted(result, key=lambda each: (QUESTIONS.index(each["question"]), each["batch_size"], each["us"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=list(GAMES))
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--gib", type=float, default=8.0, help="that another library may take")
    parser.add_argument("--quick", action="store_true", help="three rounds of everything")
    parser.add_argument("--group", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.group:
        print(json.dumps(measure(arguments.group, arguments.folder, arguments.gib, arguments.quick)))
        return
    games = {}
    for game in arguments.games:
        games[game] = measured(game, arguments.groups, arguments)
    figures = {"transitions": arguments.transitions, "games": games}
    publish("learners", figures, arguments == parser.parse_args([]))


if __name__ == "__main__":
    main()
