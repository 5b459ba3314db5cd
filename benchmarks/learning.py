"""Write the learning curves of finished training runs as CSV, PNG and JSON.

    for seed in $(seq 100 109); do framestow train Breakout --seed $seed --run-dir runs/make-train/seed-$seed; done
    python benchmarks/learning.py make_train runs/make-train/seed-*

The runs are of one game and differ only in their seed. Reported are seeds from 100 on (seeds.py); --chose makes a
figure of seeds that chose the recipe, and says so in it. NAME.csv has a line for each finished game: seed, agent steps,
unclipped score and the mean of the last 20 games. NAME.json has the settings and the commit; mean, median and
interquartile mean over the seeds, each with its 95 % interval by bootstrap; and for each seed what was changed when it
was resumed, the final score, the time on the clock, the processor time of all processes of the run in core-hours, the
bytes of the memory and the process's resident bytes. NAME.png draws the curves beside random play and humans, and a
dashed line where settings were changed.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from framestow.benchmarking.result_files import write_result
from framestow.process import num_cores
from framestow.training.recipes import RECIPES
from framestow.training.report.page import RunRecord, rolling_mean, runs_by_settings
from framestow.training.scores import FRAMES_PER_STEP, RANDOM_AND_HUMAN, averages_of_runs
from framestow.training.settings import MAY_CHANGE_LEARNING
from framestow.training.training_run import NUM_RECENT
from seeds import refuse_chosen

matplotlib.use("Agg")
from matplotlib import pyplot

RESULTS = Path(__file__).parent / "results" / "learning"
SECONDS_PER_HOUR = 3_600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the files in benchmarks/results/learning")
    parser.add_argument("runs", type=Path, nargs="+", help="run folders")
    parser.add_argument("--commit", default="HEAD", help="that trained the runs")
    parser.add_argument(
        "--machine", type=Path, help="result file with the machine that trained them; default: this one"
    )
    parser.add_argument("--chose", action="store_true", help="the seeds chose the recipe: say so in the figure")
    arguments = parser.parse_args()
    runs = sorted((RunRecord.read(path) for path in arguments.runs), key=lambda run: run.settings.seed)
    if len({run.settings.game for run in runs}) > 1 or len(runs_by_settings(runs)) > 1:
        parser.error("the runs have different games or settings: they must differ only in seed and length")
    refuse_chosen(parser, (run.settings.seed for run in runs), chose=arguments.chose)
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_curves(RESULTS / f"{arguments.name}.csv", runs)
    entries = {"commit": commit(arguments.commit), "seeds_chose_the_recipe": arguments.chose, **figures(runs)}
    if arguments.machine:
        measured = json.loads(arguments.machine.read_text())
        entries |= {name: measured[name] for name in ("machine", "device") if name in measured}
    write_result(RESULTS / f"{arguments.name}.json", entries, command(runs))
    draw(RESULTS / f"{arguments.name}.png", runs, "these seeds chose the recipe" if arguments.chose else "")


def command(runs: list[RunRecord]) -> str:
    """Return the command that trains such runs, without what was changed when one was resumed."""
    before = {each.setting: each.before for each in reversed(runs[0].changes) if each.setting in MAY_CHANGE_LEARNING}
    settings = dataclasses.replace(runs[0].settings, **before)
    given: dict[str, Any] = {"recipe": settings.recipe, "preset": settings.preset, "steps": f"{settings.steps:_}"}
    for name, value in RECIPES[settings.recipe].values_for(num_cores()).items():
        if getattr(settings, name) != value:
            given[name] = getattr(settings, name)
    options = " ".join(option(*each) for each in given.items())
    commands = (f"framestow train {settings.game} {options} --seed {run.settings.seed}" for run in runs)
    return "; ".join(commands)


def option(name: str, value: Any) -> str:
    flag = name.replace("_", "-")
    return f"--{flag} {value}" if not isinstance(value, bool) else f"--{flag}" if value else f"--no-{flag}"


def commit(name: str) -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", name], capture_output=True, text=True, check=True, cwd=RESULTS.parent
    ).stdout.strip()


def figures(runs: list[RunRecord]) -> dict[str, Any]:
    settings = runs[0].settings
    random, human = RANDOM_AND_HUMAN[settings.game]
    return {
        "game": settings.game,
        "random_play": random,
        "human": human,
        "averages_of_seeds": averages(runs),
        "seeds": {run.settings.seed: figures_of(run) for run in runs},
        "settings": {**dataclasses.asdict(settings), "seed": [run.settings.seed for run in runs]},
    }


def averages(runs: list[RunRecord]) -> dict[str, dict[str, float]]:
    """Return averages over the seeds of the mean and of the median of each one's last games, with 95 % intervals."""
    recent = {
        f"mean_of_last_{NUM_RECENT}_games": [run.mean_of_last(NUM_RECENT) for run in runs],
        f"median_of_last_{NUM_RECENT}_games": [float(np.median(run.scores[-NUM_RECENT:])) for run in runs],
    }
    return {
        f"{average} of {name}": dict(zip(("score", "low", "high"), map(float, interval), strict=True))
        for name, scores in recent.items()
        for average, interval in averages_of_runs([score for score in scores if score is not None]).items()
    }


