"""Refuse what is no environment of Gymnasium: say what it is, and what to wrap it in.

Environments of other libraries are known by their methods and by the number of values that their ``step`` returns, so
that none of the libraries is imported.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from framestow.errors import InvalidSettingsError, InvalidStepError

STEP_VALUES = "observation, reward, terminated, truncated, info"


def refuse_foreign(what: str, env: Any) -> None:
    """Raise ``InvalidSettingsError`` if ``env`` is an environment of a library whose interface is not Gymnasium's.

    ``what`` begins the message: ``env is``, ``env_fns[0] returned``.
    """
    found = _find_kind(env)
    if found is not None:
        kind, way_out = found
        raise InvalidSettingsError(f"{what} {_name(env)}, {kind}: it must be an environment of Gymnasium; {way_out}")


def require_env(what: str, env: Any, way_out: str) -> None:
    """Raise ``InvalidSettingsError`` unless ``env``, which a function returned, is an environment of Gymnasium."""
    refuse_foreign(what, env)
    if not (hasattr(env, "observation_space") and hasattr(env, "action_space")):
        raise InvalidSettingsError(f"{what} {env!r}: it must return an environment; {way_out}")
    _require_attribute(what, env, "metadata")
    _require_attribute(what, env, "render_mode")
    if not _takes(env.reset, "seed"):
        raise InvalidSettingsError(
            f"{what} {_name(env)}, whose reset takes no seed: Gymnasium's is reset(*, seed=None, options=None) and "
            "returns observation and info; give it both arguments, and let step return five values"
        )


def require_vector_env(env: Any) -> None:
    """Raise ``InvalidSettingsError`` unless ``env`` has what a vector environment of Gymnasium has."""
    refuse_foreign("env is", env)
    if not _is_vectorized(env):
        inner = getattr(env, "unwrapped", env)
        if inner is not env and _is_vectorized(inner):
            way_out = "its wrapper hides that it has several environments; give env.unwrapped"
        else:
            way_out = "use SerialVectorEnv([lambda: env])"
        raise InvalidSettingsError(f"env is {env}: it must be a vector environment of Gymnasium; {way_out}")
    _require_attribute("env is", env, "metadata")


def check_step(what: str, values: Any) -> None:
    """Raise ``InvalidStepError`` unless a ``step`` returned five values."""
    if type(values) is tuple and len(values) == 5:
        return
    count = len(values) if isinstance(values, (tuple, list)) else None
    if count == 5:
        return
    if count == 4:
        way_out = f"return these five, or wrap an environment of old gym in {_shimmy('V21')}(env=env)"
    elif count == 6:
        way_out = "Safety-Gymnasium has 6; wrap it in safety_gymnasium.wrappers.SafetyGymnasium2Gymnasium(env)"
    else:
        way_out = "return these five"
    returned = f"returned {type(values).__name__}" if count is None else f"returned {count} values"
    raise InvalidStepError(f"step of {what} {returned}: Gymnasium's has 5 ({STEP_VALUES}); {way_out}")


def check_reset(what: str, values: Any) -> None:
    """Raise ``InvalidStepError`` unless a ``reset`` returned two values."""
    if not (isinstance(values, (tuple, list)) and len(values) == 2):
        raise InvalidStepError(
            f"reset of {what} returned {type(values).__name__}: Gymnasium's has 2 values (observation, info); return "
            f"both, or wrap an environment of old gym in {_shimmy('V21')}(env=env)"
        )


def _find_kind(env: Any) -> tuple[str, str] | None:
    """Return what the environment of another library is, and the way out; ``None`` for any other object."""
    for is_kind, kind, way_out in _KINDS:
        if is_kind(env):
            return kind, way_out
    if any(base.__module__.partition(".")[0] == "gym" for base in type(env).__mro__):
        version = getattr(sys.modules.get("gym"), "__version__", "0.26")
        is_new = tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) >= (0, 26)
        # gym 0.26 also plays environments that were written for older ones; only their own reset tells them apart.
        is_new = is_new and _takes(getattr(env, "unwrapped", env).reset, "seed")
        return f"an environment of gym {version}", f"wrap it in {_shimmy('V26' if is_new else 'V21')}(env=env)"
    return None


def _shimmy(version: str) -> str:
    return f"shimmy.Gym{version}CompatibilityV0"


def _has(env: Any, *names: str) -> bool:
    return all(hasattr(env, name) for name in names)


def _is_vectorized(env: Any) -> bool:
    return _has(env, "num_envs", "single_observation_space")


def _takes(function: Callable[..., Any], argument: str) -> bool:
    """Return whether a function takes this argument by name; True also for a compiled one."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    return argument in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _require_attribute(what: str, env: Any, name: str) -> None:
    if not hasattr(env, name):
        raise InvalidSettingsError(
            f"{what} {_name(env)}, which has no {name}: an environment of Gymnasium has it; derive its class from "
            "gymnasium.Env"
        )


def _name(env: Any) -> str:
    kind = type(env)
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_dm_env(env: Any) -> bool:
    return all(callable(getattr(env, name, None)) for name in ("observation_spec", "action_spec"))


def _is_vec_env(env: Any) -> bool:
    return _has(env, "num_envs", "step_async", "step_wait") and not hasattr(env, "single_observation_space")


# How an environment of another library is recognised, what it is, and what to do.
_KINDS: tuple[tuple[Callable[[Any], bool], str, str], ...] = (
    (
        lambda env: _has(env, "all_env_ids", "config"),
        "a pool of EnvPool",
        "store its steps by memory.add (docs/environments.md)",
    ),
    (
        _is_vec_env,
        "a vector environment of Baselines or Stable-Baselines3",
        "give the functions that make its environments to SerialVectorEnv or WorkerVectorEnv",
    ),
    (
        lambda env: _has(env, "act", "observe", "ob_space", "ac_space"),
        "an environment of gym3",
        f"wrap it in {_shimmy('V21')}(env=gym3.ToGymEnv(env))",
    ),
    (_is_dm_env, "an environment of dm_env", "wrap dm_control's in shimmy.DmControlCompatibilityV0(env=env)"),
    (
        lambda env: _has(env, "observation_size", "action_size"),
        "a functional environment of MuJoCo Playground or Brax",
        "store its steps by memory.begin and memory.append (docs/environments.md)",
    ),
)
