"""Compare training runs of several games with Dopamine's published curves, at the same number of agent steps.

    framestow train Qbert --preset dopamine --steps 500_000 --seed 100 --run-dir runs/ten/Qbert-100    and so each
    python benchmarks/ten_games.py runs/ten/*

results/learning gets ten_games.json, ten_games.png and ten_games-phone.png of two columns, both with -dark for a dark
page, and in the folder ten_games the curves of each game. A longer run begins like a shorter one, so of a longer run
the first 500,000 steps are compared.
Options that give the values of another recipe, as laptop with --munchausen-after 150k, count as that recipe.
Games that are not given keep the figures and the curves that they have from runs with the same settings.

Dopamine publishes the mean score of the training games in each 250,000 agent steps (dopamine_curves.json). The same
mean of a run is compared with it: of the games that ended in the last 250,000 steps. Of several seeds their mean is.
Reported are seeds from 100 on, and games whose scores chose the recipe are marked (seeds.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import matplotlib
import numpy as np

from framestow.benchmarking.report import DARK, LIGHT, Colours
from framestow.benchmarking.result_files import write_result
from framestow.training.recipes import RECIPES, RecipeName
from framestow.training.report.page import RunRecord, runs_by_settings
from framestow.training.scores import RANDOM_AND_HUMAN
from framestow.training.settings import MAY_CHANGE_LEARNING, Settings, learning_settings
from learning import RESULTS, command, commit, figures_of, write_curves
from seeds import FIRST_REPORTED, GAMES_THAT_CHOSE, refuse_chosen

matplotlib.use("Agg")
from matplotlib import pyplot

PUBLISHED = json.loads((Path(__file__).parent / "dopamine_curves.json").read_text(encoding="utf-8"))
POINT = PUBLISHED["steps_a_point"]
PICTURES = {"ten_games": 5, "ten_games-phone": 2}  # columns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, of a game one for each seed")
    parser.add_argument("--steps", type=int, default=500_000, help="agent steps that are compared")
    parser.add_argument("--commit", default="HEAD", help="that trained the runs")
    arguments = parser.parse_args()
    steps = arguments.steps
    given = [RunRecord.read(path) for path in arguments.runs]
    if len({(run.settings.game, run.settings.seed) for run in given}) < len(given):
        parser.error("two runs have the same game and seed: leave one out")
    refuse_chosen(parser, (run.settings.seed for run in given))
    if unknown := sorted({run.settings.game for run in given} - set(PUBLISHED["games"])):
        parser.error(f"there is no published curve of {', '.join(unknown)}: leave it out")
    if steps % POINT:
        parser.error(f"--steps is {steps:,}: a multiple of {POINT:,} can be compared")
    for run in given:
        if run.agent_steps < steps:
            parser.error(f"{run.folder.path} has {run.agent_steps:,} steps: resume it until {steps:,}")
    runs = [first_steps(run, steps) for run in given]
    for run in runs:
        if any(change.setting in MAY_CHANGE_LEARNING for change in run.changes):
            parser.error(f"{run.folder.path} was resumed with other settings before step {steps:,}: leave it out")
    if len(runs_by_settings(runs)) > 1:
        parser.error("the runs have different settings: they must differ only in game, seed and length")
    settings = {"steps": steps, **learning_settings(runs[0].settings)}
    rows = read_earlier(settings)
    by_game: dict[str, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: run.settings.seed):
        by_game.setdefault(run.settings.game, []).append(run)
    trained_by = {"commit": commit(arguments.commit)}
    rows |= {game: beside_published(game, of_game) | trained_by for game, of_game in by_game.items()}
    games = {game: rows[game] for game in PUBLISHED["games"] if game in rows}
    entries = {"published": PUBLISHED["source"], "settings": settings, "games": games}
    trained = command(runs[:1]).replace(f"train {runs[0].settings.game}", "train GAME")
    print("written:", write_result(RESULTS / "ten_games.json", entries, trained).name)
    (RESULTS / "ten_games").mkdir(exist_ok=True)
    for game, of_game in by_game.items():
        write_curves(curves_of(game), of_game)
    draw_all({game: f"{game} *" if row["chose_the_recipe"] else game for game, row in games.items()}, steps)


def draw_all(titles: Mapping[str, str], steps: int) -> None:
    """Draw the pictures from the curves of results/learning/ten_games; ``titles``: what stands above each game's."""
    for colours, ending in ((LIGHT, ""), (DARK, "-dark")):
        with pyplot.rc_context(style(colours)):
            for name, columns in PICTURES.items():
                draw(RESULTS / f"{name}{ending}.png", titles, steps, columns)


