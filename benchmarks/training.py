"""Measure training speed: framestow's trainer, Stable-Baselines3's, CleanRL's algorithm, and the bare learner.

    python benchmarks/training.py --busy                    everything, results/training.json: 11 minutes on slow cores
    python benchmarks/training.py --steps 80 --turn 40      a trial, printed only
    python benchmarks/training.py --show                    print the tables of results/training.json

All train DQN on Breakout with the same network, batch, samples a step, optimiser and rules of the game
(`training_systems.py` has them, and their differences). The *bare learner* updates from one fixed batch at the same
updates a step: nobody can train faster with this network on this machine. framestow's trainer is measured with one
environment, like the others, and with the eight of its default, each also with the environments in a worker process.

Each system has a process of its own. They train in turn, 200 steps each, in rounds of shuffled order, while all others
wait for input. So a slow moment of the machine affects all. Start-up, the steps before the first update and one turn
with updates are not counted. Steps a second are the median over the rounds, ratios the median over the rounds of the
ratio within a round. *One update* is timed in the end, in rounds too: each learner updates from one fixed batch of its
own. Peak RSS is the process's, with its workers; the rings are hardly filled, so their remaining growth is added for
the column of a full ring.

``--busy`` measures half as many rounds again beside a process that keeps one core busy. The profile divides an agent
step's time of framestow's trainer into its parts, in rounds of its own, since it wraps the calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from framestow.benchmarking.result_files import write_result
from framestow.training.run import num_cores
from training_profile import MEMORY_PARTS, PARTS
from training_systems import BARE, CAPACITY, SB3, SYSTEMS, WARMUP
from training_turns import Answer, TrainerProcess, busy_process, rate, rounds_of_turns, serve

RESULT = Path(__file__).parent / "results" / "training.json"
TURN = 200  # steps
USUAL_STEPS = 1_600  # steps
PROFILE_ROUNDS = 3
UPDATE_ROUNDS, UPDATES = 5, 15
PACKAGES = ("torch", "stable-baselines3", "gymnasium", "ale-py", "numpy")


def measure(names: Sequence[str], rounds: int, turn: int, threads: int, is_busy_too: bool) -> dict[str, Any]:
    """Let the systems train in turn, ``turn`` steps each in every round; return all figures."""
    with ExitStack() as closing:
        trainers: dict[str, TrainerProcess] = {}
        for name in names:
            trainers[name] = TrainerProcess(__file__, name, threads)
            closing.callback(trainers[name].close)
            trainers[name].ask("train", WARMUP)
            tell(f"started: {name}")
        rounds_of_turns(trainers, "train", 1, turn, lambda _: None)
        quiet = rounds_of_turns(trainers, "train", rounds, turn, tell)
        busy: dict[str, list[Answer]] = {}
        if is_busy_too:
            with busy_process():
                busy = rounds_of_turns(trainers, "train", rounds // 2, turn, tell)
        ours = {name: each for name, each in trainers.items() if name.startswith("framestow")}
        profile = rounds_of_turns(ours, "profile", min(PROFILE_ROUNDS, rounds), turn, tell)
        updates = rounds_of_turns(trainers, "update", min(UPDATE_ROUNDS, rounds), min(UPDATES, turn // 4), tell)
    return {
        "systems": {name: row(name, quiet, busy, updates) for name in names},
        "profile": {name: profile_row(answers) for name, answers in profile.items()},
    }


def row(
    name: str,
    quiet: Mapping[str, Sequence[Answer]],
    busy: Mapping[str, Sequence[Answer]],
    updates: Mapping[str, Sequence[Answer]],
) -> dict[str, Any]:
    """Return a system's figures."""
    answers = quiet[name]
    seconds = sum(answer["seconds"] for answer in answers)
    last = updates[name][-1]
    figures = {
        "note": SYSTEMS[name].note,
        "torch_threads": last["torch_threads"],
        "steps_a_second": statistics.median(map(rate, answers)),
        "of_each_round": [round(rate(answer), 1) for answer in answers],
        "of_bare_learner": ratio(quiet, name, BARE),
        "of_stable_baselines3": ratio(quiet, name, quicker_sb3(quiet)),
        "update_ms": 1e3 / statistics.median(map(rate, updates[name])),
        "cores_used": sum(answer["processor_seconds"] for answer in answers) / seconds,
        "peak_bytes": last["peak_bytes"],
        "peak_bytes_of_a_full_ring": last["peak_bytes"] + remaining_growth(answers),
    }
    if busy:
        figures["busy_steps_a_second"] = statistics.median(map(rate, busy[name]))
        figures["busy_of_quiet"] = figures["busy_steps_a_second"] / figures["steps_a_second"]
        figures["busy_of_stable_baselines3"] = ratio(busy, name, quicker_sb3(quiet))
    return figures


def quicker_sb3(quiet: Mapping[str, Sequence[Answer]]) -> str:
    """Return the name of Stable-Baselines3's quicker setting."""
    settings = [name for name in quiet if name.startswith(SB3)]
    return max(settings, key=lambda name: statistics.median(map(rate, quiet[name])), default="")


def ratio(answers: Mapping[str, Sequence[Answer]], name: str, other: str) -> float | None:
    """Return how many times the other's rate this one's is, compared round by round; ``None`` without the other."""
    if other not in answers:
        return None
    pairs = zip(answers[name], answers[other], strict=True)
    return statistics.median(rate(ours) / rate(theirs) for ours, theirs in pairs)


