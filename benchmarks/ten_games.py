"""Compare training runs of several games with Dopamine's published curves, at the same number of agent steps.

    framestow train Qbert --preset dopamine --steps 500_000 --run-dir runs/ten/Qbert    and so each game
    python benchmarks/ten_games.py runs/ten/*        results/learning/ten_games.json, .csv and .png

A longer run begins like a shorter one, so of a longer run the first 500,000 steps are compared. Games that are not
given keep the figures and the curve that they have from runs with the same settings.

Dopamine publishes the mean score of the training games in each 250,000 agent steps (dopamine_curves.json). The same
mean of a run is compared with it: of the games that ended in the last 250,000 steps.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from framestow.benchmarking.result_files import write_result
from framestow.training.report import Numbers, RunRecord, rolling_mean, runs_by_settings
from framestow.training.scores import RANDOM_AND_HUMAN
from framestow.training.settings import MAY_CHANGE_LEARNING, Settings
from learning import RESULTS, command, commit, figures_of

matplotlib.use("Agg")
from matplotlib import pyplot

PUBLISHED = json.loads((Path(__file__).parent / "dopamine_curves.json").read_text(encoding="utf-8"))
POINT = PUBLISHED["steps_a_point"]
COLUMNS = 5  # of the picture

Curve = tuple[Numbers, Numbers]  # agent steps at the end of each game, and its score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, one a game")
    parser.add_argument("--steps", type=int, default=500_000, help="agent steps that are compared")
    parser.add_argument("--commit", default="HEAD", help="that trained the runs")
    arguments = parser.parse_args()
    steps = arguments.steps
    given = [RunRecord.read(path) for path in arguments.runs]
    by_game = {run.settings.game: run for run in given}
    if len(by_game) < len(given):
        parser.error(f"{len(given)} runs of {len(by_game)} games: give one run of each game")
    if unknown := sorted(set(by_game) - set(PUBLISHED["games"])):
        parser.error(f"there is no published curve of {', '.join(unknown)}: leave it out")
    if steps % POINT:
        parser.error(f"--steps is {steps:,}: a multiple of {POINT:,} can be compared")
    for run in given:
        if run.agent_steps < steps:
            parser.error(f"{run.folder.path} has {run.agent_steps:,} steps: resume it until {steps:,}")
        if any(change.agent_steps < steps for change in run.changes if change.setting in MAY_CHANGE_LEARNING):
            parser.error(f"{run.folder.path} was resumed with other settings before step {steps:,}: leave it out")
    runs = [first_steps(run, steps) for run in given]
    if len(runs_by_settings(runs)) > 1:
        parser.error("the runs have different settings: they must differ only in game, seed and length")
    settings = {"steps": steps, **learning_settings(runs[0].settings)}
    games, curves = read_earlier(settings)
    games |= {run.settings.game: beside_published(run, steps) | {"commit": commit(arguments.commit)} for run in runs}
    curves |= {run.settings.game: (run.game_steps, run.scores) for run in runs}
    games, curves = in_order(games), in_order(curves)
    print(table(games))
    entries = {"published": PUBLISHED["source"], "settings": settings, "games": games}
    trained = command(runs[:1]).replace(f"train {runs[0].settings.game}", "train GAME")
    print("written:", write_result(RESULTS / "ten_games.json", entries, trained).name)
    write_curves(RESULTS / "ten_games.csv", curves)
    draw(RESULTS / "ten_games.png", curves, steps)


def first_steps(run: RunRecord, steps: int) -> RunRecord:
    """Return what a run would have been with this number of agent steps."""
    games, rows = run.game_steps <= steps, run.progress["agent_steps"] <= steps
    return dataclasses.replace(
        run,
        settings=dataclasses.replace(run.settings, steps=steps),
        agent_steps=steps,
        game_steps=run.game_steps[games],
        scores=run.scores[games],
        progress={name: column[rows] for name, column in run.progress.items()},
    )


def learning_settings(settings: Settings) -> dict[str, Any]:
    """Return what decides the learning, without game and seed."""
    fixed = [field.name for field in dataclasses.fields(Settings) if not field.metadata["may_change"]]
    names = set(fixed).union(MAY_CHANGE_LEARNING).difference(("game", "seed"))
    return {name: value for name, value in dataclasses.asdict(settings).items() if name in names}


def read_earlier(settings: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Curve]]:
    """Return the figures and the curves that earlier calls wrote of runs with these settings, by game."""
    if not (RESULTS / "ten_games.json").exists():
        return {}, {}
    earlier = json.loads((RESULTS / "ten_games.json").read_text(encoding="utf-8"))
    if earlier["settings"] != settings:
        return {}, {}
    with (RESULTS / "ten_games.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    curves: dict[str, Curve] = {}
    for game in earlier["games"]:
        of_game = [row for row in rows if row["game"] == game]
        steps, scores = (np.array([float(row[name]) for row in of_game]) for name in ("agent_steps", "score"))
        curves[game] = steps, scores
    return earlier["games"], curves


def in_order(by_game: dict[str, Any]) -> dict[str, Any]:
    return {game: by_game[game] for game in PUBLISHED["games"] if game in by_game}


def beside_published(run: RunRecord, steps: int) -> dict[str, Any]:
    """Return what a run reached, and what each published agent had after as many steps."""
    point = steps // POINT - 1
    published = {agent: curve[point] for agent, curve in PUBLISHED["games"][run.settings.game].items()}
    mean = mean_score(run, point)
    return {
        "seed": run.settings.seed,
        "random_play": RANDOM_AND_HUMAN[run.settings.game][0],
        "mean_of_last_point": mean,
        "published": published,
        "is_best": mean >= max(published.values()),
        "most_dormant_layer": run.last("dormant_units"),
        **figures_of(run),
    }


def mean_score(run: RunRecord, point: int) -> float:
    """Return the mean score of the games that ended in one part of the run; ``nan`` if none did."""
    ended = (run.game_steps > point * POINT) & (run.game_steps <= (point + 1) * POINT)
    return float(run.scores[ended].mean()) if ended.any() else float("nan")


def table(games: dict[str, dict[str, Any]]) -> str:
    """Return a Markdown table of the games: random play, the run, the published agents, what the run took."""
    agents = list(next(iter(games.values()))["published"])
    lines = [
        f"| game | random play | framestow | {' | '.join(agents)} | core minutes |",
        "|---|" + "--:|" * (len(agents) + 3),
    ]
    for game, row in games.items():
        ours = f"{row['mean_of_last_point']:,.1f}"
        scores = [f"{row['random_play']:,.1f}", f"**{ours}**" if row["is_best"] else ours]
        scores += [f"{score:,.1f}" for score in row["published"].values()]
        core_minutes = f"{60 * row['core_hours']:.0f}"
        lines.append(f"| {' | '.join([game, *scores, core_minutes])} |")
    return "\n".join(lines)


def write_curves(path: Path, curves: dict[str, Curve]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["game", "agent_steps", "score"])
        for game, curve in curves.items():
            for agent_steps, score in zip(*curve, strict=True):
                writer.writerow([game, int(agent_steps), f"{score:g}"])


def draw(path: Path, curves: dict[str, Curve], steps: int) -> None:
    """Draw a small picture a game: the run's curve, and each published agent's mean of each part."""
    num_rows, num_columns = -(-len(curves) // COLUMNS), min(COLUMNS, len(curves))
    size = 2.6 * num_columns, 2.3 * num_rows + 0.8
    figure, grid = pyplot.subplots(num_rows, num_columns, figsize=size, dpi=110, squeeze=False, layout="constrained")
    for axes in grid.flat[len(curves) :]:
        axes.set_visible(False)
    for axes, (game, (game_steps, scores)) in zip(grid.flat, curves.items(), strict=False):
        middles = (np.arange(steps // POINT) + 0.5) * POINT / 1_000
        for agent, curve in PUBLISHED["games"][game].items():
            axes.plot(middles, curve[: len(middles)], "o-", markersize=3, linewidth=0.8, alpha=0.7, label=agent)
        axes.plot(game_steps / 1_000, rolling_mean(scores), color="black", linewidth=1.4, label="framestow")
        axes.axhline(RANDOM_AND_HUMAN[game][0], color="0.5", linewidth=1, linestyle=":")
        axes.set_title(game, fontsize=10)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    lines, labels = grid.flat[0].get_legend_handles_labels()
    below = {
        "loc": "outside lower center",
        "ncols": min(len(labels), 4),
        "title": "thousand agent steps; dotted: random play",
    }
    figure.legend(lines, labels, frameon=False, fontsize=9, title_fontsize=9, **below)
    figure.savefig(path)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
