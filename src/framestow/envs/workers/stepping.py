"""Steps and resets of environments in workers: asked, and settled also where a worker was lost on the way."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from framestow.envs.vector.vector_state import PendingLosses
from framestow.envs.workers.pool import Crew, OnWorkerLost, failure_as_error, failure_of
from framestow.envs.workers.shared_arrays import Slab, is_layout
from framestow.envs.workers.wire import Command, StepOf, packed_steps, pickled
from framestow.envs.workers.worker import Request, Worker
from framestow.errors import EnvironmentFailedError, WorkerLostError


class LastObservations:
    """Knows which half of the slab holds each environment's last good observation, and keeps its other parts."""

    def __init__(self, slab: Slab, num_envs: int) -> None:
        self._slab, self._num_envs = slab, num_envs
        self._halves = [0] * num_envs
        self._others: list[list[Any]] = [[]] * num_envs
        self._is_known = [False] * num_envs
        self._lent = [[_read_only(array) for array in half] for half in slab.halves]

    def free_half(self, number: int) -> int:
        """Give the half that the environment may write to."""
        return 1 - self._halves[number]

    def free_half_of_all(self) -> int:
        """Give a half that every environment may write to; those whose last observation lies there are moved away."""
        half = self._halves[0]
        self.bring(range(self._num_envs), half)
        return 1 - half

    def note(self, number: int, half: int, others: list[Any] | None) -> None:
        """Take note of a new one: written into that half, with those other parts."""
        self._halves[number] = half
        self._is_known[number] = True
        if others is not None:
            self._others[number] = others

    def note_all(self, half: int) -> None:
        """Take note of new ones of all environments, written into that half, whose other parts are none."""
        self._halves = [half] * self._num_envs

    def bring(self, numbers: Sequence[int], half: int) -> None:
        """Copy those of some environments to a half, where they are not there."""
        if self._halves.count(half) == self._num_envs:
            return
        for number in numbers:
            if self._halves[number] != half:
                for to, source in zip(self._slab.halves[half], self._slab.halves[1 - half], strict=True):
                    to[number] = source[number]
                self._halves[number] = half

    def put(self, number: int, observation: Any) -> None:
        """Set one, as one reads it from a saved state; ``None`` where there was none."""
        if observation is None:
            return
        half = self.free_half(number)
        self.note(number, half, self._slab.write(half, number, observation))

    def of(self, number: int) -> Any:
        """Give one as the caller's own; ``None`` before the first reset."""
        if not self._is_known[number]:
            return None
        rows = self._slab.halves[self._halves[number]]
        return self._slab.parts.joined([np.copy(array[number])[()] for array in rows], self._others[number])

    def of_all(self, copies: bool) -> Any:
        """Give those of all, which lie in one half: the caller's own, or lent until the second write from now."""
        half = self._halves[0]
        arrays = [array.copy() for array in self._slab.halves[half]] if copies else self._lent[half]
        return self._batched(arrays, self._others)

    def of_some(self, numbers: npt.NDArray[np.intp]) -> Any:
        """Give those of some, a row each, as the caller's own."""
        halves = np.array(self._halves)[numbers]
        arrays = []
        for first, second in zip(*self._slab.halves, strict=True):
            rows = first[numbers]
            rows[halves == 1] = second[numbers[halves == 1]]
            arrays.append(rows)
        return self._batched(arrays, [self._others[number] for number in numbers])

    def _batched(self, arrays: Sequence[npt.NDArray[Any]], others: Sequence[list[Any]]) -> Any:
        return self._slab.parts.joined(arrays, self._slab.parts.batched_others(others))


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


Infos = dict[int, dict[str, Any]]

_MOST_LOSSES = 3  # of one worker without a completed step in between


