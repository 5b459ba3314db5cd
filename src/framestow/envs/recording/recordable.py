"""What the recorder asks of a vector environment before it takes it over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv, VectorWrapper

from framestow.errors import InvalidSettingsError


def check_env(env: Any) -> None:
    """Refuse what is no vector environment, or is one that has to be put into another first."""
    if hasattr(env, "all_env_ids") and hasattr(env, "config"):
        raise InvalidSettingsError(
            f"env is the envpool pool {type(env).__name__}: it ends the process at a wrong action and tells infos "
            "without masks; give Recorder(EnvpoolVectorEnv(pool), memory), from framestow.envs"
        )
    if not (hasattr(env, "num_envs") and hasattr(env, "single_observation_space")):
        raise InvalidSettingsError(
            f"env is {env}: a recorder records a vector environment; make one of it, SerialVectorEnv([lambda: env])"
        )


def check_memory(memory: Any) -> None:
    """Refuse what takes no steps: the `StepSink` that a recorder needs."""
    if not (hasattr(memory, "stack") and callable(getattr(memory, "append", None))):
        raise InvalidSettingsError(
            f"memory is {memory!r}: a recorder fills a ReplayMemory; give one, with num_envs=env.num_envs"
        )


def told_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode | str:
    """Ask a vector environment for its autoreset mode: its own attribute first, then its metadata.

    Some classes share one metadata dictionary among their instances; it tells about whichever was made last.
    """
    own = getattr(env.unwrapped, "autoreset_mode", None)
    told = env.metadata.get("autoreset_mode") if own is None else own
    if told is None:
        raise InvalidSettingsError(
            f"{env} does not tell its autoreset mode: without it nobody knows which steps are real; pass autoreset_mode"
        )
    return told  # type: ignore[no-any-return]


def ask_to_lend(env: VectorEnv[Any, Any, Any]) -> None:
    """Have observations lent instead of copied, if ``env`` itself can; what is behind a wrapper stays as it is."""
    if hasattr(type(env), "copies_observations") or "copies_observations" in vars(env):
        env.copies_observations = False  # type: ignore[attr-defined]


def state_method(env: VectorEnv[Any, Any, Any], name: str) -> Callable[..., Any] | None:
    """``state_dict`` or ``load_state_dict`` of ``env`` itself: Gymnasium's wrappers hand on what is not their own."""
    return getattr(env, name) if hasattr(type(env), name) else None


def steps_in_halves(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether ``env`` steps while the caller does something else, by itself.

    Gymnasium's ``AsyncVectorEnv`` does too, but a wait that was interrupted or timed out leaves its pipes out of step;
    and its wrappers hand the two calls on to what they wrap, past their own ``step``.
    """
    return (
        hasattr(env, "step_async")
        and hasattr(env, "step_wait")
        and not isinstance(env, (AsyncVectorEnv, VectorWrapper))
    )


def sends_some(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether ``env`` itself takes actions for some of its environments, and gives those that are ready."""
    return hasattr(env, "send") and hasattr(env, "recv") and not isinstance(env, VectorWrapper)
