"""Scores and lengths of what many environments play, and the infos that tell of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]


class EpisodeTally:
    """Unclipped score and agent steps of the episode, or the game, that each of ``n`` environments plays."""

    def __init__(self, num_envs: int) -> None:
        self._scores = np.zeros(num_envs, np.float64)
        self._agent_steps = np.zeros(num_envs, np.int64)

    def begin(self, mask: Flags) -> None:
        """Count anew for those of ``mask``."""
        self._scores[mask], self._agent_steps[mask] = 0.0, 0

    def add(self, rewards: npt.NDArray[Any], were_acted: Flags) -> None:
        """Add a step's rewards; it counts as an agent's where they ``were_acted``."""
        self._scores += rewards
        self._agent_steps[were_acted] += 1

    def finished(self, mask: Flags) -> dict[str, Any]:
        """Tell ``infos["episode"]`` of those of ``mask``, which are over; nothing where there is none."""
        if not mask.any():
            return {}
        scores, lengths = np.where(mask, self._scores, 0.0), np.where(mask, self._agent_steps, 0)
        told = {"r": scores, "_r": mask.copy(), "l": lengths, "_l": mask.copy()}
        return {"episode": told, "_episode": mask.copy()}
