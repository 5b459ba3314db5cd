"""Measure how many steps a second the recipe laptop makes, and with the Nature network instead of its own.

    python benchmarks/recipe_rates.py

All train on the same samples a step, a batch of 32 every 8 steps. Each trains in a process of its own, in turn, while
the others wait, as in training.py; then again beside a process that keeps one core busy. Ratios are medians of the
ratio within a round.
"""

from __future__ import annotations

import argparse
from typing import Any

from figures import publish
from framestow.machine_limits import num_cores
from training_figures import median_rate, ratio
from training_systems import RECIPES, WARMUP
from training_turns import Rounds, busy_process, look_for_other_work, started, tell_rates

TURN = 400  # steps


def measure(rounds: int) -> dict[str, Any]:
    """Return the rates of the recipes alone and beside a busy process."""
    with started(RECIPES, num_cores()) as trainers:
        take = Rounds(trainers).take
        take("train", WARMUP + TURN)
        quiet, busy = [], []
        for number in range(1, rounds + 1):
            quiet.append(take("train", TURN))
            tell_rates(f"round {number} of {rounds}", quiet[-1])
            with busy_process():
                busy.append(take("train", TURN))
            tell_rates("beside a busy process", busy[-1])
        updates = [take("update", 20) for _ in range(rounds)]
    return {
        name: {
            "note": RECIPES[name].note,
            "steps_a_second": median_rate(quiet, name),
            "update_ms": 1e3 / median_rate(updates, name),
            "of_laptop": ratio(quiet, name, "laptop"),
            "busy_steps_a_second": median_rate(busy, name),
            "busy_of_quiet": median_rate(busy, name) / median_rate(quiet, name),
        }
        for name in RECIPES
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    others = look_for_other_work()
    figures = {"processor_percent_before": others, "steps_a_turn": TURN, **measure(arguments.rounds)}
    publish("recipe_rates", figures)


if __name__ == "__main__":
    main()
