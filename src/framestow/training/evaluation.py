"""Plays whole games with what a run has learnt, and sums up their scores."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from framestow.agents.dqn import DQN
from framestow.agents.exploration import EpsilonGreedy, LinearSchedule
from framestow.envs import FinishedGame, Recorder, finished_games
from framestow.errors import InvalidSettingsError
from framestow.replay.memory import ReplayMemory
from framestow.training.checkpoint import read_agent, saved_agent_steps
from framestow.training.run import choose_device, num_actions_of
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings

MAX_ENVS = 8  # side by side; more gain nothing on a few cores
_READ_ATTEMPTS = 10


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores of whole games, unclipped, and how they were played."""

    game: str
    preset: str
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


class Player:
    """The last checkpoint's network, playing in environments of its own.

    Reads the run folder and never writes to it, so it may be used while the run goes on. ``env`` must be what the run
    was trained on, and belongs to the player from then on.
    """

    def __init__(
        self, folder: RunFolder, env: VectorEnv[Any, Any, Any], epsilon: float, seed: int, device: str = "auto"
    ) -> None:
        settings = folder.settings()
        num_actions = num_actions_of(env)
        self._policy = EpsilonGreedy(LinearSchedule(epsilon, epsilon, 0), num_actions, seed)
        # Stacks come from a memory, as in training: what the policy sees here is what it saw there.
        memory = ReplayMemory(
            env.num_envs,
            env.single_observation_space,
            env.single_action_space,
            stack=settings.stack,
            num_streams=env.num_envs,
            storage="raw",
        )
        self.env = Recorder(env, memory)
        shape = self.env.single_observation_space.shape or ()
        self._agent = DQN(shape, num_actions, settings.agent(), choose_device(device), seed)
        state, self.agent_steps = _read_newest_agent(folder, str(self._agent.device))
        self._agent.load_state_dict(state)

    def steps(self) -> Iterator[list[FinishedGame]]:
        """Play without end, from a reset; after each step give the games that it finished."""
        observations, _ = self.env.reset()
        while True:
            actions = self._policy.act(observations, 0, self._agent.choose_greedily)
            observations, _, _, _, infos = self.env.step(actions)
            yield finished_games(infos)

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


def play_episodes(player: Player, episodes: int) -> Iterator[FinishedGame]:
    """Yield ``episodes`` games as they end.

    Each environment has a share of them fixed beforehand: taking the first to end would favour short games.
    """
    num_envs = player.env.num_envs
    left = np.full(num_envs, episodes // num_envs)
    left[: episodes % num_envs] += 1
    for games in player.steps():
        for game in games:
            if left[game.stream] > 0:
                left[game.stream] -= 1
                yield game
        if not left.any():
            return


def evaluation_settings(settings: Settings, episodes: int, seed: int) -> Settings:
    """Return the settings to make environments from for so many episodes; raises for fewer than one."""
    if episodes < 1:
        raise InvalidSettingsError(f"episodes is {episodes}: it must be at least 1; give another --episodes")
    return dataclasses.replace(settings, num_envs=min(episodes, MAX_ENVS), seed=seed)


def summed_up(games: list[FinishedGame], settings: Settings, agent_steps: int, epsilon: float, seed: int) -> Evaluation:
    """Sum up the games of a player."""
    return Evaluation(
        game=settings.game,
        preset=settings.preset,
        agent_steps=agent_steps,
        epsilon=epsilon,
        seed=seed,
        scores=tuple(game.score for game in games),
        lengths=tuple(game.agent_steps for game in games),
    )


def usual_epsilon(preset: str) -> float:
    """Return the epsilon that the preset's authors evaluate with: 0.05 in Mnih et al. 2015, else Dopamine's 0.001."""
    return 0.05 if preset == "nature" else 0.001


def _read_newest_agent(folder: RunFolder, device: str) -> tuple[dict[str, Any], int]:
    """Read the last checkpoint's agent; a run that goes on may replace the checkpoint while it is read."""
    for _ in range(_READ_ATTEMPTS - 1):
        checkpoint = folder.newest_checkpoint()
        try:
            return read_agent(checkpoint, device), saved_agent_steps(checkpoint)
        except FileNotFoundError:
            continue
    checkpoint = folder.newest_checkpoint()
    return read_agent(checkpoint, device), saved_agent_steps(checkpoint)
