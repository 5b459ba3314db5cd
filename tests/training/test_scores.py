"""Averages and intervals against published values, and the table of random and human scores."""

import csv
from pathlib import Path

import numpy as np
import pytest

from framestow.envs.atari.games import list_games
from framestow.errors import InvalidSettingsError
from framestow.training.scores import (
    PUBLISHED,
    RANDOM_AND_HUMAN,
    bootstrap_interval,
    human_normalized,
    interquartile_mean,
    mean_of_games,
    published_scores,
)


@pytest.fixture(scope="module")
def spr_with_resets() -> list[list[float]]:
    """Human-normalised final scores of SPR with resets in 26 games, 32 seeds each, to four decimals.

    Source: evgenii-nikishin/rl_with_resets, curves/spr (Nikishin et al. 2022). Its README has the averages that the
    tests below expect, computed with rliable.
    """
    with (Path(__file__).parent / "spr_with_resets_scores.csv").open(newline="") as file:
        return [[float(score) for score in row[1:]] for row in csv.reader(file)]


@pytest.mark.parametrize(
    ("average", "published", "interval"),
    [
        (interquartile_mean, 0.48, (0.46, 0.51)),
        (mean_of_games, 0.91, (0.84, 1.00)),
    ],
)
def test_averages_and_intervals_are_the_published_ones(average, published, interval, spr_with_resets) -> None:
    assert round(average(spr_with_resets), 2) == published

    # 0.01: the published bounds have two digits, and their bootstrap drew other runs.
    assert bootstrap_interval(average, spr_with_resets, num_resamples=1_000) == pytest.approx(interval, abs=0.01)


@pytest.mark.parametrize("num_scores", [1, 2, 3, 4, 5, 8, 11])
def test_the_interquartile_mean_drops_a_quarter_at_either_end(num_scores: int) -> None:
    scores = list(np.random.default_rng(num_scores).normal(size=num_scores))
    rest = sorted(scores)
    for _ in range(num_scores // 4):
        rest.remove(min(rest))
        rest.remove(max(rest))

    assert interquartile_mean([scores]) == pytest.approx(sum(rest) / len(rest))


def test_games_with_more_runs_count_as_much_as_others() -> None:
    scores = [[1.0] * 10, [3.0], [8.0, 10.0]]

    assert mean_of_games(scores) == pytest.approx(13 / 3)


def test_the_bootstrap_resamples_runs_and_keeps_the_games() -> None:
    assert bootstrap_interval(mean_of_games, [[1.0, 1.0], [7.0, 7.0]], num_resamples=50) == (4.0, 4.0)


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    scores = np.random.default_rng(0).normal(size=400)

    low, high = bootstrap_interval(mean_of_games, [scores], num_resamples=4_000)

    margin = 1.96 * scores.std() / 20
    assert (low, high) == pytest.approx((scores.mean() - margin, scores.mean() + margin), abs=0.1 * margin)


def test_the_same_seed_gives_the_same_interval() -> None:
    scores = [[1.0, 4.0, 2.0], [3.0, 9.0]]

    def interval(seed: int) -> tuple[float, float]:
        return bootstrap_interval(interquartile_mean, scores, num_resamples=99, seed=seed)

    assert interval(1) == interval(1)
    assert interval(1) != interval(2)


@pytest.mark.parametrize("scores", [[], [[]], [[1.0], []], [1.0, 2.0], [[1.0, float("nan")]]])
def test_scores_without_a_finite_number_per_run_are_refused(scores) -> None:
    with pytest.raises(InvalidSettingsError, match="one row per game, and a row one finite score per run"):
        interquartile_mean(scores)


def test_random_play_has_0_and_the_human_1() -> None:
    assert len(RANDOM_AND_HUMAN) == 57
    for game, (random, human) in RANDOM_AND_HUMAN.items():
        assert (human_normalized(game, random), human_normalized(game, human)) == (0.0, 1.0)
    assert human_normalized("Pong", 21.0) == pytest.approx(41.7 / 35.3)
    assert human_normalized("Adventure", 1.0) is None


def test_every_game_of_the_tables_has_its_usual_name() -> None:
    games = RANDOM_AND_HUMAN.keys() | {game for entry in PUBLISHED for game in entry.scores}

    assert games - set(list_games()) == set()


def test_published_scores_of_a_game_have_steps_and_frames() -> None:
    [shortest, *_] = published_scores("BattleZone")

    assert (shortest.agent, shortest.scores["BattleZone"]) == ("Dopamine, DQN (Nature)", 3598.5)
    assert (shortest.agent_steps, shortest.emulator_frames) == (2_500_000, 10_000_000)
    assert published_scores("Adventure") == []
