"""Step environments in worker processes as one vector environment."""

from __future__ import annotations

import math
import pickle
import weakref
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.checks import check_seed, real_number, truth_value
from framestow.envs.vector.arguments import (
    ClosedError,
    EnvFactory,
    NoStepPendingError,
    StepPendingError,
    VectorStep,
    check_factories,
    check_timeout,
    describe_vector_env,
)
from framestow.envs.vector.checked_vector_env import CheckedVectorEnv
from framestow.envs.vector.one_env import GYMNASIUM_CALLS, AutoresetName, EnvCalls, find_mode
from framestow.envs.workers.messages import Command, StepPayload, pickle_value
from framestow.envs.workers.pool import (
    OnWorkerLost,
    StartMethod,
    WorkerPool,
    check_worker_settings,
    failure_as_error,
    failure_of,
)
from framestow.envs.workers.shared_arrays import LastObservations
from framestow.envs.workers.worker import Request, Worker
from framestow.errors import (
    EnvironmentFailedError,
    InvalidStepError,
    StepTimeoutError,
    WorkerLostError,
)
from framestow.interface import one_line, plural, warn_caller
from framestow.keywords import suggests_keywords

_MAX_LOSSES = 3  # of one worker without a completed step
_CLOSE_S = 5.0  # seconds that ``close`` takes by default


_Result = TypeVar("_Result")


