"""Steps that have begun and are not recorded yet: a whole one, or those of some environments."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from framestow.envs.recording.begun_anew import VectorStep
from framestow.envs.recording.recordable import sends_some, steps_in_halves
from framestow.envs.vector.call_errors import NoStepPendingError, StepPendingError
from framestow.envs.vector.ready_steps import ReadySteps
from framestow.errors import InvalidSettingsError, InvalidStepError, StepTimeoutError


class WholeStep:
    """A step of all environments in the background: by the environment's own two calls, or on a thread.

    The thread is made when it is first needed.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env, self._has_halves = env, steps_in_halves(env)
        self._thread: ThreadPoolExecutor | None = None
        self._actions: Any = None
        self._answer: Callable[[], VectorStep] | None = None  # takes the step back; None where none is in flight
        self._future: Future[VectorStep] | None = None
        self._is_environments_own = False
        self._timeout: float | None = None

    def require_none(self) -> None:
        """Refuse a call while a step is in flight."""
        if self._answer is not None:
            raise StepPendingError(
                "a step is in flight: it must be taken back before the next call; call step_wait()", "step_async"
            )

    def start(self, actions: Any, instead: Callable[[], VectorStep] | None) -> None:
        """Begin to step with a copy of ``actions``; ``instead`` gives the answer where nothing is to be stepped."""
        self._actions, self._future = deepcopy(actions), None
        self._is_environments_own = self._has_halves and instead is None
        if instead is not None:
            self._answer = instead
        elif self._has_halves:
            self._env.step_async(self._actions)  # type: ignore[attr-defined]
            self._answer = lambda: self._env.step_wait(timeout=self._timeout)  # type: ignore[attr-defined]
        else:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "framestow-recorder")
            self._future = self._thread.submit(self._env.step, self._actions)
            self._answer = self._future.result

    def wait(self, timeout: float | None) -> Any:
        """Wait for the step, as far as that can be left off and taken up again; gives its actions."""
        if self._answer is None:
            raise NoStepPendingError(
                "no step is in flight: step_wait ends one that step_async began; call that first", "step_wait"
            )
        self._timeout = timeout
        if self._future is not None and wait({self._future}, timeout).not_done:
            raise StepTimeoutError(f"step is not done after {timeout} s: it goes on; call step_wait() again")
        return self._actions

    @property
    def leaves_it_in_flight(self) -> tuple[type[BaseException], ...]:
        """What `take` may raise with the step still in flight.

        The environment's own wait may be interrupted anywhere. What the thread has given is given again.
        """
        return (StepTimeoutError, KeyboardInterrupt) if self._is_environments_own else ()

    def take(self) -> VectorStep:
        """Take the answer; the step counts as in flight until `drop`."""
        assert self._answer is not None
        return self._answer()

    def drop(self) -> None:
        """Forget the step in flight."""
        self._answer = None

    def close(self) -> None:
        """Forget the step in flight, when it is done, and end the thread."""
        self.drop()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None


class SentSteps:
    """Steps of some environments at a time, with the actions that they were sent."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env = env
        self._actions: dict[int, Any] = {}

    def require_none(self) -> None:
        """Refuse a call while a step is in flight."""
        if self._actions:
            raise StepPendingError(
                f"steps of environments {sorted(self._actions)} are in flight: they must be taken back before the next "
                "call; call recv()",
                "send",
            )

    def require_none_of(self, streams: npt.NDArray[Any]) -> None:
        """Refuse a call for ``streams`` of which some are in flight."""
        pending = [stream for stream in streams.tolist() if stream in self._actions]
        if pending:
            raise StepPendingError(
                f"steps of environments {pending} are in flight: take them back first; call recv()", "send"
            )

    def require_some(self) -> None:
        """Refuse to wait where no step is in flight."""
        if not self._actions:
            raise NoStepPendingError("no step is in flight: recv takes what send began; call that first", "recv")

    def check(self, streams: npt.NDArray[Any]) -> None:
        """Refuse streams that are none, or in flight, and an environment that can only be stepped as a whole."""
        if not sends_some(self._env):
            raise InvalidSettingsError(
                f"{self._env} has no send and recv: it steps all of its environments at once; call step()"
            )
        count = self._env.num_envs
        is_number = streams.dtype.kind in "iu" and streams.ndim == 1 and len(np.unique(streams)) == len(streams) > 0
        if not is_number or streams.min() < 0 or streams.max() >= count:
            raise InvalidStepError(f"env_ids is {streams.tolist()}: it must name some of 0 to {count - 1}, each once")
        self.require_none_of(streams)

    def send(self, actions: Any, streams: npt.NDArray[Any]) -> None:
        """Begin a step of each of ``streams``, which `check` has let through."""
        rows = np.array(actions)
        if rows.shape[:1] != streams.shape:
            raise InvalidStepError(f"actions are {rows.shape[:1]}: {len(streams)} environments need one each")
        self._env.send(rows, streams)  # type: ignore[attr-defined]
        self._actions |= dict(zip(streams.tolist(), rows, strict=True))

    def take(self, min_envs: int, timeout: float | None) -> tuple[npt.NDArray[Any], ReadySteps]:
        """Wait for ``min_envs`` steps at least; gives those that are done and their actions."""
        ready: ReadySteps = self._env.recv(min_envs, timeout)  # type: ignore[attr-defined]
        return np.stack([self._actions.pop(int(stream)) for stream in ready.env_ids]), ready

    def drop(self) -> None:
        """Forget the steps in flight."""
        self._actions.clear()
