"""Many environments in worker processes behind one vector environment."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from framestow.argument_checks import checked_seed
from framestow.envs.seeding import seed_of_each
from framestow.envs.vector.autoreset import POLICIES, find_mode
from framestow.envs.vector.calls import (
    ClosedError,
    NoStepPendingError,
    StepPendingError,
    checked_factories,
    one_action_each,
    require_none_left_idle,
    split_options,
    tile_images,
)
from framestow.envs.vector.infos import batched_infos
from framestow.envs.vector.vector_state import (
    ReadySteps,
    check_vector_state,
    checked_env_ids,
    restart_stateless_envs,
    vector_state,
)
from framestow.envs.workers.pool import Crew, OnWorkerLost, check_on_worker_lost, check_step_timeout, failure_as_error
from framestow.envs.workers.stepping import Infos, Stepping
from framestow.envs.workers.wire import Command, EnvFactory, pickled
from framestow.envs.workers.worker import Request
from framestow.errors import EnvironmentFailedError, IncompatibleError, InvalidStepError, WorkerLostError

VectorStep = tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]


class WorkerVectorEnv(VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Steps its environments in worker processes, and survives them.

    For the same seeds and actions it answers bit for bit as `SerialVectorEnv` does, in all three autoreset modes, for
    any space that Gymnasium can batch and any split of the environments over the workers. Observations, actions,
    rewards and flags lie in memory that all share; what is no array, and infos, travels as messages.

    *Two ways to step.* ``step`` (or ``step_async`` and ``step_wait``) moves all together. ``send`` gives some of them
    an action each and ``recv`` takes those that are done: one slow environment then holds nobody up. Between a
    ``send`` and its ``recv`` the others may be sent, received and reset; ``step`` needs all answers taken.

    *Failure.* An environment that raises gives `EnvironmentFailedError` with its number, action and the worker's
    traceback; only a reset of all goes on from there, as in one process. A worker that dies, or says nothing for
    ``step_timeout`` seconds, is lost. With ``on_worker_lost="raise"`` the call raises `WorkerLostError`, and only
    ``close`` works then. With ``"restart"`` a new process makes the same environments, a ``RuntimeWarning`` says so,
    and their episodes count as truncated (`framestow.envs.workers.stepping.Stepping` has the table);
    ``infos["episode_lost"]`` says why. The third loss of one worker without a completed step in between raises all the
    same. What ``set_attr`` had set is not set in the new environments.

    *The end.* Ctrl-C reaches the caller only; a step that it interrupts stays in flight. Workers end with this object,
    with the interpreter, and within seconds of this process being killed.

    Use it from one thread at a time, and in the process that made it.

    Args:
        env_fns: makes the environments, called once each, in the workers; their spaces must be equal.
        autoreset_mode: ``NEXT_STEP``, ``SAME_STEP`` or ``DISABLED``, or its value as a string.
        num_workers: processes, 1 to ``len(env_fns)``; ``None`` takes as many as this process may use cores.
        start_method: ``"fork"``, ``"spawn"`` or ``"forkserver"``; ``None`` takes ``"forkserver"`` where there is one.
        step_timeout: seconds a worker may take for one answer before it counts as hung. Making environments, which
            includes a new process's imports, is given 10 seconds at least.
        on_worker_lost: ``"raise"`` or ``"restart"``.
        seed: what the first reset takes when it is given none. The ``k``-th replacement of environment ``i`` is seeded
            from ``SeedSequence(seed, spawn_key=(i, k))``.
        daemon: as for `multiprocessing.Process`; an environment that starts processes itself needs ``False``.

    Raises:
        InvalidSettingsError: settings that cannot work, or spaces that differ or cannot be batched.
        EnvironmentFailedError: an environment could not be made.
        WorkerLostError: a worker died before it had made its environments.
    """

    copies_observations: bool = True
    """Whether observations belong to the caller. Where set to false they are read-only views of the shared memory,
    valid until the step or reset after the next one."""

    def __init__(
        self,
        env_fns: Sequence[EnvFactory],
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        *,
        num_workers: int | None = None,
        start_method: str | None = None,
        step_timeout: float = 60.0,
        on_worker_lost: OnWorkerLost = "raise",
        seed: int | None = None,
        daemon: bool = True,
    ) -> None:
        self.closed = True  # until there is something to close
        mode = find_mode(autoreset_mode)
        self._policy = POLICIES[mode]
        self._pending_seed = checked_seed(seed)
        check_step_timeout(step_timeout)
        check_on_worker_lost(on_worker_lost)
        self._crew = Crew(
            checked_factories(env_fns),
            mode,
            num_workers=num_workers,
            start_method=start_method,
            step_timeout_s=step_timeout,
            daemon=daemon,
        )
        self._finalizer = weakref.finalize(self, self._crew.close, 1.0)
        self._finalizer.atexit = False  # the crew sees to that itself, before multiprocessing does
        self._stepping = Stepping(self._crew, mode, on_worker_lost, seed)
        self.closed = False
        made = self._crew.made
        self.num_envs = self._crew.num_envs
        self.single_observation_space, self.single_action_space = made.spaces
        self.observation_space, self.action_space = made.batched
        self.metadata = {**made.metadata, "autoreset_mode": mode}
        self.render_mode = made.render_mode
        self._everyone = list(range(self.num_envs))
        self._in_flight: tuple[list[Request], int] | None = None  # of a step of all, and its half of the slab
        self._sent: dict[int, Request | None] = {}  # of those sent alone; None where nothing is to be asked

    @property
    def num_workers(self) -> int:
        """How many processes there are."""
        return len(self._crew.workers)

    @property
    def worker_pids(self) -> tuple[int | None, ...]:
        """Numbers of the processes, in the order of their environments."""
        return tuple(worker.pid for worker in self._crew.workers)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those of ``options["reset_mask"]``.

        Returns the observations of all, the others' as they were, and the ``infos`` of those that were reset. A reset
        of all gives up what is in flight.
        """
        self._require_working()
        mask, env_options = split_options(options, self.num_envs)
        numbers = np.flatnonzero(mask).tolist()
        require_none_left_idle(mask, self._stepping.needs_reset)
        if seed is None and self._stepping.needs_reset.all():
            seed = self._pending_seed
        seeds = seed_of_each(seed, self.num_envs)
        if mask.all():
            self._give_up()
        self._require_not_stepping()
        self._require_not_sent(numbers)
        if isinstance(seed, (int, np.integer)):
            self._stepping.lost.seed_from(int(seed))
        last = self._stepping.last
        in_lockstep = not self._sent
        half = last.free_half_of_all() if in_lockstep else 0
        infos = self._stepping.reset(
            numbers,
            [seeds[number] for number in numbers],
            env_options,
            (lambda _: half) if in_lockstep else last.free_half,
        )
        self._pending_seed = None
        observations = self._of_all(half) if in_lockstep else last.of_some(np.arange(self.num_envs))
        return observations, self._batched_infos(infos, numbers, numbers, self.num_envs)

    def step(self, actions: Any) -> VectorStep:
        """Step every environment with its action, all actions being checked before anything is sent.

        Raises:
            InvalidStepError: too few or too many actions, one out of range, or an environment that waits for a reset.
            StepPendingError: a step is in flight, or answers to ``send`` were not taken.
            EnvironmentFailedError: an environment raised. Those of the other workers have made their step.
            WorkerLostError: a worker was lost.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Start to step every environment; ``step_wait`` ends it. Raises what ``step`` does before anything is sent."""
        self._require_working()
        self._require_not_stepping()
        self._require_not_sent(self._everyone)
        self._require_running(self._everyone)
        stepping = self._stepping
        each = one_action_each(actions, self.single_action_space, self.action_space, self.num_envs)
        self._policy.check(stepping.has_ended)
        own = self._placed(self._everyone, each)
        half = stepping.last.free_half_of_all()
        requests = stepping.lockstep_requests(half, own)
        self._in_flight = requests, half  # stands before the first is sent: an interrupt leaves a step to wait for
        self._crew.ask(requests)

    def step_wait(self, timeout: float | None = None) -> VectorStep:
        """Wait for the step that ``step_async`` began and give what it led to.

        Raises:
            NoStepPendingError: there is none.
            StepTimeoutError: it is not done after ``timeout`` seconds; it goes on, and may be waited for again.
            EnvironmentFailedError, WorkerLostError: as ``step``.
        """
        self._require_working()
        if self._in_flight is None:
            raise NoStepPendingError("no step is in flight: step_wait ends one that step_async began; call that first")
        requests, half = self._in_flight
        self._crew.gather(requests, timeout_s=timeout)
        told = self._stepping.settled_numbers(requests, half) or self._told_otherwise(requests, half)
        self._in_flight = None
        slab = self._crew.slab
        flags = slab.terminated.copy(), slab.truncated.copy()
        return self._of_all(half), slab.rewards.copy(), *flags, told

    def send(self, actions: Any, env_ids: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None) -> None:
        """Give the environments ``env_ids`` (all where ``None``) an action each; ``recv`` takes their steps.

        ``actions`` is a batch of as many rows, in the order of ``env_ids``.

        Raises:
            InvalidStepError: numbers or actions that cannot be, or an environment that waits for a reset.
            StepPendingError: a step is in flight, or one of them was sent and not received.
        """
        self._require_working()
        self._require_not_stepping()
        numbers = self._everyone if env_ids is None else checked_env_ids(env_ids, self.num_envs)
        self._require_not_sent(numbers)
        self._require_running(numbers)
        batched = batch_space(self.single_action_space, len(numbers)) if env_ids is not None else self.action_space
        each = one_action_each(actions, self.single_action_space, batched, len(numbers))
        stepping = self._stepping
        waits = np.zeros(self.num_envs, np.bool_)
        waits[numbers] = stepping.has_ended[numbers]
        self._policy.check(waits)
        own = self._placed(numbers, each)
        sent: dict[int, Request | None] = {}
        for number in numbers:
            half = stepping.last.free_half(number)
            requests = stepping.step_requests(self._crew.worker_of[number], [number], [half], own)
            sent[number] = requests[0] if requests else None
        self._sent = {**self._sent, **sent}
        self._crew.ask([request for request in sent.values() if request is not None])

    def recv(self, min_envs: int = 1, timeout: float | None = None) -> ReadySteps:
        """Wait until ``min_envs`` of the environments that were sent are done, and take all that are.

        Each of them may then be sent again. Their rows stand in the order of their numbers, and belong to the caller.

        Raises:
            NoStepPendingError: none was sent.
            InvalidStepError: ``min_envs`` is below 1, or above the number of those that were sent.
            StepTimeoutError: they are not done after ``timeout`` seconds; they go on.
            EnvironmentFailedError, WorkerLostError: as ``step``.
        """
        self._require_working()
        if not self._sent:
            raise NoStepPendingError("no environment was sent: recv takes what send began; call that first", "recv")
        if not 1 <= min_envs <= len(self._sent):
            raise InvalidStepError(
                f"min_envs is {min_envs}: {len(self._sent)} environments were sent; ask for 1 to so many"
            )
        requests = [request for request in self._sent.values() if request is not None]
        at_once = len(self._sent) - len(requests)
        self._crew.hear_all()
        self._crew.gather(requests, max(0, min_envs - at_once), timeout)
        ready = sorted(number for number, request in self._sent.items() if request is None or not request.is_open)
        answered = [request for number in ready if (request := self._sent[number]) is not None]
        try:
            infos = self._stepping.settled_steps(ready, answered, None)
        except EnvironmentFailedError:
            self._give_up()
            raise
        self._sent = {number: request for number, request in self._sent.items() if number not in infos}
        slab, rows = self._crew.slab, np.array(ready, np.intp)
        return ReadySteps(
            rows,
            self._stepping.last.of_some(rows),
            slab.rewards[rows],
            slab.terminated[rows],
            slab.truncated[rows],
            self._batched_infos(infos, ready, range(len(ready)), len(ready)),
        )

    def render(self, *, tiled: bool = False) -> tuple[Any, ...] | npt.NDArray[np.uint8]:  # type: ignore[override]
        """One picture an environment, each what its ``render`` gives; ``tiled`` lays them out as one picture."""
        pictures = tuple(self._asked_of_each(Command.RENDER, lambda numbers: numbers))
        return tile_images(pictures) if tiled else pictures

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call the method ``name`` of every environment, or read it where it is no method.

        Raises:
            EnvironmentFailedError: it raised, or its answer cannot be pickled; the environments go on.
        """
        answers = self._asked_of_each(Command.CALL, lambda numbers: (numbers, name, args, kwargs))
        return tuple(pickle.loads(each) for each in answers)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of every environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment: a list or tuple has one value each, anything else is set in all."""
        each = list(values) if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise InvalidStepError(f"values are {len(each)}: {self.num_envs} environments need one each")
        self._asked_of_each(Command.SET, lambda numbers: (numbers, name, [each[number] for number in numbers]))

    def state_dict(self) -> dict[str, Any]:
        """Everything that the future depends on, in plain values; `SerialVectorEnv` goes on from it as well.

        Of an environment that has no state (`framestow.envs.vector.env_state` says which) it holds only why.
        """
        entries = self._asked_of_each(Command.TAKE_STATES, lambda numbers: numbers)
        stepping = self._stepping
        return vector_state(
            self._policy.mode,
            entries,
            has_ended=stepping.has_ended,
            needs_reset=stepping.needs_reset,
            observations=[stepping.last.of(number) for number in self._everyone],
            pending_seed=self._pending_seed,
            lost=stepping.lost,
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave, in this or another process, here or in a `SerialVectorEnv`.

        An environment without a state begins anew, and a ``UserWarning`` says so: the next step gives for it the last
        observation, reward 0 and truncated, ``infos["episode_lost"]`` says why, and it is then reset as after any end.

        Raises:
            IncompatibleError: another number of environments, another mode, or a state that an environment refuses;
                others may then have theirs, so that all need a reset to go on otherwise.
        """
        self._require_working()
        check_vector_state(state, self._policy.mode, self.num_envs)
        self._require_not_stepping()
        self._require_not_sent(self._everyone)
        states = {number: entry["state"] for number, entry in enumerate(state["envs"]) if entry["state"] is not None}
        stepping = self._stepping
        stepping.needs_reset[:] = True
        refusals = self._asked_of_each(
            Command.PUT_STATES, lambda numbers: [(number, states[number]) for number in numbers if number in states]
        )
        if refusals:
            raise IncompatibleError(refusals[0])
        for number, observation in enumerate(state["observations"]):
            stepping.last.put(number, observation)
        stepping.has_ended, stepping.needs_reset = np.array(state["has_ended"]), np.array(state["needs_reset"])
        self._pending_seed = state["pending_seed"]
        stepping.lost.load_state_dict(state["lost"])
        restart_stateless_envs(state, stepping.lost)

    def close_extras(self, timeout: float = 5.0, **kwargs: Any) -> None:  # noqa: ARG002
        """Close the environments and end the workers, within about ``timeout`` seconds whatever they do.

        They are asked first, then told to end, then killed. Once closed it does nothing.

        Raises:
            EnvironmentFailedError: an environment raised as it was closed; all workers have ended.
        """
        self.closed = True
        self._finalizer.detach()
        failures = self._crew.close(timeout)
        del self._stepping  # it holds the shared memory
        if failures:
            first = min(failures, key=lambda failure: failure.environment)
            raise failure_as_error(first, "all workers have ended")

    def _asked_of_each(self, command: Command, payload_of: Callable[[list[int]], Any]) -> list[Any]:
        """Ask each worker about its environments, and give the answers of all in order; empty where there are none."""
        self._require_working()
        self._require_not_stepping()
        self._require_not_sent(self._everyone)
        requests = [
            Request(worker, command, worker.numbers, pickled(payload_of(list(worker.numbers))))
            for worker in self._crew.workers
        ]
        return [each for answer in self._stepping.answers(requests) for each in answer or ()]

    def _placed(self, numbers: Sequence[int], actions: Sequence[Any] | npt.NDArray[Any]) -> dict[int, Any] | None:
        """Put actions into the slab; gives them back by environment where they have no place in it."""
        rows = self._crew.slab.actions
        if rows is None:
            return dict(zip(numbers, actions, strict=True))
        rows[slice(None) if numbers is self._everyone else numbers] = actions
        return None

    def _of_all(self, half: int) -> Any:
        last = self._stepping.last
        last.bring(self._everyone, half)
        return last.of_all(self.copies_observations)

    def _batched_infos(
        self, infos: Infos, numbers: Sequence[int], rows: Sequence[int], num_rows: int
    ) -> dict[str, Any]:
        try:
            return batched_infos([infos[number] for number in numbers], rows, num_rows)
        except InvalidStepError:
            self._stepping.needs_reset[:] = True  # the environments have moved, and nobody has seen how
            self._give_up()
            raise

    def _told_otherwise(self, requests: list[Request], half: int) -> dict[str, Any]:
        try:
            infos = self._stepping.settled_steps(self._everyone, requests, half)
        except EnvironmentFailedError:
            self._in_flight = None
            raise
        return self._batched_infos(infos, self._everyone, self._everyone, self.num_envs)

    def _give_up(self) -> None:
        self._crew.give_up()
        self._in_flight, self._sent = None, {}

    def _require_working(self) -> None:
        if self.closed:
            raise ClosedError("vector environment is closed: its environments play no more; make a new one")
        if not self._crew.is_ours:
            raise ClosedError("vector environment belongs to the process that made it: this one was forked from it")
        if self._stepping.broken is not None:
            raise WorkerLostError(self._stepping.broken)

    def _require_not_stepping(self) -> None:
        if self._in_flight is not None:
            raise StepPendingError("a step is in flight: it must be taken back first; call step_wait(), or reset()")
        if not self._sent:
            self._crew.give_up()  # what an interrupted call may have left

    def _require_not_sent(self, numbers: Sequence[int]) -> None:
        if self._sent and (pending := [number for number in numbers if number in self._sent]):
            raise StepPendingError(
                f"environments {pending} were sent: their steps must be taken first; call recv(), or reset()", "recv"
            )

    def _require_running(self, numbers: Sequence[int]) -> None:
        needs_reset = self._stepping.needs_reset
        if needs_reset.any() and needs_reset[numbers].any():
            raise InvalidStepError("environments have no running episode: they need one to be stepped; call reset()")
