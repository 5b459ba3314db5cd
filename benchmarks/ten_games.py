"""Compare training runs of several games with Dopamine's published curves, at the same number of agent steps.

    framestow train Qbert --preset dopamine --steps 500_000 --run-dir runs/ten/Qbert    and so each game
    python benchmarks/ten_games.py runs/ten/*        results/learning/ten_games.json and ten_games.png

Dopamine publishes the mean score of the training games in each 250,000 agent steps (dopamine_curves.json). The same
mean of a run is compared with it: of the games that ended in the last 250,000 steps of the run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from framestow.benchmarking.result_files import write_result
from framestow.training.report import RunRecord, rolling_mean, runs_by_settings
from framestow.training.scores import RANDOM_AND_HUMAN
from learning import RESULTS, commit, figures_of

matplotlib.use("Agg")
from matplotlib import pyplot

PUBLISHED = json.loads((Path(__file__).parent / "dopamine_curves.json").read_text(encoding="utf-8"))
POINT = PUBLISHED["steps_a_point"]
COLUMNS = 5  # of the picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, one a game")
    parser.add_argument("--commit", default="HEAD", help="that trained the runs")
    arguments = parser.parse_args()
    given = [RunRecord.read(path) for path in arguments.runs]
    by_game = {run.settings.game: run for run in given}
    if len(by_game) < len(given):
        parser.error(f"{len(given)} runs of {len(by_game)} games: give one run of each game")
    if unknown := sorted(set(by_game) - set(PUBLISHED["games"])):
        parser.error(f"there is no published curve of {', '.join(unknown)}: leave it out")
    if len(runs_by_settings(given)) > 1 or len({run.settings.steps for run in given}) > 1:
        parser.error("the runs have different settings: they must differ only in game and seed")
    if given[0].settings.steps % POINT:
        parser.error(f"the runs have {given[0].settings.steps:,} steps: a multiple of {POINT:,} can be compared")
    runs = [by_game[game] for game in PUBLISHED["games"] if game in by_game]
    games = {run.settings.game: beside_published(run) for run in runs}
    print(table(games))
    RESULTS.mkdir(parents=True, exist_ok=True)
    settings = {"recipe": runs[0].settings.recipe, "preset": runs[0].settings.preset, "steps": runs[0].settings.steps}
    entries = {"commit": commit(arguments.commit), "published": PUBLISHED["source"], **settings, "games": games}
    print("written:", write_result(RESULTS / "ten_games.json", entries).name)
    draw(RESULTS / "ten_games.png", runs)


def beside_published(run: RunRecord) -> dict[str, Any]:
    """Return what a run reached, and what each published agent had after as many steps."""
    point = run.settings.steps // POINT - 1
    published = {agent: curve[point] for agent, curve in PUBLISHED["games"][run.settings.game].items()}
    mean = mean_score(run, point)
    return {
        "seed": run.settings.seed,
        "random_play": RANDOM_AND_HUMAN[run.settings.game][0],
        "mean_of_last_point": mean,
        "published": published,
        "is_best": mean >= max(published.values()),
        "dormant_units": run.dormant_units,
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


def draw(path: Path, runs: list[RunRecord]) -> None:
    """Draw a small picture a game: the run's curve, and each published agent's mean of each part."""
    num_rows = -(-len(runs) // COLUMNS)
    figure, grid = pyplot.subplots(num_rows, COLUMNS, figsize=(13, 2.6 * num_rows), dpi=110, squeeze=False)
    for axes in grid.flat[len(runs) :]:
        axes.set_visible(False)
    for axes, run in zip(grid.flat, runs, strict=False):
        middles = (np.arange(run.settings.steps // POINT) + 0.5) * POINT / 1_000
        for agent, curve in PUBLISHED["games"][run.settings.game].items():
            axes.plot(middles, curve[: len(middles)], "o-", markersize=3, linewidth=0.8, alpha=0.7, label=agent)
        axes.plot(run.game_steps / 1_000, rolling_mean(run.scores), color="black", linewidth=1.4, label="framestow")
        axes.axhline(RANDOM_AND_HUMAN[run.settings.game][0], color="0.5", linewidth=1, linestyle=":")
        axes.set_title(run.settings.game, fontsize=10)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    lines, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(lines, labels, frameon=False, loc="lower center", ncols=len(labels), fontsize=9)
    figure.supxlabel("thousand agent steps; dotted: random play", fontsize=9, y=0.06)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(path)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