class Stepping:
    """What becomes of each environment: whether its episode runs, what it showed last, what a loss did to it.

    When a worker is lost, the episodes of its environments are cut off where they were. For environment ``i``, whose
    step was asked for, that step then gives:

    | mode | observation | reward, flags | ``infos`` |
    |---|---|---|---|
    | NEXT_STEP, DISABLED | the last good one | 0, truncated | ``episode_lost`` |
    | SAME_STEP | the first of the next episode | 0, truncated | ``episode_lost``, last good one in ``final_obs`` |
    | NEXT_STEP, where this step was to reset it | the first of the next episode | 0, none | those of the reset |

    Environments of that worker whose step was not asked for tell of it at their next step.
    """

    def __init__(self, crew: Crew, mode: AutoresetMode, on_worker_lost: OnWorkerLost, seed: int | None) -> None:
        self._crew, self._mode, self._on_worker_lost = crew, mode, on_worker_lost
        self.last = LastObservations(crew.slab, crew.num_envs)
        self.lost = PendingLosses(seed, crew.num_envs)
        self.has_ended = np.zeros(crew.num_envs, np.bool_)
        self.needs_reset = np.ones(crew.num_envs, np.bool_)  # never begun, or in doubt after a failure
        self.broken: str | None = None
        """Why nothing but closing works any more."""
        self._num_losses: dict[Worker, int] = dict.fromkeys(crew.workers, 0)
        self._why_lost: dict[Worker, str] = {}
        self._usual_steps = [[_usual_step(worker, half) for worker in crew.workers] for half in (0, 1)]

    def lockstep_requests(self, half: int, actions: Mapping[int, Any] | None) -> list[Request]:
        """What to ask the workers so that all environments are stepped, into one half of the slab."""
        if actions is None and not (self.lost.unreported or self.lost.first_seeds or self.has_ended.any()):
            return [
                Request(worker, Command.STEP, worker.numbers, payload, halves)
                for worker, payload, halves in self._usual_steps[half]
            ]
        return [
            request
            for worker in self._crew.workers
            for request in self.step_requests(worker, worker.numbers, [half] * len(worker.numbers), actions)
        ]

    def step_requests(
        self, worker: Worker, numbers: Sequence[int], halves: Sequence[int], actions: Mapping[int, Any] | None
    ) -> list[Request]:
        """What to ask a worker so that its environments ``numbers`` are stepped, into ``halves`` of the slab.

        ``actions`` only where they do not lie in the slab. Nothing is sent yet.
        """
        if self.lost.unreported or self.lost.first_seeds:
            return self._requests_after_a_loss(worker, numbers, halves, actions)
        return [self._step_request(worker, numbers, halves, actions)]

    def settled_numbers(self, requests: Sequence[Request], half: int) -> dict[str, Any] | None:
        """Take in the answers to `lockstep_requests` where nothing but numbers was told: nearly every step.

        Gives the infos of all environments in Gymnasium's form, or ``None`` where `settled_steps` has to look closer.
        """
        told = requests[0].answer if requests else None
        if told is None or not is_layout(told) or self.lost.unreported:
            return None
        if any(request.answer != told or request.failed or request.command is not Command.STEP for request in requests):
            return None
        self.last.note_all(half)
        for request in requests:
            self._num_losses[request.worker] = 0
        np.logical_or(self._crew.slab.terminated, self._crew.slab.truncated, out=self.has_ended)
        return self._crew.slab.infos.of_all(told)

    def settled_steps(self, numbers: Sequence[int], requests: Sequence[Request], lockstep_half: int | None) -> Infos:
        """Take in the answers to requests that `Crew.gather` has settled; gives the infos of each environment.

        Rewards and flags then stand in the slab, and the observations in `last`: in ``lockstep_half`` where one is
        given.

        Raises:
            EnvironmentFailedError: an environment raised; all need a reset.
            WorkerLostError: a worker was lost and is not to be replaced, or was so too often.
        """
        self._raise_failures(requests)
        told = self._losses_told_now(numbers, requests) if self.lost.unreported else {}
        settled, idle = self._recovered(requests, told)
        is_same_step = self._mode is AutoresetMode.SAME_STEP
        finals = {number: self.last.of(number) for number in told} if is_same_step else {}
        infos: Infos = {number: {} for number in numbers}
        for request in settled:
            self._take(request, infos)
        for number, why in told.items():
            self._tell(number, why, infos, finals)
        if lockstep_half is not None and told:
            self.last.bring(list(told), lockstep_half)
        slab = self._crew.slab
        if lockstep_half is None:
            self.has_ended[numbers] = slab.terminated[numbers] | slab.truncated[numbers]
        else:
            np.logical_or(slab.terminated, slab.truncated, out=self.has_ended)
        for number, why in idle.items():
            self.lost.unreported.pop(number, None)  # noted before this step, which may have ended the episode
            self._note_loss(number, why)
        return infos

    def reset(
        self,
        numbers: Sequence[int],
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        half_of: Callable[[int], int],
    ) -> Infos:
        """Reset environments, on new workers where some are lost meanwhile; gives their infos.

        Raises:
            EnvironmentFailedError: an environment raised; all need a reset.
            WorkerLostError: a worker was lost and is not to be replaced, or was so too often.
        """
        self.needs_reset[numbers] = True  # until all is well: an interrupt leaves some reset and some not
        given = zip(numbers, seeds, strict=True)
        seed_of = {number: self._first_seed(number) if seed is None else seed for number, seed in given}

        def asked(worker: Worker, of_it: Sequence[int]) -> Request:
            each = [seed_of[number] for number in of_it]
            return self._reset_request(worker, of_it, each, options, [half_of(number) for number in of_it])

        requests = [asked(worker, of_it) for worker, of_it in self.by_worker(numbers)]
        self._crew.gather(requests)
        while lost := [request for request in requests if request.lost is not None]:
            self._raise_failures(requests)
            for request in lost:
                self._replace(request.worker, request.lost or "")
                for number in set(request.worker.numbers) - set(request.numbers):
                    self._note_loss(number, request.lost or "")
            seed_of |= {number: seed for number, seed in self.lost.first_seeds.items() if seed_of.get(number) is None}
            again = [asked(request.worker, request.numbers) for request in lost]
            requests = [request for request in requests if request.lost is None] + again
            self._crew.gather(requests)
        self._raise_failures(requests)
        infos: Infos = {}
        for request in requests:
            self._take(request, infos)
        self.lost.mark_reset(numbers)
        self.needs_reset[numbers], self.has_ended[numbers] = False, False
        return infos

    def answers(self, requests: Sequence[Request]) -> list[Any]:
        """Ask something else than steps and resets, and give the answers.

        Raises:
            EnvironmentFailedError: an environment raised.
            WorkerLostError: a worker was lost. With ``"restart"`` it has been replaced: its episodes are lost, and the
                call may be made again.
        """
        self._crew.gather(requests)
        lost = [request for request in requests if request.lost is not None]
        for request in lost:
            self._replace(request.worker, request.lost or "")
            for number in request.worker.numbers:
                self._note_loss(number, request.lost or "")
        if lost:
            raise WorkerLostError(
                f"{lost[0].lost} before it answered: it was replaced, and the next step tells of its episodes; "
                "call again"
            )
        for request in requests:
            if request.failed:
                raise failure_as_error(failure_of(request), "the environments go on")
        return [pickle.loads(request.answer) if request.answer else None for request in requests]

    def by_worker(self, numbers: Iterable[int]) -> list[tuple[Worker, list[int]]]:
        """Sort environments by their workers."""
        found: dict[Worker, list[int]] = {}
        for number in numbers:
            found.setdefault(self._crew.worker_of[number], []).append(number)
        return list(found.items())

    def _losses_told_now(self, numbers: Sequence[int], requests: Sequence[Request]) -> dict[int, str]:
        """Which environments' losses these steps tell of, and why: not where a step was answered before the loss."""
        stepped = {
            number
            for request in requests
            if request.command is Command.STEP and request.answer is not None
            for number in request.numbers
        }
        unreported = self.lost.unreported
        return {number: unreported[number] for number in numbers if number in unreported and number not in stepped}

    def _requests_after_a_loss(
        self, worker: Worker, numbers: Sequence[int], halves: Sequence[int], actions: Mapping[int, Any] | None
    ) -> list[Request]:
        """Like `step_requests` where some environments were lost: those are reset where the mode says so, or left."""
        half_of = dict(zip(numbers, halves, strict=True))
        told = [number for number in numbers if number in self.lost.unreported]
        due = [number for number in numbers if number not in self.lost.unreported and self._is_due_for_reset(number)]
        resets = sorted(due + (told if self._mode is AutoresetMode.SAME_STEP else []))
        steps = [number for number in numbers if number not in told and number not in due]
        requests = []
        if steps:
            requests.append(self._step_request(worker, steps, [half_of[number] for number in steps], actions))
        if resets:
            seeds = [self._first_seed(number) for number in resets]
            requests.append(self._reset_request(worker, resets, seeds, None, [half_of[number] for number in resets]))
        return requests

    def _is_due_for_reset(self, number: int) -> bool:
        """Whether this step is to reset an environment which has not been reset since it was made anew."""
        is_reset_by_steps = self._mode is AutoresetMode.NEXT_STEP and bool(self.has_ended[number])
        return is_reset_by_steps and number in self.lost.first_seeds

    def _step_request(
        self, worker: Worker, numbers: Sequence[int], halves: Sequence[int], actions: Mapping[int, Any] | None
    ) -> Request:
        steps = [StepOf(*each) for each in zip(numbers, self.has_ended[numbers].tolist(), halves, strict=True)]
        own = None if actions is None else [actions[number] for number in numbers]
        return Request(worker, Command.STEP, numbers, packed_steps(steps, own), halves)

    def _reset_request(
        self,
        worker: Worker,
        numbers: Sequence[int],
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        halves: Sequence[int],
    ) -> Request:
        payload = [(number, seed, options, half) for number, seed, half in zip(numbers, seeds, halves, strict=True)]
        return Request(worker, Command.RESET, numbers, pickled(payload), halves)

    def _first_seed(self, number: int) -> int | None:
        return self.lost.first_seeds.get(number)

    def _recovered(self, requests: Sequence[Request], told: dict[int, str]) -> tuple[list[Request], dict[int, str]]:
        """Replace lost workers, and reset there what the mode resets in this step.

        Adds to ``told`` whose step ends in a loss; gives the requests that were answered, and the environments that
        lost their episode without having a step under way, or after it.
        """
        settled = list(requests)
        idle: dict[int, str] = {}
        while lost := [request for request in settled if request.lost is not None]:
            settled = [request for request in settled if request.lost is None]
            cut_off: dict[Worker, list[int]] = {}
            for request in lost:
                cut_off.setdefault(request.worker, []).extend(request.numbers)
            for worker, numbers in cut_off.items():
                why = next(request.lost for request in lost if request.worker is worker) or ""
                if worker.lost is not None:  # else it was replaced since, by a reset of other environments
                    self._replace(worker, why)
                    idle.update((number, why) for number in worker.numbers if number not in numbers + list(told))
                settled += self._ask_after_a_loss(worker, numbers, why, told)
            self._crew.gather(settled)
            self._raise_failures(settled)
        for request in settled if self._why_lost else ():
            if request.is_of_a_former_life:
                idle.update((number, self._why_lost[request.worker]) for number in request.numbers)
        return settled, idle

    def _ask_after_a_loss(self, worker: Worker, numbers: list[int], why: str, told: dict[int, str]) -> list[Request]:
        resets = []
        for number in sorted(numbers):
            is_being_reset = self._mode is AutoresetMode.NEXT_STEP and self.has_ended[number] and number not in told
            if not is_being_reset:
                told.setdefault(number, why)
            if is_being_reset or self._mode is AutoresetMode.SAME_STEP:
                resets.append(number)
        if not resets:
            return []
        seeds = [self._first_seed(number) for number in resets]
        halves = [self.last.free_half(number) for number in resets]
        return [self._reset_request(worker, resets, seeds, None, halves)]

    def _take(self, request: Request, infos: Infos) -> None:
        """Take note of an answer to a step or a reset."""
        each_info, each_others = self._told(request)
        if each_info:
            infos.update(zip(request.numbers, each_info, strict=True))
        else:
            infos.update((number, {}) for number in request.numbers)
        for place, (number, half) in enumerate(zip(request.numbers, request.halves, strict=True)):
            self.last.note(number, half, each_others[place] if each_others else None)
        if request.is_of_a_former_life:
            return
        if request.command is Command.STEP:
            self._num_losses[request.worker] = 0
        else:
            self.lost.mark_reset(request.numbers)

    def _told(self, request: Request) -> tuple[Any, Any]:
        """Read the infos, and the parts of observations that have no place in the slab, of an answer."""
        if not request.answer:
            return None, None
        if is_layout(request.answer):
            return self._crew.slab.infos.of_each(request.answer, request.numbers), None
        try:
            each_info, each_others = pickle.loads(request.answer)
        except Exception as error:
            self.needs_reset[:] = True
            raise EnvironmentFailedError(
                f"what {request.worker.name} told cannot be unpickled here: {type(error).__name__}: {error}; let infos "
                "hold plain values, and reset all environments to go on"
            ) from error
        return each_info, each_others

    def _tell(self, number: int, why: str, infos: Infos, finals: Mapping[int, Any]) -> None:
        slab = self._crew.slab
        slab.rewards[number], slab.terminated[number], slab.truncated[number] = 0.0, False, True
        infos[number] = {**infos[number], "episode_lost": why}
        if number in finals:
            infos[number] |= {"final_obs": finals[number], "final_info": {}}
        self.lost.unreported.pop(number, None)

    def _note_loss(self, number: int, why: str) -> None:
        """Remember to tell of a loss, where an episode was running."""
        waits_for_reset = self.has_ended[number] and self._mode is not AutoresetMode.SAME_STEP
        if not (waits_for_reset or self.needs_reset[number]):
            self.lost.unreported.setdefault(number, why)

    def _replace(self, worker: Worker, why: str) -> None:
        if self._on_worker_lost == "raise":
            self._break(f"{why}; only close() works now: make a new one, or on_worker_lost='restart' replaces workers")
        while True:
            self._num_losses[worker] += 1
            if self._num_losses[worker] >= _MOST_LOSSES:
                self._break(f"{why}: that is {_MOST_LOSSES} times without a completed step; only close() works now")
            warnings.warn(f"{why}; it is replaced, and its episodes count as truncated", RuntimeWarning, stacklevel=4)
            try:
                self._crew.replace(worker, why)
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
                raise failure_as_error(failure_of(request), "reset all environments to go on")


def _usual_step(worker: Worker, half: int) -> tuple[Worker, bytes, list[int]]:
    """Worker, payload and halves of the step of all its environments where none of them has ended: nearly every one."""
    steps = [StepOf(number, False, half) for number in worker.numbers]
    return worker, packed_steps(steps, None), [half] * len(steps)
