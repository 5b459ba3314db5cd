"""Measure how many steps a second the recipe laptop makes, and with the Nature network instead of its own.

    python benchmarks/recipe_rates.py

All train on the same samples a step, a batch of 32 every 8 steps. Each trains in a process of its own, in turn, while
the others wait, as in training.py; then again beside a process that keeps one core busy. Ratios are medians of the
ratio within a round.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from framestow.benchmarking.result_files import write_result
from framestow.machine_limits import num_cores
from training import tell, tell_rates
from training_figures import median_rate, ratio
from training_systems import RECIPES, WARMUP
from training_turns import Rounds, TrainerProcess, busy_process, serve

RESULT = Path(__file__).parent / "results" / "recipe_rates.json"
TURN = 400  # steps


def measure(rounds: int) -> dict[str, Any]:
    """Return the rates of the recipes alone and beside a busy process."""
    with ExitStack() as closing:
        trainers: dict[str, TrainerProcess] = {}
        for name in RECIPES:
            trainers[name] = TrainerProcess(__file__, name, num_cores())
            closing.callback(trainers[name].close)
            trainers[name].ask("train", WARMUP)
        take = Rounds(trainers).take
        take("train", TURN)
        quiet, busy = [], []
        for number in range(1, rounds + 1):
            quiet.append(take("train", TURN))
            tell_rates(f"round {number} of {rounds}", quiet[-1])
            with busy_process():
                busy.append(take("train", TURN))
            tell_rates("beside a busy process", busy[-1])
        updates = [take("update", 20) for _ in range(rounds)]
    nature = list(RECIPES)[1:]
    return {
        name: {
            "note": RECIPES[name].note,
            "steps_a_second": median_rate(quiet, name),
            "update_ms": 1e3 / median_rate(updates, name),
            "of_laptop": ratio(quiet, name, "laptop"),
            "busy_steps_a_second": median_rate(busy, name),
            "busy_of_quiet": median_rate(busy, name) / median_rate(quiet, name),
        }
        for name in ("laptop", *nature)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--system", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.system:
        serve(arguments.system, arguments.threads)
        return
    others = psutil.cpu_percent(interval=2.0)
    if others > 10:
        tell(f"the processors are {others:.0f} % busy before the start: other work disturbs the figures")
    figures = {"processor_percent_before": others, "steps_a_turn": TURN, **measure(arguments.rounds)}
    print("written:", write_result(RESULT, figures).name)


if __name__ == "__main__":
    main()
