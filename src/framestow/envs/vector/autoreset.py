"""Step one environment in each of Gymnasium's three autoreset modes.

| mode | the step that ends an episode returns | the next step |
|---|---|---|
| NEXT_STEP | the final observation | ignores the action and resets: reward 0, both flags False |
| SAME_STEP | the next episode's first observation; the final one and its info are in ``infos`` | is an ordinary step |
| DISABLED | the final observation | raises an error until the caller resets the environment with a mask |

Each mode has a policy without state, which ``SerialVectorEnv`` and the workers of ``WorkerVectorEnv`` share.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.errors import InvalidSettingsError, InvalidStepError

AutoresetName: TypeAlias = Literal["NextStep", "SameStep", "Disabled"]
"""The values of Gymnasium's ``AutoresetMode``."""


class StepOutcome(NamedTuple):
    """Result of a step of one environment."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class AutoresetPolicy(Protocol):
    """How to step one environment whose episode may have ended."""

    mode: AutoresetMode

    def check(self, has_ended: npt.NDArray[np.bool_]) -> None:
        """Raise ``InvalidStepError`` if the mode does not allow a step now; called before any environment steps."""
        del has_ended  # by default every step is allowed

    def step(self, env: gymnasium.Env[Any, Any], action: Any, has_ended: bool) -> StepOutcome:
        """Step ``env``; ``has_ended`` says whether its episode ended in an earlier step."""


class NextStep(AutoresetPolicy):
    """The step after the end of an episode only resets."""

    mode = AutoresetMode.NEXT_STEP

    def step(self, env: gymnasium.Env[Any, Any], action: Any, has_ended: bool) -> StepOutcome:
        if has_ended:
            observation, info = env.reset()
            return StepOutcome(observation, 0.0, False, False, info)
        return step_once(env, action)


class SameStep(AutoresetPolicy):
    """The step that ends an episode also starts the next."""

    mode = AutoresetMode.SAME_STEP

    def step(self, env: gymnasium.Env[Any, Any], action: Any, has_ended: bool) -> StepOutcome:  # noqa: ARG002
        """Step; if that ends the episode, reset and return the final observation and info in ``info``."""
        outcome = step_once(env, action)
        if not (outcome.terminated or outcome.truncated):
            return outcome
        # Copied, because an environment may reuse its array for the observation that its reset returns.
        final = {"final_obs": copy.deepcopy(outcome.observation), "final_info": copy.deepcopy(outcome.info)}
        observation, info = env.reset()
        return outcome._replace(observation=observation, info={**info, **final})


class Disabled(AutoresetPolicy):
    """Only the caller resets."""

    mode = AutoresetMode.DISABLED

    def check(self, has_ended: npt.NDArray[np.bool_]) -> None:
        if has_ended.any():
            raise InvalidStepError(
                f"environments {np.flatnonzero(has_ended).tolist()} have ended: with autoreset disabled they need a "
                "reset first; call reset(options={'reset_mask': terminated | truncated})"
            )

    def step(self, env: gymnasium.Env[Any, Any], action: Any, has_ended: bool) -> StepOutcome:  # noqa: ARG002
        return step_once(env, action)


POLICIES: dict[AutoresetMode, AutoresetPolicy] = {
    policy.mode: policy for policy in (NextStep(), SameStep(), Disabled())
}


def make_lost_outcome(
    mode: AutoresetMode, last_observation: Any, why: str, reset: Callable[[], tuple[Any, dict[str, Any]]]
) -> StepOutcome:
    """Return the outcome of a step of an environment whose episode was lost, without stepping it.

    The episode is truncated at the last received observation, with reward 0. SAME_STEP calls ``reset`` at once.
    """
    info: dict[str, Any] = {"episode_lost": why}
    if mode is not AutoresetMode.SAME_STEP:
        return StepOutcome(last_observation, 0.0, False, True, info)
    final = {"final_obs": copy.deepcopy(last_observation), "final_info": {}}
    observation, reset_info = reset()
    return StepOutcome(observation, 0.0, False, True, {**reset_info, **info, **final})


def find_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Return the autoreset mode with this value, such as ``"NextStep"``; a mode is returned unchanged."""
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        values = ", ".join(repr(each.value) for each in AutoresetMode)
        raise InvalidSettingsError(f"autoreset_mode is {mode!r}: it must be one of {values}") from None


def step_once(env: gymnasium.Env[Any, Any], action: Any) -> StepOutcome:
    """Step an environment and return the result with Python's number types; a reward may have shape ``(1,)``."""
    observation, reward, terminated, truncated, info = env.step(action)
    if type(reward) is float:
        return StepOutcome(observation, reward, bool(terminated), bool(truncated), info)
    number = np.asarray(reward)
    if number.size != 1:
        raise InvalidStepError(f"reward has shape {number.shape}: it must be one number; sum it in a wrapper")
    return StepOutcome(observation, float(number.item()), bool(terminated), bool(truncated), info)
