"""Restart all episodes of a run that was resumed without the state of its environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from framestow.envs.recording.step_recording import Flags, take_row
from framestow.envs.vector.calls import VectorStep
from framestow.frames.observation_spec import map_arrays

# Reasons in ``infos["episode_lost"]``.
NO_STATE = "the run was resumed, and the environment has no saved state"
NOT_IN_MEMORY = "the run was resumed, and its memory has lost the newest frames"


class RestartedEpisodes:
    """Replace the first steps of a resumed run whose environments have no saved state: all episodes restart.

    The first step truncates every episode at its last frame, and ``infos["episode_lost"]`` gives the reason for those
    that were running. The reset follows in the same step (SAME_STEP), in the next one (NEXT_STEP) or by the caller
    (DISABLED). The environments step only together, so an episode that had already ended is truncated once more.

    Arguments:
        mode: autoreset mode of the vector environment.
        had_ended: episodes that had already ended, ``(n,)``.
        observations: returns the current observation of each environment, ``(n, stack, *frame)``, from the memory.
        reset: resets the vector environment and returns the first frames and infos.
        why: reason in ``infos["episode_lost"]``.
    """

    def __init__(
        self,
        mode: AutoresetMode,
        had_ended: Flags,
        observations: Callable[[], Any],
        reset: Callable[[], tuple[Any, dict[str, Any]]],
        why: str,
    ) -> None:
        self._mode, self._observations, self._reset = mode, observations, reset
        # Episodes that were running, and are reported as lost; and the reason.
        self._lost, self._why = ~had_ended, why
        self._has_truncated = False  # whether the first step was made
        self.is_over = False
        """True once all environments are reset; from then on the vector environment itself steps."""

    def step(self) -> VectorStep:
        """Return the five values of a vector environment's ``step``."""
        count = len(self._lost)
        none, everyone = np.zeros(count, np.bool_), np.ones(count, np.bool_)
        if self._has_truncated:
            frames, infos = self._reset()
            self.is_over = True
            return frames, np.zeros(count), none, none.copy(), infos
        frames, infos = _newest_frames(self._observations()), {}
        if self._mode is AutoresetMode.SAME_STEP:
            final = np.empty(count, object)
            for row in range(count):
                final[row] = take_row(frames, row)
            frames, infos = self._reset()
            infos |= {"final_obs": final, "_final_obs": everyone, "final_info": {}, "_final_info": everyone}
        self._has_truncated, self.is_over = True, self._mode is not AutoresetMode.NEXT_STEP
        reasons = np.full(count, None, object)
        reasons[self._lost] = self._why
        infos |= {"episode_lost": reasons, "_episode_lost": self._lost}
        return frames, np.zeros(count), none, everyone.copy(), infos


def _newest_frames(stacks: Any) -> Any:
    """Return the newest frame of each stack, ``(n, *frame)``, a view."""
    return map_arrays(lambda array: array[:, -1], stacks)
