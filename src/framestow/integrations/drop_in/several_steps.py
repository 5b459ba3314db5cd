"""What several steps of an episode, taken together, are to a learner of n-step returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.frames.observation_spec import map_arrays
from framestow.integrations.drop_in.paired_steps import PairedSteps


class SeveralSteps(NamedTuple):
    """Up to ``length`` steps from each of ``B`` on: fewer where their episode ended before, or goes on to the newest.

    ====================  ===============  =======  ==============================================
    field                 shape            dtype    meaning
    ====================  ===============  =======  ==============================================
    ``observation``       ``(B, *shape)``           what the policy saw at the first one
    ``action``            ``(B, ...)``              what it did there
    ``rewards``           ``(B, length)``  float32  what each gave; 0 where there is none
    ``is_step``           ``(B, length)``  bool     whether there is one
    ``next_observation``  ``(B, *shape)``           what the last one led to
    ``terminated``        ``(B,)``         bool     the episode ended there by its own rules
    ====================  ===============  =======  ==============================================
    """

    observation: Any
    action: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    is_step: npt.NDArray[np.bool_]
    next_observation: Any
    terminated: npt.NDArray[np.bool_]


def several_steps(steps: PairedSteps, first: npt.NDArray[np.int64], length: int) -> SeveralSteps:
    """Look up what follows on the memory's indices ``first``, ``(B,)``, observations as they came."""
    if length == 1:
        one = steps.transitions(first)
        rewards = one.reward[:, None]
        return SeveralSteps(
            one.observation, one.action, rewards, np.ones_like(rewards, bool), one.next_observation, one.terminated
        )
    held, count = steps.memory.steps_from(first, length), len(first)
    is_step = held.index >= 0
    last = held.index[np.arange(count), is_step.sum(axis=1) - 1]
    both = steps.transitions(np.concatenate([first, last]))
    return SeveralSteps(
        map_arrays(lambda part: part[:count], both.observation),
        both.action[:count],
        held.reward,
        is_step,
        map_arrays(lambda part: part[count:], both.next_observation),
        both.terminated[count:],
    )