@suggests_keywords
class WorkerVectorEnv(CheckedVectorEnv):
    """Vector environment that steps its environments in worker processes, and can replace crashed workers.

    For the same seeds and actions the results equal those of ``SerialVectorEnv`` bit for bit, in every autoreset mode,
    for all spaces that Gymnasium can batch, and for any number of workers. Observations, actions, rewards and flags
    are in shared memory. Infos, and observations without a fixed shape, are sent in messages.

    *Failures.* If an environment raises, the call raises ``EnvironmentFailedError`` with its number, its action and the
    worker's traceback; then all environments need a reset. A worker that dies, or is silent for ``step_timeout``
    seconds, is lost. With ``on_worker_lost="raise"`` the call raises ``WorkerLostError``, and only ``close`` works
    afterwards. With ``"restart"`` a new process makes the same environments, with a ``RuntimeWarning``. Their
    episodes are truncated, and ``infos["episode_lost"]`` gives the reason
    (``framestow.envs.vector.checked_vector_env.EpisodeStates`` has a table). A worker that is lost three times without
    a completed step raises ``WorkerLostError`` in any case. Attributes set by ``set_attr`` are not set in the new
    environments.

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
        daemon: as for ``multiprocessing.Process``; environments that start processes, such as another vector
            environment of workers, need ``False``.

    Raises:
        InvalidSettingsError: invalid settings, unequal spaces, or spaces that Gymnasium cannot batch.
        EnvironmentFailedError: an environment could not be made.
        WorkerLostError: a worker died before it made its environments.

    Example::

        env = WorkerVectorEnv(
            [make_my_env] * 8, num_workers=4, on_worker_lost="restart", seed=0
        )
        observations, infos = env.reset()
    """

    copies_observations: bool = True
    """Whether observations are copies. If set to False, they are read-only views, valid until the next step or reset
    ends."""

    # How the workers make, reset and step environments; a subclass may have other calls.
    _calls: EnvCalls = GYMNASIUM_CALLS

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
            self._calls,
            num_workers=num_workers,
            start_method=start_method,
            step_timeout_s=step_timeout,
            daemon=daemon,
        )
        # Ends the workers when this object is collected without ``close``.
        self._finalizer = weakref.finalize(self, self._pool.close, 1.0)
        self._finalizer.atexit = False  # the pool has its own exit handler, which runs before multiprocessing's
        self._begin(self._pool.made, mode, seed)
        self._last = LastObservations(self._pool.shared, self.num_envs)
        self._on_worker_lost = on_worker_lost
        self._broken: str | None = None  # why only ``close`` works; None while all is well
        self._in_flight: list[Request] | None = None  # the step that `step_async` began
        self.closed = False

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
        self._require_not_stepping()
        each = self._check_actions(actions)
        rows = self._pool.shared.actions
        if rows is not None:
            rows[:] = each
        self._send_step(each if rows is None else None)

    def step_wait(self, timeout: float | None = None) -> VectorStep:
        """Wait for the step that ``step_async`` began and return what ``step`` returns.

        Raises:
            NoStepPendingError: no step is in flight.
            StepTimeoutError: the step is not done after ``timeout`` seconds; it is still in flight.
            EnvironmentFailedError, WorkerLostError: as ``step``.
        """
        return self._receive_step(check_timeout(timeout), self._batch_step)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all environments, as of every vector environment of framestow.

        A worker that is lost meanwhile is replaced, and the state has its lost episodes: a signal to a whole process
        group ends the workers of a run that it asks to save.

        Raises:
            WorkerLostError: a worker was lost and ``on_worker_lost`` is ``"raise"``, or it was lost too often.
        """
        while True:
            try:
                return super().state_dict()
            except WorkerLostError:
                if self._broken is not None:
                    raise

    def _send_step(self, actions: Sequence[Any] | npt.NDArray[Any] | None) -> None:
        """Start a step of every environment; ``actions`` is ``None`` if they are in the shared arrays."""
        requests = self._step_requests(actions)
        with self._pool.interrupts:
            self._in_flight = requests
            for request in requests:
                request.worker.send(request)

    def _receive_step(self, timeout_s: float | None, result_of: Callable[[list[Any]], _Result]) -> _Result:
        """Wait for the step in flight; return what ``result_of`` makes of the info of each environment."""
        self._require_working()
        requests = self._in_flight
        if requests is None:
            raise NoStepPendingError(
                "no step is in flight: step_wait() ends a step that step_async() began; call it first"
            )
        try:
            self._complete(requests, self._reset_instead, timeout_s)
            with self._pool.interrupts:
                result = result_of(self._settle_step(requests))
                self._in_flight = None
        except (EnvironmentFailedError, InvalidStepError):
            self._discard_in_flight()  # the environments have stepped, but the caller gets no result
            raise
        return result

    def close_extras(self, timeout: float | None = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Close the environments and end the workers within about ``timeout`` seconds; ``None`` takes 5.

        Workers get a request to close, then SIGTERM, then SIGKILL. A second call does nothing.

        Raises:
            InvalidSettingsError: ``timeout`` is no number from 0 up; nothing is closed.
            EnvironmentFailedError: an environment raised in its ``close``; all workers have ended.
        """
        timeout_s = _CLOSE_S if timeout is None else timeout
        rule = f"it must be a number of seconds from 0 up; None takes {_CLOSE_S}"
        timeout_s = real_number("timeout", timeout_s, 0, rule=rule, may_be_infinite=True)
        self.closed = True
        self._finalizer.detach()
        failures = self._pool.close(timeout_s)
        del self._last  # it references the shared memory
        if failures:
            first = min(failures, key=lambda failure: failure.environment)
            raise failure_as_error(first, "all workers have ended")

    def _step_requests(self, actions: Sequence[Any] | npt.NDArray[Any] | None) -> list[Request]:
        """Return the request to each worker; ``actions`` is ``None`` if they are in the shared arrays."""
        states, workers = self._states, self._pool.workers
        if actions is None and not states.has_losses and not states.has_ended.any():
            return [Request(worker, Command.STEP, worker.env_ids) for worker in workers]
        requests = []
        for worker in workers:
            resets = states.resets_due(worker.env_ids) if states.has_losses else []
            env_ids = [each for each in worker.env_ids if each not in states.unreported and each not in resets]
            own_actions = None if actions is None else [actions[env_id] for env_id in env_ids]
            seeds = [(env_id, states.first_seeds.get(env_id)) for env_id in resets]
            if env_ids or resets:
                payload = pickle_value(StepPayload(env_ids, states.has_ended[env_ids].tolist(), own_actions, seeds))
                requests.append(Request(worker, Command.STEP, [*env_ids, *resets], payload))
        return requests

    def _reset_instead(self, request: Request) -> Request | None:
        """Return the request that a lost step leaves to the new process: the resets that are part of this step."""
        unreported = self._states.unreported
        if self._states.mode is AutoresetMode.SAME_STEP:
            env_ids = list(request.env_ids)
        else:
            env_ids = [env_id for env_id in request.env_ids if env_id not in unreported]
        return self._reset_request(request.worker, env_ids, {}, {}) if env_ids else None

    def _settle_step(self, requests: Sequence[Request]) -> list[Any]:
        """Receive the answers to a step, and report the lost episodes; return the info of each environment."""
        shared, states = self._pool.shared, self._states
        finals = {env_id: self._last.of(env_id) for env_id in states.unreported}
        infos = self._receive_answers(requests)
        for env_id, final in finals.items():
            shared.rewards[env_id], shared.terminated[env_id], shared.truncated[env_id] = 0.0, False, True
            infos[env_id] = states.report_loss(env_id, infos[env_id], final)
        if states.first_seeds:
            for request in requests:
                states.mark_reported(request.env_ids)  # by these seeds: a replaced environment cannot step before
        np.logical_or(shared.terminated, shared.truncated, out=states.has_ended)
        return infos

    def _batch_step(self, infos: list[Any]) -> VectorStep:
        shared, batched = self._pool.shared, self._states.batch_infos(infos, range(self.num_envs))
        observations = self._last.of_all(self.copies_observations)
        return observations, shared.rewards.copy(), shared.terminated.copy(), shared.truncated.copy(), batched

    def _reset_envs(
        self, seeds: dict[int, int | None], options: Mapping[int, dict[str, Any] | None]
    ) -> tuple[Any, list[dict[str, Any]]]:
        self._discard_in_flight()
        env_ids = list(seeds)
        self._states.needs_reset[env_ids] = True  # until the end: an interrupt may leave only some of them reset
        requests = []
        for worker in self._pool.workers:
            if own := [env_id for env_id in worker.env_ids if env_id in seeds]:
                requests.append(self._reset_request(worker, own, seeds, options))
        self._pool.send(requests)
        self._complete(requests, lambda lost: self._reset_request(lost.worker, lost.env_ids, seeds, options))
        with self._pool.interrupts:
            infos = self._receive_answers(requests)
            self._states.mark_reset(env_ids)
        return self._last.of_all(self.copies_observations), [infos[env_id] for env_id in env_ids]

    def _reset_request(
        self,
        worker: Worker,
        env_ids: Sequence[int],
        seeds: Mapping[int, int | None],
        options: Mapping[int, dict[str, Any] | None],
    ) -> Request:
        """Return a request to reset environments; one without a seed takes that of its replacement, if it has one."""
        resets = []
        for env_id in env_ids:
            seed = seeds.get(env_id)
            first_seed = self._states.first_seeds.get(env_id) if seed is None else seed
            resets.append((env_id, first_seed, options.get(env_id)))
        return Request(worker, Command.RESET, env_ids, pickle_value(resets))

    def _receive_answers(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """Receive the observations that steps and resets returned; return the infos of all environments."""
        infos: list[dict[str, Any]] = [{}] * self.num_envs
        env_ids: list[int] = []
        others: list[list[Any]] = []
        for request in requests:
            env_ids += request.env_ids
            if request.answer:
                each_info, each_others = self._read_answer(request)
                others += each_others
                for env_id, info in zip(request.env_ids, each_info, strict=True):
                    infos[env_id] = info
            if request.command is Command.STEP:
                request.worker.num_losses = 0
        self._last.receive(env_ids, others)
        return infos

    def _read_answer(self, request: Request) -> Any:
        """Return the infos in an answer, and the parts of observations that are no arrays."""
        try:
            return pickle.loads(request.answer)
        except Exception as error:
            self._states.require_reset()
            raise EnvironmentFailedError(
                f"answer of {request.worker.name} cannot be unpickled: {type(error).__name__}: {error}; use plain "
                "values in infos, and reset all environments to continue"
            ) from error

    def _complete(
        self, requests: list[Request], instead: Callable[[Request], Request | None], timeout_s: float | None = None
    ) -> None:
        """Wait until all requests have an answer; a lost worker is replaced, and gets what ``instead`` returns.

        May be called again after an interrupt. ``requests`` then has the requests that are still to be answered.

        Raises:
            StepTimeoutError: some are not done after ``timeout_s``; the workers continue.
            EnvironmentFailedError: an environment raised; all need a reset.
            WorkerLostError: a worker was lost and ``on_worker_lost`` is ``"raise"``, or it was lost too often.
        """
        end_s = math.inf if timeout_s is None else monotonic() + timeout_s
        while True:
            if not self._pool.wait_for(requests, end_s):
                missing = sum(not request.is_done for request in requests)
                raise StepTimeoutError(
                    f"step is not done after {timeout_s} s: {missing} answers are missing, and it continues; "
                    "wait for it again, or reset to discard it"
                )
            for request in requests:
                if request.failed:
                    self._states.require_reset()
                    raise failure_as_error(failure_of(request), "reset all environments to continue")
            lost = [request for request in requests if request.lost is not None]
            if not lost:
                return
            for request in lost:
                self._replace(request)
                with self._pool.interrupts:
                    requests.remove(request)
                    if (next_one := instead(request)) is not None:
                        requests.append(next_one)
                        next_one.worker.send(next_one)

    def _replace(self, request: Request) -> None:
        """Replace the worker that was lost before it answered; its running episodes are lost."""
        worker, why = request.worker, request.lost or ""
        if worker.lost is None:
            return  # an interrupt came after it was replaced
        if self._on_worker_lost == "raise":
            self._break(
                f"{why}; only close() works now: make a new one, or replace workers by on_worker_lost='restart'"
            )
        worker.num_losses += 1
        if worker.num_losses >= _MAX_LOSSES:
            self._break(f"{why}: it was lost {_MAX_LOSSES} times without a completed step; only close() works now")
        warn_caller(f"{why}; it is replaced, and its episodes count as truncated", RuntimeWarning)
        with self._pool.interrupts:
            self._states.lose(worker.env_ids, why)
        worker.start(self._pool.spaces)

    def _break(self, why: str) -> NoReturn:
        self._broken = why
        raise WorkerLostError(why)

    def _apply(self, operation: Callable[..., Any], doing: str, arguments: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """Apply an operation in the workers.

        Raises:
            EnvironmentFailedError: an environment raised.
            WorkerLostError: a worker was lost. With ``"restart"`` it is replaced and its episodes are lost; the call
                may be repeated.
        """
        requests = []
        for worker in self._pool.workers:
            if own := {env_id: arguments[env_id] for env_id in worker.env_ids if env_id in arguments}:
                payload = pickle_value((operation, doing, own))
                requests.append(Request(worker, Command.APPLY, list(own), payload))
        self._pool.send(requests)
        self._pool.wait_for(requests)
        lost = [request for request in requests if request.lost is not None]
        for request in lost:
            self._replace(request)
        if lost:
            raise WorkerLostError(
                f"{lost[0].lost} before it answered: it was replaced, and the next step reports its lost episodes; "
                "repeat the call"
            )
        for request in requests:
            if request.failed:
                raise failure_as_error(failure_of(request), "the environments can still be stepped")
        return [pickle.loads(each) for request in requests for each in pickle.loads(request.answer)]

    def _last_observations(self) -> list[Any]:
        has_none = self._states.needs_reset.tolist()
        return [None if has_none[env_id] else self._last.of(env_id) for env_id in range(self.num_envs)]

    def _restore_observations(self, observations: Sequence[Any]) -> None:
        for env_id, observation in enumerate(observations):
            self._last.restore(env_id, observation)

    def _discard_in_flight(self) -> None:
        self._pool.discard_requests()
        self._in_flight = None

    def _require_working(self) -> None:
        super()._require_working()
        if not self._pool.is_in_owner_process:
            raise ClosedError(
                "vector environment belongs to another process: this process was forked from it; make a new one here"
            )
        if self._broken is not None:
            raise WorkerLostError(self._broken)

    def _require_not_stepping(self) -> None:
        self._require_working()
        if self._in_flight is not None:
            raise StepPendingError("a step is in flight: it must end first; call step_wait(), or reset()")
        self._pool.discard_requests()  # requests of an interrupted call
