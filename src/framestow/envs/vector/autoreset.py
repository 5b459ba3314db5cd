"""What a vector environment does with an environment whose episode has ended: one policy object a mode.

| mode | the step that ends an episode returns | the next step |
|---|---|---|
| NEXT_STEP | the final observation | ignores the action and resets: reward 0, no flag |
| SAME_STEP | the next episode's first observation; the final one and its info are in ``infos`` | is an ordinary one |
| DISABLED | the final observation | is refused until the caller has reset it with a mask |

A policy sees one environment, so serial and worker vector environments share it. It holds no state.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.errors import InvalidSettingsError, InvalidStepError


class StepOutcome(NamedTuple):
    """What one environment answers to a step."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class AutoresetPolicy(Protocol):
    """How to step one environment that may have ended."""

    mode: AutoresetMode

    def check(self, has_ended: npt.NDArray[np.bool_]) -> None:
        """Refuse a step, before any environment is touched, that the mode does not allow."""

    def step(self, env: gymnasium.Env[Any, Any], action: Any, has_ended: bool) -> StepOutcome:
        """Step ``env``, whose episode ``has_ended`` before this step or not."""


class NextStep:
    """The step after the last one resets, and does nothing else."""

    mode = AutoresetMode.NEXT_STEP

    def check(self, has_ended: npt.NDArray[np.bool_]) -> None:
        """Allow every step."""

    def step(self, env: gymnasium.Env[Any, Any], action: Any, has_ended: bool) -> StepOutcome:
        """Reset where the episode has ended, else step."""
        if has_ended:
            observation, info = env.reset()
            return StepOutcome(observation, 0.0, False, False, info)
        return stepped(env, action)


class SameStep:
    """The step that ends an episode also starts the next."""

    mode = AutoresetMode.SAME_STEP

    def check(self, has_ended: npt.NDArray[np.bool_]) -> None:
        """Allow every step."""

    def step(self, env: gymnasium.Env[Any, Any], action: Any, has_ended: bool) -> StepOutcome:  # noqa: ARG002
        """Step, and where that ends the episode reset and hand the end over in ``info``."""
        outcome = stepped(env, action)
        if not (outcome.terminated or outcome.truncated):
            return outcome
        # Copied, because an environment may reuse its array for the observation that its reset returns.
        final = {"final_obs": copy.deepcopy(outcome.observation), "final_info": copy.deepcopy(outcome.info)}
        observation, info = env.reset()
        return outcome._replace(observation=observation, info={**info, **final})


class Disabled:
    """Nothing is reset but by the caller."""

    mode = AutoresetMode.DISABLED

    def check(self, has_ended: npt.NDArray[np.bool_]) -> None:
        """Refuse to step while an environment waits for its reset."""
        if has_ended.any():
            raise InvalidStepError(
                f"environments {np.flatnonzero(has_ended).tolist()} have ended: with autoreset disabled they need a "
                "reset first; call reset(options={'reset_mask': terminated | truncated})"
            )

    def step(self, env: gymnasium.Env[Any, Any], action: Any, has_ended: bool) -> StepOutcome:  # noqa: ARG002
        """Step."""
        return stepped(env, action)


POLICIES: dict[AutoresetMode, AutoresetPolicy] = {
    policy.mode: policy for policy in (NextStep(), SameStep(), Disabled())
}


def lost_outcome(
    mode: AutoresetMode, last_observation: Any, why: str, reset: Callable[[], tuple[Any, dict[str, Any]]]
) -> StepOutcome:
    """Answer a step of an environment whose episode nobody saw end, without stepping it.

    The episode counts as truncated, with reward 0, at the last observation that was seen. ``reset`` starts the next
    episode, which SAME_STEP does at once.
    """
    info: dict[str, Any] = {"episode_lost": why}
    if mode is not AutoresetMode.SAME_STEP:
        return StepOutcome(last_observation, 0.0, False, True, info)
    final = {"final_obs": copy.deepcopy(last_observation), "final_info": {}}
    observation, reset_info = reset()
    return StepOutcome(observation, 0.0, False, True, {**reset_info, **info, **final})


def find_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Give the mode of that name or value (``"NextStep"``), or the one handed in."""
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        values = ", ".join(repr(each.value) for each in AutoresetMode)
        raise InvalidSettingsError(f"autoreset_mode is {mode!r}: it is no AutoresetMode; choose {values}") from None


def stepped(env: gymnasium.Env[Any, Any], action: Any) -> StepOutcome:
    """Step an environment and bring its answer into plain form; a reward of shape ``(1,)`` is taken as a number."""
    observation, reward, terminated, truncated, info = env.step(action)
    if type(reward) is float:
        return StepOutcome(observation, reward, bool(terminated), bool(truncated), info)
    number = np.asarray(reward)
    if number.size != 1:
        raise InvalidStepError(
            f"reward has shape {number.shape}: an environment gives one number a step; sum it in a wrapper"
        )
    return StepOutcome(observation, float(number.item()), bool(terminated), bool(truncated), info)
