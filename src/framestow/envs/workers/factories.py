"""The functions that make a worker's environments, on their way to it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import gymnasium

from framestow.errors import InvalidSettingsError

EnvFactory = Callable[[], gymnasium.Env[Any, Any]]


class Factories:
    """Travels among the arguments of a process: as it is under fork, pickled by value otherwise.

    It is read only when asked for, so that a function which cannot be read in the worker is an error that the worker
    tells, and not the end of the worker.
    """

    def __init__(self, functions: Sequence[EnvFactory]) -> None:
        self._functions: Sequence[EnvFactory] | bytes = functions

    def functions(self) -> Sequence[EnvFactory]:
        """Give the functions, one an environment."""
        if isinstance(self._functions, bytes):
            self._functions = pickle.loads(self._functions)
        return self._functions  # type: ignore[return-value]

    def __getstate__(self) -> bytes:
        if isinstance(self._functions, bytes):
            return self._functions
        try:
            return cloudpickle.dumps(self._functions)  # type: ignore[no-any-return]
        except Exception as error:
            raise InvalidSettingsError(
                f"env_fns cannot be pickled: {error}; make what they hold inside of them, or use start_method='fork'"
            ) from error

    def __setstate__(self, state: bytes) -> None:
        self._functions = state
