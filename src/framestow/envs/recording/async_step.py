"""Step all environments in the background."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import deepcopy
from typing import Any

from gymnasium.vector import AsyncVectorEnv, VectorEnv, VectorWrapper

from framestow.envs.recording.step_recording import Extras
from framestow.envs.vector.calls import NoStepPendingError, StepPendingError, VectorStep
from framestow.errors import StepTimeoutError


class AsyncStep:
    """The step of all environments in the background: by the environment's ``step_async``, else in a thread."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env = env
        # Whether the environment has ``step_async`` and ``step_wait``.
        self._has_async_step = _has_async_step(env)
        # Steps environments without ``step_async``; None until it is needed.
        self._thread: ThreadPoolExecutor | None = None
        # Returns the result of the step in flight; None if no step is in flight.
        self._answer: Callable[[], VectorStep] | None = None
        # The step in flight, if the thread makes it.
        self._future: Future[VectorStep] | None = None
        # Seconds that the environment's own step_wait waits, from the last call of ``wait``.
        self._timeout: float | None = None
        self.in_flight_after: tuple[type[BaseException], ...] = ()
        """Errors of ``take`` after which the step is still in flight: those of an interrupted ``env.step_wait``."""
        self.actions: Any = None
        """Copy of the actions of the step in flight: the caller may overwrite its own."""
        self.extras: Extras | None = None
        """Extra fields of the step in flight."""

    def require_none(self) -> None:
        """Raise ``StepPendingError`` while a step is in flight."""
        if self._answer is not None:
            raise StepPendingError(
                "a step is in flight: it must end before the next call; call step_wait()", "step_async"
            )

    def start(self, actions: Any, extras: Extras | None, instead: Callable[[], VectorStep] | None) -> None:
        """Begin a step with a copy of ``actions``; ``instead``, if given, replaces the environment's step."""
        self.actions, self.extras, self._future = deepcopy(actions), extras, None
        self.in_flight_after = ()
        if instead is not None:
            self._answer = instead
        elif self._has_async_step:
            self._env.step_async(self.actions)  # type: ignore[attr-defined]
            self.in_flight_after = (StepTimeoutError, KeyboardInterrupt)
            self._answer = lambda: self._env.step_wait(timeout=self._timeout)  # type: ignore[attr-defined]
        else:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "framestow-recorder")
            self._future = self._thread.submit(self._env.step, self.actions)
            self._answer = self._future.result

    def wait(self, timeout: float | None) -> None:
        """Wait for the step of the thread; of other steps ``take`` waits.

        Raises:
            StepTimeoutError: the step is not done after ``timeout`` seconds; it is still in flight.
            NoStepPendingError: no step is in flight.
        """
        if self._answer is None:
            raise NoStepPendingError(
                "no step is in flight: step_wait() ends a step that step_async() began; call it first", "step_wait"
            )
        self._timeout = timeout
        if self._future is not None and wait({self._future}, timeout).not_done:
            raise StepTimeoutError(f"step is not done after {timeout} s: it continues; call step_wait() again")

    def take(self) -> VectorStep:
        """Return the result of the step, which counts as in flight until ``drop``."""
        assert self._answer is not None
        return self._answer()

    def drop(self) -> None:
        """Discard the step in flight."""
        self._answer = None

    def close(self) -> None:
        """Wait for the step in flight, discard it and end the thread."""
        self.drop()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None


def _has_async_step(env: VectorEnv[Any, Any, Any]) -> bool:
    """Return whether ``env`` itself has a usable ``step_async`` and ``step_wait``.

    Not used: Gymnasium's ``AsyncVectorEnv``, whose pipes are out of sync after an interrupted or timed-out wait, and
    Gymnasium's wrappers, which pass both calls to the wrapped environment without their own ``step``.
    """
    return (
        hasattr(env, "step_async")
        and hasattr(env, "step_wait")
        and not isinstance(env, (AsyncVectorEnv, VectorWrapper))
    )
