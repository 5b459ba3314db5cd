"""Plays whole games with what a run has learnt, and sums up their scores."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from framestow.envs import FinishedGame
from framestow.errors import InvalidSettingsError
from framestow.training.playing.player import Player
from framestow.training.settings import Settings

MAX_ENVS = 8  # side by side; more gain nothing on a few cores


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores of whole games, unclipped, and how they were played."""

    game: str
    preset: str  # that the run was trained with
    played_preset: str  # that these games were played with
    agent_steps: int  # that the run had made
    epsilon: float
    seed: int
    scores: tuple[float, ...]
    lengths: tuple[int, ...]  # agent steps

    @property
    def mean(self) -> float:
        """Mean score."""
        return statistics.fmean(self.scores)

    @property
    def median(self) -> float:
        """Median score."""
        return statistics.median(self.scores)

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean; None for a single game, which tells nothing about it."""
        return statistics.stdev(self.scores) / len(self.scores) ** 0.5 if len(self.scores) > 1 else None

    def write(self, path: Path) -> None:
        """Write everything as JSON, replacing what was there in one step."""
        summary = {"mean": self.mean, "median": self.median, "standard_error": self.standard_error}
        new = path.with_name(path.name + ".new")
        new.write_text(json.dumps({**dataclasses.asdict(self), **summary}, indent=2) + "\n", encoding="utf-8")
        new.replace(path)


def play_episodes(player: Player, episodes: int) -> Iterator[FinishedGame]:
    """Yield ``episodes`` games as they end.

    Each environment has a share of them fixed beforehand: taking the first to end would favour short games.
    """
    num_envs = player.env.num_envs
    left = np.full(num_envs, episodes // num_envs)
    left[: episodes % num_envs] += 1
    for games in player.steps():
        for game in games:
            if left[game.env_id] > 0:
                left[game.env_id] -= 1
                yield game
        if not left.any():
            return


def evaluation_settings(settings: Settings, episodes: int, seed: int, preset: str | None = None) -> Settings:
    """Return the settings to make environments from for so many episodes; raises for fewer than one.

    ``preset`` is what to play with; None keeps what the run was trained with.
    """
    if episodes < 1:
        raise InvalidSettingsError(f"episodes is {episodes}: it must be at least 1; give another --episodes")
    num_envs = min(episodes, MAX_ENVS)
    return dataclasses.replace(
        settings,
        num_envs=num_envs,
        workers=min(settings.workers, num_envs),
        seed=seed,
        preset=preset or settings.preset,
    )


def summed_up(
    games: list[FinishedGame], trained: Settings, played: Settings, agent_steps: int, epsilon: float
) -> Evaluation:
    """Sum up the games of a player: the settings of the run, and those that its environments were made from."""
    return Evaluation(
        game=trained.game,
        preset=trained.preset,
        played_preset=played.preset,
        agent_steps=agent_steps,
        epsilon=epsilon,
        seed=played.seed,
        scores=tuple(game.score for game in games),
        lengths=tuple(game.agent_steps for game in games),
    )