def remaining_growth(answers: Sequence[Answer]) -> float:
    """Return the bytes that a ring of ``CAPACITY`` transitions still grows, from its growth in the second half."""
    middle, end = answers[len(answers) // 2 - 1], answers[-1]
    new = end["stored_transitions"] - middle["stored_transitions"]
    each = (end["stored_bytes"] - middle["stored_bytes"]) / new if new else 0.0
    return float(each * (CAPACITY - end["stored_transitions"]))


def profile_row(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the milliseconds that each part takes of an agent step, over all rounds."""
    steps = sum(answer["steps"] for answer in answers)

    def each_ms(key: str) -> dict[str, float]:
        return {
            part: 1e3 * sum(answer[key].get(part, 0.0) for answer in answers) / steps
            for part in PARTS
            if key == "parts" or any(part in answer[key] for answer in answers)
        }

    return {"ms_a_step": each_ms("parts"), "ms_a_step_in_other_threads": each_ms("parts_beside")}


def show(figures: Mapping[str, Any]) -> None:
    """Print the tables: speeds, a busy machine, the profile."""
    systems = figures["systems"]
    print("\n| trainer | steps a second | of the bare learner | of Stable-Baselines3 | one update, ms | peak RSS, MiB")
    print("| with a full ring | cores used |", "\n|---|--:|--:|--:|--:|--:|--:|--:|", sep="")
    for name, each in systems.items():
        cells = [
            f"{each['steps_a_second']:.1f}",
            times(each["of_bare_learner"]),
            times(each["of_stable_baselines3"]),
            f"{each['update_ms']:.1f}",
            f"{each['peak_bytes'] / 2**20:,.0f}",
            f"{each['peak_bytes_of_a_full_ring'] / 2**20:,.0f}",
            f"{each['cores_used']:.2f}",
        ]
        print(f"| {name} | {' | '.join(cells)} |")
    if any("busy_of_quiet" in each for each in systems.values()):
        print("\n| trainer | steps a second beside a busy process | of its own alone | of Stable-Baselines3 |")
        print("|---|--:|--:|--:|")
        for name, each in systems.items():
            beside = [f"{each['busy_steps_a_second']:.1f}", times(each["busy_of_quiet"])]
            print(f"| {name} | {' | '.join([*beside, times(each['busy_of_stable_baselines3'])])} |")
    show_profile(figures["profile"])


def show_profile(profile: Mapping[str, Any]) -> None:
    """Print the parts of an agent step, a column a trainer: milliseconds and share."""
    print(f"\n| ms of an agent step | {' | '.join(profile)} |\n|---|{'--:|' * len(profile)}")
    for part in PARTS:
        cells = []
        for each in profile.values():
            own = each["ms_a_step"]
            cells.append(f"{own[part]:.2f} ({100 * own[part] / sum(own.values()):.1f} %)")
        print(f"| {part} | {' | '.join(cells)} |")
    sums = [sum(each["ms_a_step"].values()) for each in profile.values()]
    print(f"| all | {' | '.join(f'{each:.2f}' for each in sums)} |")
    for name, each in profile.items():
        if each["ms_a_step_in_other_threads"]:
            print(f"{name}, in other threads: {each['ms_a_step_in_other_threads']}")
    largest = max(
        each["ms_a_step"][part] / sum(each["ms_a_step"].values()) for each in profile.values() for part in MEMORY_PARTS
    )
    print(f"the memory's largest part: {100 * largest:.1f} %")


def times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=USUAL_STEPS, help="of each system, a multiple of --turn")
    parser.add_argument("--turn", type=int, default=TURN, help="steps of a system in a round")
    parser.add_argument("--threads", type=int, default=num_cores(), help="of PyTorch, for every system")
    parser.add_argument("--busy", action="store_true", help="measure also beside a busy process")
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, metavar="SYSTEM", help="measure these, printed only")
    parser.add_argument("--show", action="store_true", help="print the tables of the last result")
    parser.add_argument("--system", choices=SYSTEMS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.system:
        serve(arguments.system, arguments.threads)
        return
    if arguments.show:
        show(json.loads(RESULT.read_text(encoding="utf-8")))
        return
    rounds, rest = divmod(arguments.steps, max(arguments.turn, 1))
    if arguments.turn < 8 or rounds < 2 or rest:
        parser.error(
            f"--steps {arguments.steps} --turn {arguments.turn}: give at least 2 whole turns of at least 8 steps"
        )
    versions = {name: installed(name) for name in PACKAGES}
    names = [name for name in arguments.only or SYSTEMS if not SYSTEMS[name].library or versions[SYSTEMS[name].library]]
    for name in SYSTEMS.keys() - set(names):
        tell(f"left out: {name}" + (" (not installed)" if not arguments.only else ""))
    others = psutil.cpu_percent(interval=2.0)
    if others > 10:
        tell(f"the processors are {others:.0f} % busy before the start: other work disturbs the figures")
    figures = {
        "steps": arguments.steps,
        "steps_a_turn": arguments.turn,
        "threads": arguments.threads,
        "processor_percent_before": others,
        "versions": versions,
        **measure(names, rounds, arguments.turn, arguments.threads, arguments.busy),
    }
    show(figures)
    if arguments.steps >= USUAL_STEPS and arguments.turn >= TURN and not arguments.only:
        print("written:", write_result(RESULT, figures).name)


if __name__ == "__main__":
    main()
