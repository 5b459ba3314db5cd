"""What README and docs/benchmarks.md say of curves in ``results/learning``."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from statistics import fmean

from figures import RESULTS, Pages, figure, result, spread, table
from framestow.training.scores import RANDOM_AND_HUMAN

make_train = result("learning/make_train")
ten_games = result("learning/ten_games")["games"]
pong_dopamine = result("learning/pong_dopamine")["seeds"]
pong_18 = result("learning/pong_18_actions")
breakout = result("learning/breakout_dopamine")["seeds"]["0"]
gpu_speed, side_by_side = result("gpu_speed"), result("gpu_side_by_side")
published = json.loads((RESULTS.parent / "dopamine_curves.json").read_text(encoding="utf-8"))
POINT = published["steps_a_point"]
GPU_RUNS = (
    ("BattleZone", "rainbow-lite"),
    ("DoubleDunk", "rainbow-lite"),
    ("DoubleDunk", "laptop"),
    ("NameThisGame", "rainbow-lite"),
    ("Phoenix", "rainbow-lite"),
    ("Qbert", "rainbow-lite"),
    ("Qbert", "laptop"),
)


def curve(name: str, seed: int = 0) -> list[dict[str, float]]:
    """Return a row for each game of a training."""
    with (RESULTS / "learning" / f"{name}.csv").open(encoding="utf-8") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    return [row for row in rows if row.get("seed", 0) == seed]


def between(games: list[dict[str, float]], first: float, last: float) -> list[dict[str, float]]:
    """Return the games that ended between two agent steps."""
    return [game for game in games if first < game["agent_steps"] <= last]


def mean_until(games: list[dict[str, float]], step: float) -> float:
    """Return the mean of the last 20 games that ended by an agent step."""
    return between(games, 0, step)[-1]["mean_of_last_20"]


def steps_to(games: list[dict[str, float]], score: float) -> float:
    """Return the agent steps after which the mean of the last 20 games reached a score."""
    return next(game["agent_steps"] for game in games if game["mean_of_last_20"] >= score)


def mean_score(games: list[dict[str, float]]) -> float:
    return fmean(game["score"] for game in games)


def ten_games_rows() -> Iterator[list[str]]:
    for game, row in ten_games.items():
        best = max(row["published"], key=row["published"].__getitem__)
        ours = f"{row['mean_of_last_point']:,.1f}"
        scores = [f"**{ours}**" if row["is_best"] else ours, f"{row['published'][best]:,.1f} ({best})"]
        yield [game, f"{row['random_play']:,.1f}", *scores, f"{60 * row['core_hours']:.0f}"]


def gpu_speed_rows() -> Iterator[list[str]]:
    def cells(update_ms: str, rate: float, waits: float) -> list[str]:
        return [f"{rate:,.0f}", update_ms, f"{100 * waits:.0f} %"]

    for name in ("rainbow-lite", "laptop", "desktop"):
        row = gpu_speed[name]
        at = f"{row['settings']['num_envs']} environments, {row['settings']['workers']} workers"
        update = f"{row['update_ms']:.{2 if row['update_ms'] < 10 else 1}f}"
        yield [f"`{name}`, one game, {at}", *cells(update, row["steps_a_second"], row["device_waits"])]
    runs = [gpu_run(*run.split(" on "))[1] for run in side_by_side["runs"]]
    together = sum(run["agent_steps"] / (3600 * run["hours_on_the_clock"]) for run in runs)
    waits = 1 - side_by_side["device_busy_by_nvidia_smi"]
    yield ["`rainbow-lite` and `laptop`, two games each, side by side", *cells("", together, waits)]


def gpu_run(recipe: str, game: str) -> tuple[str, dict[str, float]]:
    """Return the name of a run's files and the figures of its one seed."""
    name = f"gpu_{recipe.replace('-', '_')}_{game.lower()}"
    return name, result(f"learning/{name}")["seeds"]["0"]


def gpu_minutes(recipe: str, game: str) -> str:
    return figure(60 * gpu_run(recipe, game)[1]["hours_on_the_clock"])


