"""Going on where the episodes of a vector environment cannot: its state was not kept, or the memory lacks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.envs.recording.frame_rows import take_row

VectorStep = tuple[Any, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]
Flags = npt.NDArray[np.bool_]

NO_STATE = "the run was resumed, and the environment keeps no state"
NOT_IN_MEMORY = "the run was resumed, and its memory has lost the newest frames"


class BegunAnew:
    """Answers in place of a vector environment in the first steps of a resumed run: its episodes are lost.

    In the first step nothing is stepped: every episode is truncated, ``infos["episode_lost"]`` says why for those that
    were running, and the frames are the last ones. The environment is reset as in any step after an end: in the same
    step (SAME_STEP), in the next (NEXT_STEP), or by the caller (DISABLED). Some of the environments cannot be stepped
    without the others, so one whose episode had ended before is truncated once more, and reset one step later.

    Args:
        mode: what the vector environment does at an episode's end.
        had_ended: which episodes were already over, ``(n,)``.
        newest_frames: gives the last frame of each, ``(n, *frame)``.
        reset: resets the vector environment; gives the first frames and infos.
        why: what ``infos["episode_lost"]`` says.
    """

    def __init__(
        self,
        mode: AutoresetMode,
        had_ended: Flags,
        newest_frames: Callable[[], Any],
        reset: Callable[[], tuple[Any, dict[str, Any]]],
        why: str = NO_STATE,
    ) -> None:
        self._mode, self._newest_frames, self._reset = mode, newest_frames, reset
        self._lost, self._why = ~had_ended, why
        self._is_told = False
        self.is_over = False
        """Whether the vector environment itself answers from now on."""

    def step(self) -> VectorStep:
        """Answer one step."""
        count = len(self._lost)
        none, everyone = np.zeros(count, np.bool_), np.ones(count, np.bool_)
        if self._is_told:
            frames, infos = self._reset()
            self.is_over = True
            return frames, np.zeros(count), none, none, infos
        frames, infos = self._newest_frames(), {}
        if self._mode is AutoresetMode.SAME_STEP:
            final = np.empty(count, object)
            for row in range(count):
                final[row] = take_row(frames, row)
            frames, infos = self._reset()
            infos |= {"final_obs": final, "_final_obs": everyone, "final_info": {}, "_final_info": everyone}
        self._is_told, self.is_over = True, self._mode is not AutoresetMode.NEXT_STEP
        reasons = np.full(count, None, object)
        reasons[self._lost] = self._why
        infos |= {"episode_lost": reasons, "_episode_lost": self._lost}
        return frames, np.zeros(count), none.copy(), everyone.copy(), infos
