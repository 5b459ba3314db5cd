"""Step and reset environments in workers, and replace the workers that are lost."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.envs.vector.vector_state import PendingLosses
from framestow.envs.workers.pool import OnWorkerLost, WorkerPool, failure_as_error, failure_of
from framestow.envs.workers.shared_arrays import SharedArrays, is_layout
from framestow.envs.workers.wire import Command, StepOf, pack_steps, pickled
from framestow.envs.workers.worker import Request, Worker
from framestow.errors import EnvironmentFailedError, WorkerLostError


class LastObservations:
    """The last received observation of each environment: the number of its buffer, and its parts without an array."""

    def __init__(self, shared: SharedArrays, num_envs: int) -> None:
        self._shared, self._num_envs = shared, num_envs
        self._buffers = [0] * num_envs
        self._others: list[list[Any]] = [[]] * num_envs
        self._is_known = [False] * num_envs
        self._views = [[_read_only(array) for array in buffer] for buffer in shared.observation_buffers]

    def free_buffer(self, number: int) -> int:
        """Return the buffer that the environment may write."""
        return 1 - self._buffers[number]

    def common_free_buffer(self) -> int:
        """Return a buffer that every environment may write; copy last observations out of it."""
        buffer = self._buffers[0]
        self.move_to_buffer(range(self._num_envs), buffer)
        return 1 - buffer

    def set(self, number: int, buffer: int, others: list[Any] | None) -> None:
        """Set the last observation: its buffer and its parts without an array."""
        self._buffers[number] = buffer
        self._is_known[number] = True
        if others is not None:
            self._others[number] = others

    def set_all(self, buffer: int) -> None:
        """Set the last observations of all environments, which consist of arrays in one buffer."""
        self._buffers = [buffer] * self._num_envs

    def move_to_buffer(self, numbers: Sequence[int], buffer: int) -> None:
        """Copy the observations of ``numbers`` to a buffer, unless they are there."""
        if self._buffers.count(buffer) == self._num_envs:
            return
        for number in numbers:
            if self._buffers[number] != buffer:
                for to, source in zip(
                    self._shared.observation_buffers[buffer], self._shared.observation_buffers[1 - buffer], strict=True
                ):
                    to[number] = source[number]
                self._buffers[number] = buffer

    def restore(self, number: int, observation: Any) -> None:
        """Set an observation from a saved state; ``None`` changes nothing."""
        if observation is None:
            return
        buffer = self.free_buffer(number)
        self.set(number, buffer, self._shared.write(buffer, number, observation))

    def of(self, number: int) -> Any:
        """Return a copy of the observation of an environment; ``None`` before the first reset."""
        if not self._is_known[number]:
            return None
        rows = self._shared.observation_buffers[self._buffers[number]]
        return self._shared.parts.join([np.copy(array[number])[()] for array in rows], self._others[number])

    def of_all(self, copies: bool) -> Any:
        """Return the observations of all, which are in one buffer: copies, or views valid for two more steps."""
        buffer = self._buffers[0]
        arrays = [array.copy() for array in self._shared.observation_buffers[buffer]] if copies else self._views[buffer]
        return self._batched(arrays, self._others)

    def of_some(self, numbers: npt.NDArray[np.intp]) -> Any:
        """Return copies of the observations of ``numbers``, one row each."""
        buffers = np.array(self._buffers)[numbers]
        arrays = []
        for first, second in zip(*self._shared.observation_buffers, strict=True):
            rows = first[numbers]
            rows[buffers == 1] = second[numbers[buffers == 1]]
            arrays.append(rows)
        return self._batched(arrays, [self._others[number] for number in numbers])

    def _batched(self, arrays: Sequence[npt.NDArray[Any]], others: Sequence[list[Any]]) -> Any:
        return self._shared.parts.join(arrays, self._shared.parts.batched_others(others))


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


Infos = dict[int, dict[str, Any]]

_MAX_LOSSES = 3  # of one worker without a completed step


class Stepping:
    """State of the environments: running episodes, last observations, and episodes lost with their worker.

    When a worker is lost, the episodes of its environments are truncated. The step of such an environment returns:

    | mode | observation | reward, flags | ``infos`` |
    |---|---|---|---|
    | NEXT_STEP, DISABLED | the last one received | 0, truncated | ``episode_lost`` |
    | SAME_STEP | the first of the next episode | 0, truncated | ``episode_lost``, the last one in ``final_obs`` |
    | NEXT_STEP, if this step resets | the first of the next episode | 0, no flag | those of the reset |

    Environments of that worker without a step in flight report the loss in their next step.
    """

    def __init__(self, pool: WorkerPool, mode: AutoresetMode, on_worker_lost: OnWorkerLost, seed: int | None) -> None:
        self._pool, self._mode, self._on_worker_lost = pool, mode, on_worker_lost
        self.last = LastObservations(pool.shared, pool.num_envs)
        self.lost = PendingLosses(seed, pool.num_envs)
        self.has_ended = np.zeros(pool.num_envs, np.bool_)
        self.needs_reset = np.ones(pool.num_envs, np.bool_)  # never reset, or after a failure
        self.broken: str | None = None
        """Why only ``close`` works; ``None`` while all is well."""
        self._num_losses: dict[Worker, int] = dict.fromkeys(pool.workers, 0)
        self._why_lost: dict[Worker, str] = {}
        self._full_steps = [[_full_step(worker, buffer) for worker in pool.workers] for buffer in (0, 1)]

    def lockstep_requests(self, buffer: int, actions: Mapping[int, Any] | None) -> list[Request]:
        """Return the requests that step all environments into one buffer."""
        if actions is None and not (self.lost.unreported or self.lost.first_seeds or self.has_ended.any()):
            return [
                Request(worker, Command.STEP, worker.numbers, payload, buffers)
                for worker, payload, buffers in self._full_steps[buffer]
            ]
        return [
            request
            for worker in self._pool.workers
            for request in self.step_requests(worker, worker.numbers, [buffer] * len(worker.numbers), actions)
        ]

    def step_requests(
        self, worker: Worker, numbers: Sequence[int], buffers: Sequence[int], actions: Mapping[int, Any] | None
    ) -> list[Request]:
        """Return the requests that step the environments ``numbers`` of a worker, each into its buffer.

        ``actions`` is ``None`` if the actions are in the shared arrays.
        """
        if self.lost.unreported or self.lost.first_seeds:
            return self._requests_after_a_loss(worker, numbers, buffers, actions)
        return [self._step_request(worker, numbers, buffers, actions)]

    def finish_numeric_step(self, requests: Sequence[Request], buffer: int) -> dict[str, Any] | None:
        """Finish a step of `lockstep_requests` whose infos are all numbers, which is the usual case.

        Returns the infos of all environments in Gymnasium's format, or ``None`` if `finish_steps` must finish it.
        """
        layout = requests[0].answer if requests else None
        if layout is None or not is_layout(layout) or self.lost.unreported:
            return None
        if any(each.answer != layout or each.failed or each.command is not Command.STEP for each in requests):
            return None
        self.last.set_all(buffer)
        for request in requests:
            self._num_losses[request.worker] = 0
        np.logical_or(self._pool.shared.terminated, self._pool.shared.truncated, out=self.has_ended)
        return self._pool.shared.infos.of_all(layout)

    def finish_steps(self, numbers: Sequence[int], requests: Sequence[Request], lockstep_buffer: int | None) -> Infos:
        """Finish steps whose requests are done, replace lost workers, and return the infos of each environment.

        Rewards and flags are then in the shared arrays, and the observations in `last`. With a ``lockstep_buffer`` all
        observations are in that buffer.

        Raises:
            EnvironmentFailedError: an environment raised; all need a reset.
            WorkerLostError: a worker was lost and ``on_worker_lost`` is ``"raise"``, or it was lost too often.
        """
        self._raise_failures(requests)
        losses = self._losses_to_report(numbers, requests) if self.lost.unreported else {}
        settled, idle = self._replace_lost_workers(requests, losses)
        is_same_step = self._mode is AutoresetMode.SAME_STEP
        finals = {number: self.last.of(number) for number in losses} if is_same_step else {}
        infos: Infos = {number: {} for number in numbers}
        for request in settled:
            self._store_answer(request, infos)
        for number, why in losses.items():
            self._report_loss(number, why, infos, finals)
        if lockstep_buffer is not None and losses:
            self.last.move_to_buffer(list(losses), lockstep_buffer)
        shared = self._pool.shared
        if lockstep_buffer is None:
            self.has_ended[numbers] = shared.terminated[numbers] | shared.truncated[numbers]
        else:
            np.logical_or(shared.terminated, shared.truncated, out=self.has_ended)
        for number, why in idle.items():
            self.lost.unreported.pop(number, None)  # this step may have ended that episode
            self._add_loss(number, why)
        return infos

    def reset(
        self,
        numbers: Sequence[int],
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        buffer_of: Callable[[int], int],
    ) -> Infos:
        """Reset environments, replace workers that are lost meanwhile, and return the infos.

        Raises:
            EnvironmentFailedError: an environment raised; all need a reset.
            WorkerLostError: a worker was lost and ``on_worker_lost`` is ``"raise"``, or it was lost too often.
        """
        self.needs_reset[numbers] = True  # until the end: an interrupt may leave only some of them reset
        pairs = zip(numbers, seeds, strict=True)
        seed_of = {number: self._first_seed(number) if seed is None else seed for number, seed in pairs}

        def request_of(worker: Worker, of_worker: Sequence[int]) -> Request:
            each = [seed_of[number] for number in of_worker]
            return self._reset_request(worker, of_worker, each, options, [buffer_of(number) for number in of_worker])

        requests = [request_of(worker, of_worker) for worker, of_worker in self.by_worker(numbers)]
        self._pool.wait_for(requests)
        while lost := [request for request in requests if request.lost is not None]:
            self._raise_failures(requests)
            for request in lost:
                self._replace(request.worker, request.lost or "")
                for number in set(request.worker.numbers) - set(request.numbers):
                    self._add_loss(number, request.lost or "")
            seed_of |= {number: seed for number, seed in self.lost.first_seeds.items() if seed_of.get(number) is None}
            again = [request_of(request.worker, request.numbers) for request in lost]
            requests = [request for request in requests if request.lost is None] + again
            self._pool.wait_for(requests)
        self._raise_failures(requests)
        infos: Infos = {}
        for request in requests:
            self._store_answer(request, infos)
        self.lost.mark_reset(numbers)
        self.needs_reset[numbers], self.has_ended[numbers] = False, False
        return infos

    def answers(self, requests: Sequence[Request]) -> list[Any]:
        """Send requests other than steps and resets, and return the answers.

        Raises:
            EnvironmentFailedError: an environment raised.
            WorkerLostError: a worker was lost. With ``"restart"`` it is replaced and its episodes are lost; the call
                may be repeated.
        """
        self._pool.wait_for(requests)
        lost = [request for request in requests if request.lost is not None]
        for request in lost:
            self._replace(request.worker, request.lost or "")
            for number in request.worker.numbers:
                self._add_loss(number, request.lost or "")
        if lost:
            raise WorkerLostError(
                f"{lost[0].lost} before it answered: it was replaced, and the next step reports its lost episodes; "
                "repeat the call"
            )
        for request in requests:
            if request.failed:
                raise failure_as_error(failure_of(request), "the environments can still be stepped")
        return [pickle.loads(request.answer) if request.answer else None for request in requests]

    def by_worker(self, numbers: Iterable[int]) -> list[tuple[Worker, list[int]]]:
        """Group environments by their workers."""
        grouped: dict[Worker, list[int]] = {}
        for number in numbers:
            grouped.setdefault(self._pool.worker_of[number], []).append(number)
        return list(grouped.items())

    def _losses_to_report(self, numbers: Sequence[int], requests: Sequence[Request]) -> dict[int, str]:
        """Return the lost episodes that these steps report; not those of steps answered before the loss."""
        answered = {
            number
            for request in requests
            if request.command is Command.STEP and request.answer is not None
            for number in request.numbers
        }
        unreported = self.lost.unreported
        return {number: unreported[number] for number in numbers if number in unreported and number not in answered}

    def _requests_after_a_loss(
        self, worker: Worker, numbers: Sequence[int], buffers: Sequence[int], actions: Mapping[int, Any] | None
    ) -> list[Request]:
        """Return requests as `step_requests` does; lost environments do not step, and SAME_STEP resets them."""
        buffer_of = dict(zip(numbers, buffers, strict=True))
        reporting = [number for number in numbers if number in self.lost.unreported]
        due = [number for number in numbers if number not in self.lost.unreported and self._is_due_for_reset(number)]
        resets = sorted(due + (reporting if self._mode is AutoresetMode.SAME_STEP else []))
        steps = [number for number in numbers if number not in reporting and number not in due]
        requests = []
        if steps:
            requests.append(self._step_request(worker, steps, [buffer_of[number] for number in steps], actions))
        if resets:
            seeds = [self._first_seed(number) for number in resets]
            requests.append(self._reset_request(worker, resets, seeds, None, [buffer_of[number] for number in resets]))
        return requests

    def _is_due_for_reset(self, number: int) -> bool:
        """Return whether this step must reset an environment that was replaced and not reset since."""
        is_reset_by_steps = self._mode is AutoresetMode.NEXT_STEP and bool(self.has_ended[number])
        return is_reset_by_steps and number in self.lost.first_seeds

    def _step_request(
        self, worker: Worker, numbers: Sequence[int], buffers: Sequence[int], actions: Mapping[int, Any] | None
    ) -> Request:
        steps = [StepOf(*each) for each in zip(numbers, self.has_ended[numbers].tolist(), buffers, strict=True)]
        sent_actions = None if actions is None else [actions[number] for number in numbers]
        return Request(worker, Command.STEP, numbers, pack_steps(steps, sent_actions), buffers)

    def _reset_request(
        self,
        worker: Worker,
        numbers: Sequence[int],
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        buffers: Sequence[int],
    ) -> Request:
        payload = [
            (number, seed, options, buffer) for number, seed, buffer in zip(numbers, seeds, buffers, strict=True)
        ]
        return Request(worker, Command.RESET, numbers, pickled(payload), buffers)

    def _first_seed(self, number: int) -> int | None:
        return self.lost.first_seeds.get(number)

    def _replace_lost_workers(
        self, requests: Sequence[Request], losses: dict[int, str]
    ) -> tuple[list[Request], dict[int, str]]:
        """Replace lost workers, and reset their environments that the autoreset mode resets in this step.

        Adds the environments whose step was lost to ``losses``. Returns the answered requests, and the environments
        that lost their episode without a step in flight, or after it.
        """
        settled = list(requests)
        idle: dict[int, str] = {}
        while lost := [request for request in settled if request.lost is not None]:
            settled = [request for request in settled if request.lost is None]
            lost_steps: dict[Worker, list[int]] = {}
            for request in lost:
                lost_steps.setdefault(request.worker, []).extend(request.numbers)
            for worker, numbers in lost_steps.items():
                why = next(request.lost for request in lost if request.worker is worker) or ""
                if worker.lost is not None:  # else a reset of other environments has replaced it
                    self._replace(worker, why)
                    idle.update((number, why) for number in worker.numbers if number not in numbers + list(losses))
                settled += self._resets_after_a_loss(worker, numbers, why, losses)
            self._pool.wait_for(settled)
            self._raise_failures(settled)
        for request in settled if self._why_lost else ():
            if request.is_stale:
                idle.update((number, self._why_lost[request.worker]) for number in request.numbers)
        return settled, idle

    def _resets_after_a_loss(
        self, worker: Worker, numbers: list[int], why: str, losses: dict[int, str]
    ) -> list[Request]:
        resets = []
        for number in sorted(numbers):
            is_being_reset = self._mode is AutoresetMode.NEXT_STEP and self.has_ended[number] and number not in losses
            if not is_being_reset:
                losses.setdefault(number, why)
            if is_being_reset or self._mode is AutoresetMode.SAME_STEP:
                resets.append(number)
        if not resets:
            return []
        seeds = [self._first_seed(number) for number in resets]
        buffers = [self.last.free_buffer(number) for number in resets]
        return [self._reset_request(worker, resets, seeds, None, buffers)]

    def _store_answer(self, request: Request, infos: Infos) -> None:
        """Store the answer to a step or a reset."""
        each_info, each_others = self._read_answer(request)
        if each_info:
            infos.update(zip(request.numbers, each_info, strict=True))
        else:
            infos.update((number, {}) for number in request.numbers)
        for place, (number, buffer) in enumerate(zip(request.numbers, request.buffers, strict=True)):
            self.last.set(number, buffer, each_others[place] if each_others else None)
        if request.is_stale:
            return
        if request.command is Command.STEP:
            self._num_losses[request.worker] = 0
        else:
            self.lost.mark_reset(request.numbers)

    def _read_answer(self, request: Request) -> tuple[Any, Any]:
        """Return the infos in an answer, and the parts of observations that are no arrays."""
        if not request.answer:
            return None, None
        if is_layout(request.answer):
            return self._pool.shared.infos.of_each(request.answer, request.numbers), None
        try:
            each_info, each_others = pickle.loads(request.answer)
        except Exception as error:
            self.needs_reset[:] = True
            raise EnvironmentFailedError(
                f"answer of {request.worker.name} cannot be unpickled: {type(error).__name__}: {error}; use plain "
                "values in infos, and reset all environments to continue"
            ) from error
        return each_info, each_others

    def _report_loss(self, number: int, why: str, infos: Infos, finals: Mapping[int, Any]) -> None:
        shared = self._pool.shared
        shared.rewards[number], shared.terminated[number], shared.truncated[number] = 0.0, False, True
        infos[number] = {**infos[number], "episode_lost": why}
        if number in finals:
            infos[number] |= {"final_obs": finals[number], "final_info": {}}
        self.lost.unreported.pop(number, None)

    def _add_loss(self, number: int, why: str) -> None:
        """Report a lost episode in the next step, if an episode was running."""
        waits_for_reset = self.has_ended[number] and self._mode is not AutoresetMode.SAME_STEP
        if not (waits_for_reset or self.needs_reset[number]):
            self.lost.unreported.setdefault(number, why)

    def _replace(self, worker: Worker, why: str) -> None:
        if self._on_worker_lost == "raise":
            self._break(
                f"{why}; only close() works now: make a new one, or replace workers by on_worker_lost='restart'"
            )
        while True:
            self._num_losses[worker] += 1
            if self._num_losses[worker] >= _MAX_LOSSES:
                self._break(f"{why}: it was lost {_MAX_LOSSES} times without a completed step; only close() works now")
            warnings.warn(f"{why}; it is replaced, and its episodes count as truncated", RuntimeWarning, stacklevel=4)
            try:
                self._pool.replace(worker, why)
            except WorkerLostError as error:
                why = str(error)
                continue
            except EnvironmentFailedError as error:
                why = f"{worker.name} could not make its environments again: {error}"
                continue
            self.lost.mark_replaced(worker.numbers)
            self._why_lost[worker] = why
            return

    def _break(self, why: str) -> NoReturn:
        self.broken = why
        raise WorkerLostError(why)

    def _raise_failures(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.failed:
                self.needs_reset[:] = True
                raise failure_as_error(failure_of(request), "reset all environments to continue")


def _full_step(worker: Worker, buffer: int) -> tuple[Worker, bytes, list[int]]:
    """Return worker, payload and buffers of a step of all its environments if no episode has ended."""
    steps = [StepOf(number, False, buffer) for number in worker.numbers]
    return worker, pack_steps(steps, None), [buffer] * len(steps)
