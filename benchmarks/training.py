"""Measure training speed: framestow's trainer, Stable-Baselines3's, CleanRL's algorithm, and the bare learner.

    python benchmarks/training.py --busy                    everything, results/training.json: 9 minutes
    python benchmarks/training.py --steps 80 --turn 40      a trial, printed only
    python benchmarks/training.py --recipes                 the recipe laptop, results/recipe_rates.json: 3 minutes

All train DQN on Breakout with the same network, batch, samples a step, optimiser and rules of the game
(`training_systems.py` has them, and their differences). The *bare learner* updates from one fixed batch at the same
updates a step: nobody can train faster with this network on this machine. framestow's trainer is measured with one
environment, like the others, and with eight, each also with the environments in a worker process.

Each system has a process of its own. They train in turn, 200 steps each, in rounds of shuffled order, while all others
wait for input. So a slow moment of the machine affects all. Start-up, the steps before the first update and one turn
with updates are not counted. Steps a second are the median over the rounds, ratios the median over the rounds of the
ratio within a round. *One update* is timed in the end, in rounds too: each learner updates from one fixed batch of its
own. Peak RSS is the process's, with its workers; the rings are hardly filled, so their remaining growth is added for
the column of a full ring.

``--busy`` measures half as many rounds again beside a process that keeps one core busy. The profile divides an agent
step's time of framestow's trainer into its parts, in rounds of its own, since it wraps the calls. ``--recipes``
measures, alone and beside such a process, how many steps the recipe makes with its network and with the Nature network,
on as many samples a step.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from figures import publish
from framestow.process import num_cores
from training_figures import median_rate, profile_row, row
from training_systems import RECIPES, SPINNING, SYSTEMS, WARMUP
from training_turns import Rounds, TrainerProcess, busy_process, look_for_other_work, started, tell, tell_rates

TURN, RECIPE_TURN = 200, 400  # steps
USUAL_STEPS = 1_600  # steps
PROFILE_ROUNDS = 3
UPDATE_ROUNDS, UPDATES = 5, 15
PACKAGES = ("torch", "stable-baselines3", "gymnasium", "ale-py", "numpy")


def measure(names: Sequence[str], rounds: int, turn: int, threads: int, is_busy_too: bool) -> dict[str, Any]:
    """Let the systems train in turn, ``turn`` steps each in every round; return all figures."""
    with started(names, threads) as trainers:
        Rounds(trainers).take("train", WARMUP)
        all_take, ours_take = Rounds(trainers).take, Rounds(framestows(trainers)).take
        all_take("train", turn)
        quiet, busy = [], []
        for number in range(1, rounds + 1):
            quiet.append(all_take("train", turn))
            tell_rates(f"round {number} of {rounds}", quiet[-1])
            if is_busy_too and number % 2 == 0:
                with busy_process():
                    busy.append(all_take("train", turn))
                tell_rates("beside a busy process", busy[-1])
        profiles = [ours_take("profile", turn) for _ in range(min(PROFILE_ROUNDS, rounds))]
        updates = [all_take("update", min(UPDATES, turn // 4)) for _ in range(min(UPDATE_ROUNDS, rounds))]
    return {
        "systems": {name: row(name, quiet, busy, updates) for name in names},
        "profile": {name: profile_row([each[name] for each in profiles]) for name in framestows(trainers)},
    }


def measure_recipes(rounds: int) -> dict[str, Any]:
    with started(RECIPES, num_cores()) as trainers:
        take = Rounds(trainers).take
        take("train", WARMUP + RECIPE_TURN)
        quiet, busy = [], []
        for _ in range(rounds):
            quiet.append(take("train", RECIPE_TURN))
            with busy_process():
                busy.append(take("train", RECIPE_TURN))
        updates = [take("update", 20) for _ in range(rounds)]
    return {
        name: {
            "note": RECIPES[name].note,
            "steps_a_second": median_rate(quiet, name),
            "update_ms": 1e3 / median_rate(updates, name),
            "busy_steps_a_second": median_rate(busy, name),
        }
        for name in RECIPES
    }


def framestows(trainers: Mapping[str, TrainerProcess]) -> dict[str, TrainerProcess]:
    return {
        name: each for name, each in trainers.items() if name.startswith("framestow") and not name.endswith(SPINNING)
    }


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
    parser.add_argument("--recipes", action="store_true", help="measure the recipe laptop instead")
    arguments = parser.parse_args()
    if arguments.recipes:
        publish("recipe_rates", {"steps_a_turn": RECIPE_TURN, **measure_recipes(rounds=8)})
        return
    rounds, rest = divmod(arguments.steps, max(arguments.turn, 1))
    if arguments.turn < 8 or rounds < 2 or rest:
        parser.error(
            f"--steps {arguments.steps} --turn {arguments.turn}: give at least 2 whole turns of at least 8 steps"
        )
    versions = {name: installed(name) for name in PACKAGES}
    asked = arguments.only or list(SYSTEMS)
    names = [name for name in asked if not SYSTEMS[name].library or versions[SYSTEMS[name].library]]
    for name in asked:
        if name not in names:
            tell(f"left out: {name}; pip install {SYSTEMS[name].library}")
    others = look_for_other_work()
    figures = {
        "steps": arguments.steps,
        "steps_a_turn": arguments.turn,
        "threads": arguments.threads,
        "processor_percent_before": others,
        "versions": versions,
        **measure(names, rounds, arguments.turn, arguments.threads, arguments.busy),
    }
    is_usual = arguments.steps >= USUAL_STEPS and arguments.turn >= TURN and not arguments.only
    publish("training", figures, is_usual)


if __name__ == "__main__":
    main()