def gpu_score_rows() -> Iterator[list[str]]:
    for game, recipe in GPU_RUNS:
        name, run = gpu_run(recipe, game)
        number = int(run["agent_steps"] // POINT)
        ours, theirs = at_point(number, game, curve(name))
        best = max(theirs, key=theirs.__getitem__)
        scores = [RANDOM_AND_HUMAN[game][0], ours, theirs["Rainbow"]]
        cells = [*(f"{score:,.1f}" for score in scores), f"{theirs[best]:,.1f} ({best})"]
        yield [game, f"`{recipe}`", f"{number * POINT:,}", *cells, f"{60 * run['hours_on_the_clock']:.0f}"]


def breakout_rows() -> Iterator[list[str]]:
    for number in range(1, breakout["agent_steps"] // POINT + 1):
        ours, theirs = at_point(number, "Breakout", breakout_games)
        yield [f"{number * POINT:,}", *(f"{score:.1f}" for score in (ours, *theirs.values()))]


def at_point(number: int, game: str, games: list[dict[str, float]]) -> tuple[float, dict[str, float]]:
    """Return the mean score of our games up to a point of the published curves, the first is 1, and theirs there."""
    ours = mean_score(between(games, (number - 1) * POINT, number * POINT))
    return ours, {agent: scores[number - 1] for agent, scores in published["games"][game].items()}


scores = [seed["median_of_last_20_games"] for seed in make_train["seeds"].values()]
pong = [curve("pong_laptop", seed) for seed in (0, 1)]
stable_baselines3, pong_18_games, breakout_games = (
    curve(name) for name in ("pong_stable_baselines3", "pong_18_actions", "breakout_dopamine")
)
last = stable_baselines3[-1]
best_breakout = max(breakout_games, key=lambda game: game["mean_of_last_20"])
to_18 = [figure(round(steps_to(games, 18), -3)) for games in pong]
as_many_steps = [figure(mean_until(games, last["agent_steps"]), ".1f") for games in pong]

TEN_GAMES = table(["game", "random play", "`laptop`", "best of Dopamine's", "core-minutes"], ten_games_rows())
AHEAD_OF_ALL = figure(sum(row["is_best"] for row in ten_games.values()))
ahead_of = {
    agent: sum(row["mean_of_last_point"] >= row["published"][agent] for row in ten_games.values())
    for agent in ten_games["Pong"]["published"]
}

PAGES: Pages = {
    "docs/training.md": [f"four runs made a million steps each in {gpu_minutes('laptop', 'Qbert')} minutes"],
    "README.md": [
        TEN_GAMES,
        f"Together they took {figure(sum(row['core_hours'] for row in ten_games.values()), '.1f')} core-hours",
        f"ahead of all six in {AHEAD_OF_ALL} of the ten games, and of each alone in {spread(ahead_of.values())}",
    ],
    "docs/benchmarks.md": [
        f"then rising to a median of {spread(scores)} for every seed",
        f"Random play scores {figure(make_train['random_play'], '.1f')}, a human tester "
        f"{figure(make_train['human'], '.1f')}",
        table(["training", "steps a second", "one update, ms", "the device waits"], gpu_speed_rows()),
        table(
            [
                "game",
                "recipe",
                "agent steps",
                "random play",
                "score",
                "Dopamine's Rainbow",
                "best of Dopamine's",
                "minutes",
            ],
            gpu_score_rows(),
        ),
        f"side by side for {gpu_minutes('rainbow-lite', 'Phoenix')} minutes, then the other two with both recipes for "
        f"{gpu_minutes('laptop', 'Qbert')}",
        TEN_GAMES,
        f"`laptop` is ahead of all six in {AHEAD_OF_ALL} of the ten games",
        table(["of Dopamine's", *ahead_of], [["games of ten with `laptop` ahead", *map(str, ahead_of.values())]]),
        f"In Pong two seeds went on to a million steps. Seed 0 reached a mean of 18 over 20 games after "
        f"{figure(round(steps_to(curve('pong_dopamine'), 18), -3))} steps and had "
        f"{figure(pong_dopamine['0']['mean_of_last_20_games'], '.1f')} at the end; seed 1 had "
        f"{figure(pong_dopamine['1']['mean_of_last_20_games'], '.1f')}. Each took "
        f"{spread((seed['core_hours'] for seed in pong_dopamine.values()), '.2f')} core-hours",
        f"the score passed 0 after {figure(steps_to(pong_18_games, 0) / 1e6, '.2f')} million steps and reached a mean "
        f"of 15 over 20 games after {figure(round(steps_to(pong_18_games, 15), -3))}, above a human tester's "
        f"{figure(pong_18['human'], '.1f')}. It had {figure(pong_18['seeds']['0']['mean_of_last_20_games'], '.2f')} at "
        f"the end, after {figure(pong_18['seeds']['0']['core_hours'], '.2f')} core-hours",
        f"Breakout was trained for {figure(breakout['agent_steps'] / 1e6, '.2f')} million steps in "
        f"{figure(breakout['core_hours'], '.2f')} core-hours",
        f"Its mean over 20 games was at most {figure(best_breakout['mean_of_last_20'], '.1f')}, after "
        f"{figure(best_breakout['agent_steps'] / 1e6, '.2f')} million steps, and "
        f"{figure(breakout['mean_of_last_20_games'], '.1f')} at the end. A human tester has "
        f"{figure(make_train['human'], '.1f')}",
        table(["agent steps", "`laptop`", *published["games"]["Breakout"]], breakout_rows()),
        f"reached a mean of 18 over the last 20 games after {to_18[0]} steps with seed 0",
        f"Seed 1 was at {figure(mean_until(pong[1], 1_000_000), '.1f')} then",
        f"it reached 18 after {to_18[1]} steps",
        f"had a mean of {figure(mean_score(stable_baselines3[-20:]), '.2f')} after {figure(last['agent_steps'])} steps "
        f"and {figure(last['cpu_s'] / 3600, '.2f')} core-hours",
        f"After as many steps `laptop` was at {as_many_steps[0]} and {as_many_steps[1]}",
    ],
}
