"""Step, save and restore one environment of a vector environment.

| mode | the step that ends an episode returns | the next step |
|---|---|---|
| NEXT_STEP | the final observation | ignores the action and resets: reward 0, both flags False |
| SAME_STEP | the next episode's first observation; the final one and its info are in ``infos`` | is an ordinary step |
| DISABLED | the final observation | raises an error until the caller resets the environment with a mask |

``SerialVectorEnv`` and the workers of ``WorkerVectorEnv`` share it. States are saved without pickle.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.envs.vector.arguments import EnvFactory, error_text, make_env
from framestow.envs.vector.foreign_envs import check_reset, check_step
from framestow.errors import IncompatibleError, InvalidSettingsError, InvalidStepError

AutoresetName: TypeAlias = Literal["NextStep", "SameStep", "Disabled"]
"""The values of Gymnasium's ``AutoresetMode``."""


class StepOutcome(NamedTuple):
    """Result of a step of one environment."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def find_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Return the autoreset mode with this value, such as ``"NextStep"``; a mode is returned unchanged."""
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        values = ", ".join(repr(each.value) for each in AutoresetMode)
        raise InvalidSettingsError(f"autoreset_mode is {mode!r}: it must be one of {values}") from None


def check_autoreset(mode: AutoresetMode, has_ended: npt.NDArray[np.bool_]) -> None:
    """Raise ``InvalidStepError`` if an ended episode forbids a step; called before any environment steps."""
    if mode is AutoresetMode.DISABLED and has_ended.any():
        raise InvalidStepError(
            f"environments {np.flatnonzero(has_ended).tolist()} have ended: with autoreset disabled they need a "
            "reset first; call reset(options={'reset_mask': terminated | truncated})"
        )


def step_env(mode: AutoresetMode, env: gymnasium.Env[Any, Any], action: Any, has_ended: bool) -> StepOutcome:
    """Step ``env`` as the autoreset mode says; ``has_ended`` says whether its episode ended in an earlier step."""
    if has_ended and mode is AutoresetMode.NEXT_STEP:
        observation, info = reset_env(env)
        return StepOutcome(observation, 0.0, False, False, info)
    outcome = step_once(env, action)
    if mode is AutoresetMode.SAME_STEP and (outcome.terminated or outcome.truncated):
        # Copied, because an environment may reuse its array for the observation that its reset returns.
        final = {"final_obs": copy.deepcopy(outcome.observation), "final_info": copy.deepcopy(outcome.info)}
        observation, info = reset_env(env)
        return outcome._replace(observation=observation, info={**info, **final})
    return outcome


def reset_env(
    env: gymnasium.Env[Any, Any], seed: int | None = None, options: dict[str, Any] | None = None
) -> tuple[Any, dict[str, Any]]:
    """Reset an environment and return its first observation and its info."""
    own_options = None if options is None else dict(options)  # an environment may change its copy
    results = env.reset(seed=seed, options=own_options)
    check_reset("the environment", results)
    observation, info = results
    return observation, _check_info(info)


def step_once(env: gymnasium.Env[Any, Any], action: Any) -> StepOutcome:
    """Step an environment and return the result with Python's number types; a reward may have shape ``(1,)``."""
    results = env.step(action)
    check_step("the environment", results)
    observation, reward, terminated, truncated, info = results
    _check_info(info)
    if type(reward) is float:
        return StepOutcome(observation, reward, bool(terminated), bool(truncated), info)
    number = np.asarray(reward)
    if number.size != 1:
        raise InvalidStepError(f"reward has shape {number.shape}: it must be one number; sum it in a wrapper")
    return StepOutcome(observation, float(number.item()), bool(terminated), bool(truncated), info)


def _check_info(info: Any) -> dict[str, Any]:
    if not isinstance(info, dict):
        raise InvalidStepError(f"info is of type {type(info).__name__}: it must be a dict; return {{}} if it is empty")
    return info


