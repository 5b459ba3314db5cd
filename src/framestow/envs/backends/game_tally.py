"""What is known of many Atari games besides their frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.envs.backends.episode_tally import EpisodeTally

Flags = npt.NDArray[np.bool_]


class GameTally(EpisodeTally):
    """Score, length, lives and frame number of each of ``n`` games."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.lives: npt.NDArray[np.int64] = np.zeros(num_envs, np.int64)
        self._frame_numbers = np.zeros(num_envs, np.int64)

    def look(self, games: Flags, told: dict[str, Any]) -> None:
        """Take in the lives and frame numbers of ``games`` from what ALE ``told``."""
        self.lives[games] = told["lives"][games]
        self._frame_numbers[games] = told["episode_frame_number"][games]

    def infos(self, games: Flags) -> dict[str, Any]:
        """Lives and frame numbers of ``games``, as Gymnasium's dictionary of arrays with masks."""
        return {
            "lives": np.where(games, self.lives, 0),
            "_lives": games.copy(),
            "episode_frame_number": np.where(games, self._frame_numbers, 0),
            "_episode_frame_number": games.copy(),
        }
