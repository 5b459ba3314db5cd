"""Step environments in worker processes as one vector environment."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from framestow.checks import check_seed, truth_value
from framestow.envs.vector.autoreset import AutoresetName, find_mode
from framestow.envs.vector.calls import (
    ClosedError,
    NoStepPendingError,
    StepPendingError,
    VectorStep,
    check_factories,
    check_timeout,
    describe_vector_env,
    one_action_each,
    one_value_each,
    split_options,
    tile_images,
)
from framestow.envs.vector.vector_state import EpisodeStates
from framestow.envs.workers.pool import OnWorkerLost, StartMethod, WorkerPool, check_worker_settings, failure_as_error
from framestow.envs.workers.replacement import WorkerReplacer
from framestow.envs.workers.stepping import Stepping
from framestow.envs.workers.wire import Command, EnvFactory, pickle_value
from framestow.envs.workers.worker import Request
from framestow.errors import EnvironmentFailedError, IncompatibleError, InvalidStepError, WorkerLostError
from framestow.interface import one_line, plural


class WorkerVectorEnv(VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Vector environment that steps its environments in worker processes, and can replace crashed workers.

    For the same seeds and actions the results equal those of ``SerialVectorEnv`` bit for bit, in every autoreset mode,
    for all spaces that Gymnasium can batch, and for any number of workers. Observations, actions, rewards and flags
    are in shared memory. Infos, and observations without a fixed shape, are sent in messages.

    *Failures.* If an environment raises, the call raises ``EnvironmentFailedError`` with its number, its action and the
    worker's traceback; then all environments need a reset. A worker that dies, or is silent for ``step_timeout``
    seconds, is lost. With ``on_worker_lost="raise"`` the call raises ``WorkerLostError``, and only ``close`` works
    afterwards. With ``"restart"`` a new process makes the same environments, with a ``RuntimeWarning``. Their
    episodes are truncated, and ``infos["episode_lost"]`` gives the reason (``framestow.envs.workers.stepping.Stepping``
    has a table). A worker that is lost three times without a completed step raises ``WorkerLostError`` in any case.
    Attributes set by ``set_attr`` are not set in the new environments.

    *Ending.* Ctrl-C interrupts the caller only; an interrupted step stays in flight. Workers end with this object,
    with the interpreter, and within seconds after this process is killed.

    Not thread-safe. Only the process that made it may use it.

    Arguments:
        env_fns: functions that make the environments, each called once, in a worker; all environments must have equal
            spaces.
        autoreset_mode: ``NEXT_STEP``, ``SAME_STEP`` or ``DISABLED``, or its value as a string.
        num_workers: number of processes, 1 to ``len(env_fns)``; ``None`` takes one for each usable core.
        start_method: ``"fork"``, ``"spawn"`` or ``"forkserver"``; ``None`` takes ``"forkserver"`` if available.
        step_timeout: seconds without an answer after which a worker counts as hung. Making the environments may take
            at least 10 seconds.
        on_worker_lost: ``"raise"`` an error, or ``"restart"`` the worker.
        seed: seed for the first reset without a seed. The ``k``-th replacement of environment ``i`` is seeded from
            ``SeedSequence(seed, spawn_key=(i, k))``.
        daemon: as for ``multiprocessing.Process``; environments that start processes need ``False``.

    Raises:
        InvalidSettingsError: invalid settings, unequal spaces, or spaces that Gymnasium cannot batch.
        EnvironmentFailedError: an environment could not be made.
        WorkerLostError: a worker died before it made its environments.

    Example::

        env = WorkerVectorEnv([make_my_env] * 8, num_workers=4, on_worker_lost="restart", seed=0)
        observations, infos = env.reset()
    """

    copies_observations: bool = True
    """Whether observations are copies. If set to False, they are read-only views, valid until the next step or reset
    ends."""

    def __init__(
        self,
        env_fns: Sequence[EnvFactory],
        autoreset_mode: AutoresetMode | AutoresetName = AutoresetMode.NEXT_STEP,
        *,
        num_workers: int | None = None,
        start_method: StartMethod | None = None,
        step_timeout: float = 60.0,
        on_worker_lost: OnWorkerLost = "raise",
        seed: int | None = None,
        daemon: bool = True,
    ) -> None:
        self.closed = True  # until the workers exist
        mode = find_mode(autoreset_mode)
        seed = check_seed(seed)
        check_worker_settings(start_method, step_timeout, on_worker_lost)
        daemon = truth_value("daemon", daemon)
        self._pool = WorkerPool(
            check_factories(env_fns),
            mode,
            num_workers=num_workers,
            start_method=start_method,
            step_timeout_s=step_timeout,
            daemon=daemon,
        )
        # Ends the workers when this object is collected without ``close``.
        self._finalizer = weakref.finalize(self, self._pool.close, 1.0)
        self._finalizer.atexit = False  # the pool has its own exit handler, which runs before multiprocessing's
        # Which episodes run, have ended or were lost, and the seeds of the next resets.
        self._states = EpisodeStates(mode, self._pool.num_envs, seed)
        # Replaces lost workers; says why only ``close`` works once it cannot.
        self._replacer = WorkerReplacer(self._pool, on_worker_lost, self._states.lost)
        self._stepping = Stepping(self._pool, self._states, self._replacer)
        self.closed = False
        made = self._pool.made
        self.num_envs = self._pool.num_envs
        self.single_observation_space, self.single_action_space = made.spaces
        self.observation_space, self.action_space = made.batched
        self.metadata = {**made.metadata, "autoreset_mode": mode}
        self.render_mode = made.render_mode
        self._in_flight: list[Request] | None = None  # the step that `step_async` began

    def __repr__(self) -> str:
        return one_line(self, lambda: [*describe_vector_env(self), plural(self.num_workers, "worker")])

    @property
    def num_workers(self) -> int:
        """Number of worker processes."""
        return len(self._pool.workers)

    @property
    def worker_pids(self) -> tuple[int | None, ...]:
        """Process ids of the workers, in the order of their environments."""
        return tuple(worker.pid for worker in self._pool.workers)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those of ``options["reset_mask"]``.

        A reset of all environments discards the steps in flight.

        Arguments:
            seed: One number from which each environment gets a seed, or one for each. ``None`` takes the constructor's
                at the first reset, and keeps the generators as they are later.
            options: Passed to each ``reset``, without ``reset_mask``, ``(num_envs,)`` booleans.

        Returns:
            The observations of all environments, and the ``infos`` of those that were reset.

        Raises:
            StepPendingError: a step is in flight, and this is no reset of all environments.
            EnvironmentFailedError, WorkerLostError: as ``step``.
        """
        self._require_working()
        mask, env_options = split_options(options, self.num_envs)
        if not mask.all():
            self._require_not_stepping()
        seeds = self._states.begin_reset(mask, seed)
        self._discard_in_flight()
        infos = self._stepping.reset(seeds, env_options)
        return self._stepping.last.of_all(self.copies_observations), self._states.batch_infos(infos, list(seeds))

    def step(self, actions: Any) -> VectorStep:
        """Step every environment with its action; all actions are checked before any environment steps.

        Returns:
            Observations, rewards ``float64`` ``(num_envs,)``, terminated, truncated and ``infos``.

        Raises:
            InvalidStepError: too few or too many actions, one out of range, or an environment that needs a reset.
            StepPendingError: a step is in flight.
            EnvironmentFailedError: an environment raised; the environments of other workers have stepped.
            WorkerLostError: a worker was lost.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Start a step of every environment; ``step_wait`` returns it. Invalid actions raise as in ``step``."""
        self._require_working()
        self._require_not_stepping()
        self._states.check_step()
        each = one_action_each(actions, self.single_action_space, self.action_space, self.num_envs)
        requests = self._stepping.step_requests(self._write_actions(each))
        self._in_flight = requests  # set before sending, so that an interrupted step can be waited for
        self._pool.send(requests)

    def step_wait(self, timeout: float | None = None) -> VectorStep:
        """Wait for the step that ``step_async`` began and return what ``step`` returns.

        Raises:
            NoStepPendingError: no step is in flight.
            StepTimeoutError: the step is not done after ``timeout`` seconds; it is still in flight.
            EnvironmentFailedError, WorkerLostError: as ``step``.
        """
        self._require_working()
        timeout = check_timeout(timeout)
        if self._in_flight is None:
            raise NoStepPendingError(
                "no step is in flight: step_wait() ends a step that step_async() began; call it first"
            )
        requests = self._in_flight
        self._pool.wait_for(requests, timeout)
        infos = self._stepping.finish_numeric_step(requests) or self._finish_step(requests)
        self._in_flight = None
        shared, observations = self._pool.shared, self._stepping.last.of_all(self.copies_observations)
        return observations, shared.rewards.copy(), shared.terminated.copy(), shared.truncated.copy(), infos

    def render(self, *, tiled: bool = False) -> tuple[Any, ...] | npt.NDArray[np.uint8]:  # type: ignore[override]
        """Return the result of each environment's ``render``; with ``tiled`` one image with all of them in a grid."""
        pictures = tuple(self._ask_workers(Command.RENDER, lambda env_ids: env_ids))
        return tile_images(pictures) if tiled else pictures

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call the method ``name`` of every environment, or read the attribute ``name`` if it is no method.

        Raises:
            EnvironmentFailedError: a call raised, or its result cannot be pickled; the environments can still be
                stepped.
        """
        answers = self._ask_workers(Command.CALL, lambda env_ids: (env_ids, name, args, kwargs))
        return tuple(pickle.loads(each) for each in answers)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return the attribute ``name`` of every environment, one value for each."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment.

        Arguments:
            name: Name of the attribute.
            values: A list or tuple with a value for each environment; any other value is for all.
        """
        each = one_value_each(values, self.num_envs)
        self._ask_workers(Command.SET, lambda env_ids: (env_ids, name, [each[env_id] for env_id in env_ids]))

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all environments as plain values; a ``SerialVectorEnv`` can load it too.

        An environment takes part if it has the methods ``state`` and ``restore``
        (``framestow.envs.vector.env_state.StatefulEnv``). The entry of any other has only the reason.
        """
        entries = self._ask_workers(Command.TAKE_STATES, lambda env_ids: env_ids)
        return self._states.state_dict(entries, [self._stepping.last.of(env_id) for env_id in range(self.num_envs)])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state of ``state_dict``, also one of a ``SerialVectorEnv`` or of another process.

        An environment without a saved state restarts, with a ``UserWarning``. Its next step returns the last
        observation, reward 0 and ``truncated``, and ``infos["episode_lost"]`` gives the reason. Then it is reset.

        Raises:
            IncompatibleError: another number of environments, another mode, or a state that does not fit an
                environment; all environments then need a reset.
            EnvironmentFailedError: an environment raised another error; all environments then need a reset.
        """
        self._require_working()
        self._states.check_state(state)
        self._require_not_stepping()
        states = {env_id: entry["state"] for env_id, entry in enumerate(state["envs"]) if entry["state"] is not None}
        self._states.require_reset()
        refusals = self._ask_workers(
            Command.PUT_STATES, lambda env_ids: [(env_id, states[env_id]) for env_id in env_ids if env_id in states]
        )
        if refusals:
            raise IncompatibleError(refusals[0])
        for env_id, observation in enumerate(state["observations"]):
            self._stepping.last.restore(env_id, observation)
        self._states.load_state_dict(state)

    def close_extras(self, timeout: float = 5.0, **kwargs: Any) -> None:  # noqa: ARG002
        """Close the environments and end the workers within about ``timeout`` seconds.

        Workers get a request to close, then SIGTERM, then SIGKILL. A second call does nothing.

        Raises:
            EnvironmentFailedError: an environment raised in its ``close``; all workers have ended.
        """
        self.closed = True
        self._finalizer.detach()
        failures = self._pool.close(timeout)
        del self._stepping  # it references the shared memory
        if failures:
            first = min(failures, key=lambda failure: failure.environment)
            raise failure_as_error(first, "all workers have ended")

    def _ask_workers(self, command: Command, payload_of: Callable[[list[int]], Any]) -> list[Any]:
        """Send a command to each worker, and return the answers for all environments in order."""
        self._require_working()
        self._require_not_stepping()
        requests = [
            Request(worker, command, worker.env_ids, pickle_value(payload_of(list(worker.env_ids))))
            for worker in self._pool.workers
        ]
        return [each for answer in self._stepping.answers(requests) for each in answer or ()]

    def _write_actions(self, actions: Sequence[Any] | npt.NDArray[Any]) -> dict[int, Any] | None:
        """Write actions into the shared array; return them by environment if their space is no array."""
        rows = self._pool.shared.actions
        if rows is None:
            return dict(enumerate(actions))
        rows[:] = actions
        return None

    def _finish_step(self, requests: list[Request]) -> dict[str, Any]:
        try:
            return self._states.batch_infos(self._stepping.finish_step(requests), range(self.num_envs))
        except (EnvironmentFailedError, InvalidStepError):
            self._discard_in_flight()  # the environments have stepped, but the caller gets no result
            raise

    def _discard_in_flight(self) -> None:
        self._pool.drop_requests()
        self._in_flight = None

    def _require_working(self) -> None:
        if self.closed:
            raise ClosedError("vector environment is closed: its environments cannot be used; make a new one")
        if not self._pool.is_in_owner_process:
            raise ClosedError(
                "vector environment belongs to another process: this process was forked from it; make a new one here"
            )
        if self._replacer.broken is not None:
            raise WorkerLostError(self._replacer.broken)

    def _require_not_stepping(self) -> None:
        if self._in_flight is not None:
            raise StepPendingError("a step is in flight: it must end first; call step_wait(), or reset()")
        self._pool.drop_requests()  # requests of an interrupted call