class EnvCalls(NamedTuple):
    """How a worker makes, resets and steps one environment: functions of a module, which the worker imports."""

    make: Callable[[EnvFactory, int], gymnasium.Env[Any, Any]]
    """Makes an environment, given its function and number."""
    reset: Callable[[gymnasium.Env[Any, Any], int | None, dict[str, Any] | None], tuple[Any, dict[str, Any]]]
    """Resets it, given seed and options; returns the observation and the info."""
    step: Callable[[AutoresetMode, gymnasium.Env[Any, Any], Any, bool], StepOutcome]
    """Steps it as ``step_env`` does. The info of the outcome may be any value; one that is false is not sent."""


GYMNASIUM_CALLS = EnvCalls(make_env, reset_env, step_env)
"""The calls of ``WorkerVectorEnv``."""


def render_env(env: gymnasium.Env[Any, Any]) -> Any:
    """Return what ``env`` renders."""
    return env.render()


def call_env(env: gymnasium.Env[Any, Any], name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call the method ``name`` of ``env`` or of an environment that it wraps; return an attribute that is no method."""
    found = env.get_wrapper_attr(name)
    return found(*arguments, **keywords) if callable(found) else found


def set_env_attr(env: gymnasium.Env[Any, Any], name: str, value: Any) -> None:
    """Set the attribute ``name`` of ``env``, or of the environment that it wraps and that has it."""
    env.set_wrapper_attr(name, value)


# Types that a saved state may have, besides lists, tuples, dicts and arrays of them.
_ATOMS = frozenset((type(None), bool, int, float, str, bytes))


class StatefulEnv(Protocol):
    """The methods of an environment, or of its outermost wrapper, that can be saved."""

    def state(self) -> Any:
        """Return all that later steps and resets depend on, generators included, as plain values.

        Plain values are None, bool, int, float, str, bytes, NumPy arrays of bools, integers or floats of at most 8
        bytes, such numbers, and lists, tuples and dicts of them with str keys. A NumPy number is restored as a Python
        number.
        """

    def restore(self, state: Any) -> None:
        """Continue from a ``state`` of an environment that was made with the same arguments."""


def env_entry(env: Any) -> dict[str, Any]:
    """Return the entry of an environment in the state of its vector environment: ``state``, or ``None`` and ``why``."""
    kind = type(env).__qualname__
    if not _is_stateful(env):
        return {"state": None, "why": f"{kind} has no methods state and restore"}
    try:
        state = _copy_plain(env.state(), "it")
    except Exception as error:
        return {"state": None, "why": f"{kind}.state() raised {type(error).__name__}: {error_text(error)}"}
    return {"state": state, "why": f"{kind}.state() returned None" if state is None else ""}


def restore_env(env: Any, state: Any) -> str | None:
    """Restore a state of ``env_entry``; return why it does not fit the environment, or ``None``."""
    if not _is_stateful(env):
        return (
            f"state is of an environment with the methods state and restore: {type(env).__qualname__} has not both; "
            "make the environment that was saved"
        )
    try:
        env.restore(copy.deepcopy(state))
    except IncompatibleError as error:
        return str(error)
    return None


def _is_stateful(env: Any) -> bool:
    # Looked up in the class: many environments have an attribute ``state`` that is no method.
    return all(callable(getattr(type(env), name, None)) for name in ("state", "restore"))


def _copy_plain(value: Any, path: str) -> Any:
    """Return a copy of a plain value; raise ``TypeError`` that names the path of any other."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _ATOMS:
        return value
    if type(value) is np.ndarray and value.dtype.kind in "biuf" and value.itemsize <= 8:
        return value.copy()
    if type(value) in (list, tuple):
        return type(value)(_copy_plain(part, f"{path}[{number}]") for number, part in enumerate(value))
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _copy_plain(part, f"{path}[{key!r}]") for key, part in value.items()}
    raise TypeError(
        f"{path} has type {type(value).__qualname__}: a state has numbers, strings, bytes, lists and arrays of bools, "
        "integers or floats of at most 8 bytes; convert it"
    )
