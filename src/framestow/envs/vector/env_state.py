"""Save and restore environments that have the two methods of ``StatefulEnv``, without pickle."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Protocol

import numpy as np

from framestow.envs.vector.calls import error_text
from framestow.errors import IncompatibleError

# Types that a saved state may have, besides lists, tuples, dicts and arrays of them.
_ATOMS = frozenset((type(None), bool, int, float, str, bytes))


class StatefulEnv(Protocol):
    """The methods of an environment, or of its outermost wrapper, that can be saved."""

    def state(self) -> Any:
        """Return all that later steps and resets depend on, generators included, as plain values.

        Plain values are None, bool, int, float, str, bytes, NumPy numbers and arrays without Python objects, and lists,
        tuples and dicts of them with str keys. A NumPy number is restored as a Python number.
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


def restore_env(env: Any, state: Any) -> None:
    """Restore a state of ``env_entry``.

    Raises:
        IncompatibleError: the environment has no method ``restore``, or it refuses the state.
    """
    if not _is_stateful(env):
        raise IncompatibleError(
            f"state is of an environment with the methods state and restore: {type(env).__qualname__} has not both; "
            "make the environment that was saved"
        )
    env.restore(deepcopy(state))


def _is_stateful(env: Any) -> bool:
    # Looked up in the class: many environments have an attribute ``state`` that is no method.
    return all(callable(getattr(type(env), name, None)) for name in ("state", "restore"))


def _copy_plain(value: Any, path: str) -> Any:
    """Return a copy of a plain value; raise ``TypeError`` that names the path of any other."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _ATOMS:
        return value
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    if type(value) in (list, tuple):
        return type(value)(_copy_plain(part, f"{path}[{number}]") for number, part in enumerate(value))
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _copy_plain(part, f"{path}[{key!r}]") for key, part in value.items()}
    raise TypeError(
        f"{path} has type {type(value).__qualname__}: a state has numbers, strings, bytes, lists and arrays; convert it"
    )
