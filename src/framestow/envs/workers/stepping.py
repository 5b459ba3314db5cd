"""Step and reset environments in workers, and replace the workers that are lost."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.envs.vector.vector_state import PendingLosses
from framestow.envs.workers.pool import OnWorkerLost, WorkerPool, failure_as_error, failure_of
from framestow.envs.workers.shared_arrays import SharedArrays, is_layout
from framestow.envs.workers.wire import Command, StepOf, pack_steps, pickle_value
from framestow.envs.workers.worker import Request, Worker
from framestow.errors import EnvironmentFailedError, WorkerLostError


class LastObservations:
    """The last received observation of each environment.

    It is copied from the shared arrays when an answer arrives. So a worker that dies while it writes leaves it intact.
    """

    def __init__(self, shared: SharedArrays, num_envs: int) -> None:
        self._shared = shared
        # The copies, one array for each part of an observation, ``(num_envs, *shape)``; a worker never writes to them.
        self._arrays = [array.copy() for array in shared.observations]
        self._views = [_read_only(array) for array in self._arrays]  # the same arrays, for callers that take no copies
        self._others: list[list[Any]] = [[]] * num_envs  # parts without an array
        self._is_known = [False] * num_envs  # by environment: it was reset, or its observation restored

    def receive(self, numbers: Sequence[int], each_others: Sequence[list[Any]] | None) -> None:
        """Copy the observations of ``numbers``; ``each_others`` has their parts without an array."""
        for to, source in zip(self._arrays, self._shared.observations, strict=True):
            for number in numbers:
                to[number] = source[number]
        for row, number in enumerate(numbers):
            self._is_known[number] = True
            if each_others is not None:
                self._others[number] = each_others[row]

    def receive_all(self) -> None:
        """Copy the observations of all environments, which consist of arrays and are known already."""
        for to, source in zip(self._arrays, self._shared.observations, strict=True):
            np.copyto(to, source)

    def restore(self, number: int, observation: Any) -> None:
        """Set an observation from a saved state; ``None`` changes nothing."""
        if observation is not None:
            self.receive([number], [self._shared.write(number, observation)])

    def of(self, number: int) -> Any:
        """Return a copy of the observation of an environment; ``None`` before the first reset."""
        if not self._is_known[number]:
            return None
        return self._shared.parts.join([np.copy(rows[number])[()] for rows in self._arrays], self._others[number])

    def of_all(self, copies: bool) -> Any:
        """Return the observations of all environments: copies, or views that the next step overwrites."""
        arrays = [array.copy() for array in self._arrays] if copies else self._views
        return self._shared.parts.join(arrays, self._shared.parts.batch_others(self._others))


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

    If the worker is lost between two steps, its environments report the loss in their next step.
    """

    def __init__(self, pool: WorkerPool, mode: AutoresetMode, on_worker_lost: OnWorkerLost, seed: int | None) -> None:
        self._pool, self._mode, self._on_worker_lost = pool, mode, on_worker_lost
        self.last = LastObservations(pool.shared, pool.num_envs)
        self.lost = PendingLosses(seed, pool.num_envs)
        # By environment: its episode ended in the last step. Workers read it from the request of the next step.
        self.has_ended = np.zeros(pool.num_envs, np.bool_)
        self.needs_reset = np.ones(pool.num_envs, np.bool_)  # never reset, or after a failure
        self.broken: str | None = None
        """Why only ``close`` works; ``None`` while all is well."""
        # Losses of a worker since it last completed a step; too many make ``broken``.
        self._num_losses: dict[Worker, int] = dict.fromkeys(pool.workers, 0)
        # Reason of the last loss of each worker that was replaced; empty while none was.
        self._why_lost: dict[Worker, str] = {}
        # The usual request of each worker, packed once: step all of its environments, none of which has ended.
        self._full_steps = [(worker, _full_step(worker)) for worker in pool.workers]

    def step_requests(self, actions: Mapping[int, Any] | None) -> list[Request]:
        """Return the requests that step all environments; ``actions`` is ``None`` if they are in the shared arrays."""
        has_losses = bool(self.lost.unreported or self.lost.first_seeds)
        if actions is None and not has_losses and not self.has_ended.any():
            return [Request(worker, Command.STEP, worker.numbers, payload) for worker, payload in self._full_steps]
        requests = []
        for worker in self._pool.workers:
            if has_losses:
                requests += self._requests_after_a_loss(worker, actions)
            else:
                requests.append(self._step_request(worker, worker.numbers, actions))
        return requests

    def finish_numeric_step(self, requests: Sequence[Request]) -> dict[str, Any] | None:
        """Finish a step whose infos are all numbers, which is the usual case.

        Returns the infos of all environments in Gymnasium's format, or ``None`` if ``finish_step`` must finish it.
        """
        layout = requests[0].answer if requests else None
        if layout is None or not is_layout(layout) or self.lost.unreported:
            return None
        if any(each.answer != layout or each.failed or each.command is not Command.STEP for each in requests):
            return None
        self.last.receive_all()
        for request in requests:
            self._num_losses[request.worker] = 0
        np.logical_or(self._pool.shared.terminated, self._pool.shared.truncated, out=self.has_ended)
        return self._pool.shared.infos.of_all(layout)

    def finish_step(self, requests: Sequence[Request]) -> Infos:
        """Finish a step whose requests are done, replace lost workers, and return the infos of each environment.

        Rewards and flags are then in the shared arrays, and the observations in ``last``.

        Raises:
            EnvironmentFailedError: an environment raised; all need a reset.
            WorkerLostError: a worker was lost and ``on_worker_lost`` is ``"raise"``, or it was lost too often.
        """
        self._raise_failures(requests)
        losses = self._losses_to_report(requests) if self.lost.unreported else {}
        settled, idle = self._replace_lost_workers(requests, losses)
        is_same_step = self._mode is AutoresetMode.SAME_STEP
        finals = {number: self.last.of(number) for number in losses} if is_same_step else {}
        infos: Infos = {number: {} for number in range(self._pool.num_envs)}
        for request in settled:
            self._store_answer(request, infos)
        for number, why in losses.items():
            self._report_loss(number, why, infos, finals)
        np.logical_or(self._pool.shared.terminated, self._pool.shared.truncated, out=self.has_ended)
        for number, why in idle.items():
            self.lost.unreported.pop(number, None)  # this step may have ended that episode
            self._add_loss(number, why)
        return infos

    def reset(self, numbers: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None) -> Infos:
        """Reset environments, replace workers that are lost meanwhile, and return the infos.

        Raises:
            EnvironmentFailedError: an environment raised; all need a reset.
            WorkerLostError: a worker was lost and ``on_worker_lost`` is ``"raise"``, or it was lost too often.
        """
        self.needs_reset[numbers] = True  # until the end: an interrupt may leave only some of them reset
        pairs = zip(numbers, seeds, strict=True)
        seed_of = {number: self._first_seed(number) if seed is None else seed for number, seed in pairs}

        def request_of(worker: Worker, of_worker: Sequence[int]) -> Request:
            return self._reset_request(worker, of_worker, [seed_of[number] for number in of_worker], options)

        requests = [request_of(worker, of_worker) for worker, of_worker in self._by_worker(numbers)]
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

    def _by_worker(self, numbers: Iterable[int]) -> list[tuple[Worker, list[int]]]:
        """Group environments by their workers."""
        grouped: dict[Worker, list[int]] = {}
        for number in numbers:
            grouped.setdefault(self._pool.worker_of[number], []).append(number)
        return list(grouped.items())

    def _losses_to_report(self, requests: Sequence[Request]) -> dict[int, str]:
        """Return the lost episodes that these steps report; not those of steps answered before the loss."""
        answered = {
            number
            for request in requests
            if request.command is Command.STEP and request.answer is not None
            for number in request.numbers
        }
        return {number: why for number, why in sorted(self.lost.unreported.items()) if number not in answered}

    def _requests_after_a_loss(self, worker: Worker, actions: Mapping[int, Any] | None) -> list[Request]:
        """Return the requests that step a worker's environments; lost ones do not step, and SAME_STEP resets them."""
        numbers = worker.numbers
        reporting = [number for number in numbers if number in self.lost.unreported]
        due = [number for number in numbers if number not in self.lost.unreported and self._is_due_for_reset(number)]
        resets = sorted(due + (reporting if self._mode is AutoresetMode.SAME_STEP else []))
        steps = [number for number in numbers if number not in reporting and number not in due]
        requests = []
        if steps:
            requests.append(self._step_request(worker, steps, actions))
        if resets:
            requests.append(self._reset_request(worker, resets, list(map(self._first_seed, resets)), None))
        return requests

    def _is_due_for_reset(self, number: int) -> bool:
        """Return whether this step must reset an environment that was replaced and not reset since."""
        is_reset_by_steps = self._mode is AutoresetMode.NEXT_STEP and bool(self.has_ended[number])
        return is_reset_by_steps and number in self.lost.first_seeds

    def _step_request(self, worker: Worker, numbers: Sequence[int], actions: Mapping[int, Any] | None) -> Request:
        steps = [StepOf(*each) for each in zip(numbers, self.has_ended[numbers].tolist(), strict=True)]
        sent_actions = None if actions is None else [actions[number] for number in numbers]
        return Request(worker, Command.STEP, numbers, pack_steps(steps, sent_actions))

    def _reset_request(
        self, worker: Worker, numbers: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> Request:
        payload = [(number, seed, options) for number, seed in zip(numbers, seeds, strict=True)]
        return Request(worker, Command.RESET, numbers, pickle_value(payload))

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
                if worker.lost is not None:  # else this call was interrupted after it had replaced it
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
        return [self._reset_request(worker, resets, list(map(self._first_seed, resets)), None)]

    def _store_answer(self, request: Request, infos: Infos) -> None:
        """Store the answer to a step or a reset."""
        each_info, each_others = self._read_answer(request)
        if each_info:
            infos.update(zip(request.numbers, each_info, strict=True))
        else:
            infos.update((number, {}) for number in request.numbers)
        self.last.receive(request.numbers, each_others or None)
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


def _full_step(worker: Worker) -> bytes:
    """Return the payload of a step of all environments of a worker if no episode has ended."""
    return pack_steps([StepOf(number, False) for number in worker.numbers], None)