def first_steps(run: RunRecord, steps: int) -> RunRecord:
    """Return what a run would have been with this number of agent steps."""
    games, rows = run.game_steps <= steps, run.progress["agent_steps"] <= steps
    return dataclasses.replace(
        run,
        settings=dataclasses.replace(run.settings, steps=steps, recipe=recipe_of(run.settings)),
        changes=[change for change in run.changes if change.agent_steps < steps],
        agent_steps=steps,
        game_steps=run.game_steps[games],
        scores=run.scores[games],
        progress={name: column[rows] for name, column in run.progress.items()},
    )


def recipe_of(settings: Settings) -> RecipeName:
    """Return the recipe that has the values of a run's settings, else the one that the run began from."""
    names: tuple[RecipeName, ...] = get_args(RecipeName)
    for name in names:
        values = {key: value for key, value in RECIPES[name].values.items() if key not in ("preset", "workers")}
        if all(getattr(settings, key) == value for key, value in values.items()):
            return name
    return settings.recipe


def read_earlier(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the figures that earlier calls wrote of runs with these settings, by game."""
    path = RESULTS / "ten_games.json"
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"settings": None}
    games: dict[str, dict[str, Any]] = earlier["games"] if earlier["settings"] == settings else {}
    return {game: row for game, row in games.items() if all(int(seed) >= FIRST_REPORTED for seed in row["seeds"])}


def curves_of(game: str) -> Path:
    return RESULTS / "ten_games" / f"{game}.csv"


def beside_published(game: str, runs: list[RunRecord]) -> dict[str, Any]:
    """Return what the runs of a game reached, and what each published agent had after as many steps."""
    point = runs[0].settings.steps // POINT - 1
    published = {agent: curve[point] for agent, curve in PUBLISHED["games"][game].items()}
    means = {run.settings.seed: mean_score(run, point) for run in runs}
    mean = float(np.mean(list(means.values())))
    return {
        "random_play": RANDOM_AND_HUMAN[game][0],
        "mean_of_last_point": mean,
        "published": published,
        "is_best": mean >= max(published.values()),
        "chose_the_recipe": game in GAMES_THAT_CHOSE.get(runs[0].settings.recipe, ()),
        "seeds": {
            run.settings.seed: {
                "mean_of_last_point": means[run.settings.seed],
                "most_dormant_layer": run.last("dormant_units"),
                **figures_of(run),
            }
            for run in runs
        },
    }


def mean_score(run: RunRecord, point: int) -> float:
    """Return the mean score of the games that ended in one part of the run; ``nan`` if none did."""
    ended = (run.game_steps > point * POINT) & (run.game_steps <= (point + 1) * POINT)
    return float(run.scores[ended].mean()) if ended.any() else float("nan")


def style(colours: Colours) -> dict[str, Any]:
    """Return matplotlib's settings for a page of these colours."""
    grounds = dict.fromkeys(("figure.facecolor", "axes.facecolor"), colours.ground)
    return grounds | dict.fromkeys(("text.color", "axes.edgecolor", "xtick.color", "ytick.color"), colours.ink)


def draw(path: Path, titles: Mapping[str, str], steps: int, columns: int) -> None:
    """Draw a small picture a game: a curve for each seed, and each published agent's mean of each part."""
    num_rows, num_columns = -(-len(titles) // columns), min(columns, len(titles))
    size = (8.4, 1.7 * num_rows + 0.8) if num_columns > 2 else (5.0, 1.5 * num_rows + 1.3)
    figure, grid = pyplot.subplots(num_rows, num_columns, figsize=size, dpi=170, squeeze=False, layout="constrained")
    for axes in grid.flat[len(titles) :]:
        axes.set_visible(False)
    middles = (np.arange(steps // POINT) + 0.5) * POINT / 1_000
    for axes, (game, title) in zip(grid.flat, titles.items(), strict=False):
        for agent, curve in PUBLISHED["games"][game].items():
            axes.plot(middles, curve[: len(middles)], "o-", markersize=3, linewidth=0.8, alpha=0.9, label=agent)
        curves = np.loadtxt(curves_of(game), delimiter=",", skiprows=1, usecols=(0, 1, 3), ndmin=2)
        for seed in np.unique(curves[:, 0]):
            _, ended, mean = curves[curves[:, 0] == seed].T
            label = "framestow, a line for each seed" if seed == curves[0, 0] else None
            axes.plot(ended / 1_000, mean, color=pyplot.rcParams["text.color"], linewidth=0.8, label=label)
        axes.axhline(RANDOM_AND_HUMAN[game][0], color="0.5", linewidth=1, linestyle=":")
        axes.set_title(title, fontsize=10)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    lines, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(
        lines,
        labels,
        title="thousand agent steps; dotted: random play; *: chose the recipe",
        loc="outside lower center",
        ncols=4 if num_columns > 2 else 2,
        frameon=False,
        fontsize=9,
        title_fontsize=9,
    )
    figure.savefig(path)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