def figures_of(run: RunRecord) -> dict[str, Any]:
    processor_s, wall_s = run.last("cpu_s"), run.last("wall_s")
    return {
        "changes_on_resume": [dataclasses.asdict(change) for change in run.changes],
        "agent_steps": run.agent_steps,
        "emulator_frames": run.agent_steps * FRAMES_PER_STEP,
        "games": len(run.scores),
        f"mean_of_last_{NUM_RECENT}_games": run.mean_of_last(NUM_RECENT),
        f"median_of_last_{NUM_RECENT}_games": float(np.median(run.scores[-NUM_RECENT:])),
        "best_game": float(run.scores.max()),
        "hours_on_the_clock": round((wall_s or 0.0) / SECONDS_PER_HOUR, 3),
        "core_hours": round((processor_s or 0.0) / SECONDS_PER_HOUR, 3),
        "memory_bytes": run.last("memory_bytes"),
        "largest_resident_bytes": float(run.progress["process_bytes"].max()),
    }


def write_curves(path: Path, runs: list[RunRecord]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["seed", "agent_steps", "score", f"mean_of_last_{NUM_RECENT}"])
        for run in runs:
            for agent_steps, score, mean in zip(run.game_steps, run.scores, rolling_mean(run.scores), strict=True):
                writer.writerow([run.settings.seed, int(agent_steps), f"{score:g}", f"{mean:.2f}"])


def changes_by_step(runs: list[RunRecord]) -> dict[int, str]:
    """Return what was changed of the learning when runs were resumed, by agent step."""
    named: dict[int, list[str]] = {}
    for change in (change for run in runs for change in run.changes if change.setting in MAY_CHANGE_LEARNING):
        named.setdefault(change.agent_steps, []).append(f"{change.setting} {change.after}")
    return {agent_steps: ",\n".join(changes) for agent_steps, changes in named.items()}


def draw(path: Path, runs: list[RunRecord], note: str) -> None:
    settings = runs[0].settings
    figure, axes = pyplot.subplots(figsize=(5.4, 3.6 + 0.2 * (len(runs) // 5)), dpi=200, layout="constrained")
    for run in runs:
        steps = np.asarray(run.game_steps) / 1_000
        axes.plot(steps, rolling_mean(run.scores), linewidth=1.2, label=f"seed {run.settings.seed}")
    for name, score in zip(("random play", "human"), RANDOM_AND_HUMAN[settings.game], strict=True):
        axes.axhline(score, color="0.5", linewidth=1, linestyle=":")
        axes.annotate(f" {name}", (1, score), xycoords=("axes fraction", "data"), va="center", color="0.4")
    for agent_steps, changed in changes_by_step(runs).items():
        axes.axvline(agent_steps / 1_000, color="0.5", linewidth=1, linestyle="--")
        axes.annotate(f"{changed} ", (agent_steps / 1_000, 0.2), xycoords=("data", "axes fraction"), ha="right")
    axes.set_xlabel("thousand agent steps (four emulator frames each)")
    axes.set_ylabel(f"score, mean of the last {NUM_RECENT} games")
    title = f"{settings.game}, recipe {settings.recipe}, preset {settings.preset}"
    axes.set_title(f"{title}\n{note}" if note else title)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=min(5, len(runs)), frameon=False, fontsize=8)  # hides no curve
    figure.savefig(path)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
