"""Check a vector environment and a memory before recording, and find out what the environment offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from framestow.errors import InvalidSettingsError


def stack_space(space: gymnasium.Space[Any], stack: int) -> gymnasium.Space[Any]:
    """Return the space of ``stack`` observations of ``space``, along a new first axis."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: stack_space(part, stack) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([stack_space(part, stack) for part in space.spaces])
    if isinstance(space, spaces.Box):
        low, high = (np.repeat(bound[None], stack, axis=0) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype.type)
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary((stack, *space.shape))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = (np.repeat(array[None], stack, axis=0) for array in (space.nvec, space.start))
        return spaces.MultiDiscrete(counts, dtype=space.dtype.type, start=starts)
    if isinstance(space, spaces.Discrete):
        return spaces.MultiDiscrete([space.n] * stack, dtype=space.dtype.type, start=[space.start] * stack)
    raise InvalidSettingsError(
        f"observation space is {space}: a recorder stacks Box, MultiBinary, MultiDiscrete and Discrete, and Dicts and "
        "Tuples of them; convert it in a wrapper"
    )


def check_env(env: Any) -> None:
    """Raise ``InvalidSettingsError`` unless ``env`` is a vector environment that a recorder can step."""
    if hasattr(env, "all_env_ids") and hasattr(env, "config"):
        raise InvalidSettingsError(
            f"env is the envpool pool {type(env).__name__}: a recorder needs a vector environment of Gymnasium; store "
            "its steps by memory.add (docs/environments.md)"
        )
    if not (hasattr(env, "num_envs") and hasattr(env, "single_observation_space")):
        raise InvalidSettingsError(
            f"env is {env}: a recorder needs a vector environment; use SerialVectorEnv([lambda: env])"
        )


def check_memory(memory: Any) -> None:
    """Raise ``InvalidSettingsError`` unless ``memory`` is a ``StepSink``."""
    if not (hasattr(memory, "stack") and callable(getattr(memory, "append", None))):
        raise InvalidSettingsError(
            f"memory is {memory!r}: a recorder needs a ReplayMemory; make one with num_envs=env.num_envs"
        )


def find_autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode | str:
    """Return the autoreset mode of a vector environment: its attribute ``autoreset_mode``, else its metadata.

    The attribute takes precedence, because some classes share one metadata dictionary among all instances.
    """
    mode = getattr(env.unwrapped, "autoreset_mode", None)
    if mode is None:
        mode = env.metadata.get("autoreset_mode")
    if mode is None:
        raise InvalidSettingsError(
            f"{env} has no autoreset mode: the recorder needs it to know which steps are resets; pass autoreset_mode"
        )
    return mode  # type: ignore[no-any-return]


def disable_observation_copies(env: VectorEnv[Any, Any, Any]) -> None:
    """Set ``env.copies_observations = False`` if ``env`` itself, not one that it wraps, has that attribute."""
    if hasattr(type(env), "copies_observations") or "copies_observations" in vars(env):
        env.copies_observations = False  # type: ignore[attr-defined]


def state_method(env: VectorEnv[Any, Any, Any], name: str) -> Callable[..., Any] | None:
    """Return ``state_dict`` or ``load_state_dict`` of ``env`` itself, not of an environment that it wraps."""
    return getattr(env, name) if hasattr(type(env), name) else None
