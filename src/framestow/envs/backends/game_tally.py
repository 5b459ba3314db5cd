"""Scores, lengths and lives of many games, and the infos that tell of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]


class GameTally:
    """What is known of each of ``n`` games besides its frame."""

    def __init__(self, num_envs: int) -> None:
        self.lives = np.zeros(num_envs, np.int64)
        self._frame_numbers = np.zeros(num_envs, np.int64)
        self._scores = np.zeros(num_envs, np.float64)
        self._agent_steps = np.zeros(num_envs, np.int64)

    def begin(self, games: Flags, told: dict[str, Any]) -> None:
        """Start a new count for ``games``, whose lives and frame numbers are in what ALE ``told``."""
        self._scores[games], self._agent_steps[games] = 0.0, 0
        self.look(games, told)

    def look(self, games: Flags, told: dict[str, Any]) -> None:
        """Take in the lives and frame numbers of ``games``."""
        self.lives[games] = told["lives"][games]
        self._frame_numbers[games] = told["episode_frame_number"][games]

    def add(self, games: Flags, rewards: npt.NDArray[Any], were_acted: Flags) -> None:
        """Add the rewards of a step of ``games``; it counts as an agent's step in those that ``were_acted``."""
        self._scores[games] += rewards[games]
        self._agent_steps[were_acted] += 1

    def infos(self, games: Flags) -> dict[str, Any]:
        """Lives and frame numbers of ``games``, as Gymnasium's dictionary of arrays with masks."""
        return {
            "lives": np.where(games, self.lives, 0),
            "_lives": games.copy(),
            "episode_frame_number": np.where(games, self._frame_numbers, 0),
            "_episode_frame_number": games.copy(),
        }

    def finished(self, games: Flags) -> dict[str, Any]:
        """Score and length of ``games``, which are over, in the same form; nothing where there is none."""
        if not games.any():
            return {}
        episode = {
            "r": np.where(games, self._scores, 0.0),
            "_r": games.copy(),
            "l": np.where(games, self._agent_steps, 0),
            "_l": games.copy(),
        }
        return {"episode": episode, "_episode": games.copy()}
