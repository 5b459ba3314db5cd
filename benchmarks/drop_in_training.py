"""Measure Stable-Baselines3's DQN with framestow's buffer instead of its own.

    python benchmarks/drop_in_training.py                     10,000 steps each, results/drop_in_training.json
    python benchmarks/drop_in_training.py --steps 2_000       a trial, printed only

Trains DQN on ALE Breakout as training.py does, on one thread, with each of three buffers, each in its own process, with
the same seed:

- framestow's, of 1,000,000 transitions
- Stable-Baselines3's, of as many transitions as fit into half of the free memory
- the same with ``optimize_memory_usage``, which gives up truncation

The processes train in turn, 1,000 steps each, so that other work of the machine affects all of them. Steps per second
are the median over the turns but the first. Stable-Baselines3's arrays become resident as they are filled. So the
memory of a full process is its final memory plus the buffer's remaining growth, which the second half of the steps
gives: from figures import publish
from framestow's own count, and from the arrays of the others.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from typing import Any

from figures import publish
from training_figures import growth_a_transition, median_rate
from training_systems import BUFFERS, MILLION
from training_turns import Rounds, started, tell_rates

TURN = 1_000  # steps
USUAL_STEPS = 10_000


def measure(steps: int) -> dict[str, dict[str, Any]]:
    """Let the buffers' processes train in turn."""
    with started(BUFFERS, 1) as trainers:
        take, rounds = Rounds(trainers).take, []
        for number in range(1, steps // TURN + 1):
            rounds.append(take("train", TURN))
            tell_rates(f"{number * TURN:,} of {steps:,} steps", rounds[-1])
        weights = take("weights", 0)
    figures = {}
    for name, system in BUFFERS.items():
        answers = [each[name] for each in rounds]
        growth, resident = growth_a_transition(answers), answers[-1]["resident_bytes"]
        figures[name] = {
            "gives_up": system.note,
            "steps_a_second": median_rate(rounds[1:], name),
            "resident_bytes": resident,
            "bytes_a_transition": growth,
            "resident_bytes_of_a_million": resident + growth * (MILLION - answers[-1]["stored_transitions"]),
            **weights[name],
        }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=USUAL_STEPS, help=f"of the agent, a multiple of {TURN:,}")
    arguments = parser.parse_args()
    if arguments.steps % TURN or arguments.steps < 2 * TURN:
        parser.error(f"--steps is {arguments.steps}: it must be a multiple of {TURN:,} from {2 * TURN:,} on")
    figures = measure(arguments.steps)
    versions = {name: version(name) for name in ("stable-baselines3", "torch")}
    result = {"steps": arguments.steps, "versions": versions, "buffers": figures}
    publish("drop_in_training", result, arguments.steps == USUAL_STEPS)


if __name__ == "__main__":
    main()
