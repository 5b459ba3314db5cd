"""Step and reset environments in workers, and truncate the episodes that are lost with a worker."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from framestow.envs.vector.vector_state import EpisodeStates
from framestow.envs.workers.last_observations import LastObservations
from framestow.envs.workers.pool import WorkerPool, failure_as_error, failure_of
from framestow.envs.workers.replacement import WorkerReplacer
from framestow.envs.workers.shared_arrays import is_layout
from framestow.envs.workers.wire import Command, StepOf, pack_steps, pickle_value
from framestow.envs.workers.worker import Request, Worker
from framestow.errors import EnvironmentFailedError, WorkerLostError

Infos = dict[int, dict[str, Any]]
"""The infos of each environment, by its number."""


class Stepping:
    """Steps and resets of all environments, also while workers are lost.

    When a worker is lost, the episodes of its environments are truncated. The step of such an environment returns:

    | mode | observation | reward, flags | ``infos`` |
    |---|---|---|---|
    | NEXT_STEP, DISABLED | the last one received | 0, truncated | ``episode_lost`` |
    | SAME_STEP | the first of the next episode | 0, truncated | ``episode_lost``, the last one in ``final_obs`` |
    | NEXT_STEP, if this step resets | the first of the next episode | 0, no flag | those of the reset |

    If the worker is lost between two steps, its environments report the loss in their next step.
    """

    def __init__(self, pool: WorkerPool, states: EpisodeStates, replacer: WorkerReplacer) -> None:
        self._pool, self._states, self._replacer = pool, states, replacer
        self.last = LastObservations(pool.shared, pool.num_envs)
        # The usual request of each worker, packed once: step all of its environments, none of which has ended.
        self._full_steps = [(worker, _full_step(worker)) for worker in pool.workers]

    def step_requests(self, actions: Mapping[int, Any] | None) -> list[Request]:
        """Return the requests that step all environments; ``actions`` is ``None`` if they are in the shared arrays."""
        has_losses = self._states.lost.has_any
        if actions is None and not has_losses and not self._states.has_ended.any():
            return [Request(worker, Command.STEP, worker.env_ids, payload) for worker, payload in self._full_steps]
        requests = []
        for worker in self._pool.workers:
            if has_losses:
                requests += self._request_steps_and_resets(worker, actions)
            else:
                requests.append(self._step_request(worker, worker.env_ids, actions))
        return requests

    def finish_numeric_step(self, requests: Sequence[Request]) -> dict[str, Any] | None:
        """Finish a step whose infos are all numbers, which is the usual case.

        Returns the infos of all environments in Gymnasium's format, or ``None`` if ``finish_step`` must finish it.
        """
        layout = requests[0].answer if requests else None
        if layout is None or not is_layout(layout) or self._states.lost.unreported:
            return None
        if any(each.answer != layout or each.failed or each.command is not Command.STEP for each in requests):
            return None
        self.last.receive_all()
        for request in requests:
            self._replacer.mark_stepped(request.worker)
        self._mark_ended()
        return self._pool.shared.infos.of_all(layout)

    def finish_step(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """Finish a step whose requests are done, replace lost workers, and return the infos of each environment.

        Rewards and flags are then in the shared arrays, and the observations in ``last``.

        Raises:
            EnvironmentFailedError: an environment raised; all need a reset.
            WorkerLostError: a worker was lost and ``on_worker_lost`` is ``"raise"``, or it was lost too often.
        """
        self._raise_failures(requests)
        lost = self._states.lost
        losses = self._losses_to_report(requests) if lost.unreported else {}
        settled, idle = self._replace_lost_workers(requests, losses)
        is_same_step = self._states.mode is AutoresetMode.SAME_STEP
        finals = {env_id: self.last.of(env_id) for env_id in losses} if is_same_step else {}
        infos: Infos = {env_id: {} for env_id in range(self._pool.num_envs)}
        for request in settled:
            self._store_answer(request, infos)
        for env_id, why in losses.items():
            self._report_loss(env_id, why, infos, finals)
        self._mark_ended()
        for env_id, why in idle.items():
            lost.unreported.pop(env_id, None)  # this step may have ended that episode
            self._add_loss(env_id, why)
        return [infos[env_id] for env_id in range(self._pool.num_envs)]

    def reset(self, seeds: Mapping[int, int | None], options: dict[str, Any] | None) -> list[dict[str, Any]]:
        """Reset the environments of ``seeds``, replace workers that are lost meanwhile, and return the infos.

        Raises:
            EnvironmentFailedError: an environment raised; all need a reset.
            WorkerLostError: a worker was lost and ``on_worker_lost`` is ``"raise"``, or it was lost too often.
        """
        env_ids = list(seeds)
        self._states.needs_reset[env_ids] = True  # until the end: an interrupt may leave only some of them reset
        requests = [_reset_request(*each, seeds, options) for each in self._by_worker(env_ids)]
        self._pool.wait_for(requests)
        while lost := [request for request in requests if request.lost is not None]:
            self._raise_failures(requests)
            for request in lost:
                self._replacer.replace(request.worker, request.lost or "")
                for env_id in set(request.worker.env_ids) - set(request.env_ids):
                    self._add_loss(env_id, request.lost or "")
            first_seeds = self._states.lost.first_seeds
            seeds = {env_id: first_seeds.get(env_id) if seed is None else seed for env_id, seed in seeds.items()}
            again = [_reset_request(request.worker, request.env_ids, seeds, options) for request in lost]
            requests = [request for request in requests if request.lost is None] + again
            self._pool.wait_for(requests)
        self._raise_failures(requests)
        infos: Infos = {}
        for request in requests:
            self._store_answer(request, infos)
        self._states.mark_reset(env_ids)
        return [infos[env_id] for env_id in env_ids]

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
            self._replacer.replace(request.worker, request.lost or "")
            for env_id in request.worker.env_ids:
                self._add_loss(env_id, request.lost or "")
        if lost:
            raise WorkerLostError(
                f"{lost[0].lost} before it answered: it was replaced, and the next step reports its lost episodes; "
                "repeat the call"
            )
        for request in requests:
            if request.failed:
                raise failure_as_error(failure_of(request), "the environments can still be stepped")
        return [pickle.loads(request.answer) if request.answer else None for request in requests]

    def _by_worker(self, env_ids: Iterable[int]) -> list[tuple[Worker, list[int]]]:
        """Group environments by their workers."""
        grouped: dict[Worker, list[int]] = {}
        for env_id in env_ids:
            grouped.setdefault(self._pool.worker_of[env_id], []).append(env_id)
        return list(grouped.items())

    def _step_request(self, worker: Worker, env_ids: Sequence[int], actions: Mapping[int, Any] | None) -> Request:
        steps = [StepOf(*each) for each in zip(env_ids, self._states.has_ended[env_ids].tolist(), strict=True)]
        sent_actions = None if actions is None else [actions[env_id] for env_id in env_ids]
        return Request(worker, Command.STEP, env_ids, pack_steps(steps, sent_actions))

    def _request_steps_and_resets(self, worker: Worker, actions: Mapping[int, Any] | None) -> list[Request]:
        """Return the requests that step a worker's environments; lost ones do not step, and SAME_STEP resets them."""
        lost, mode = self._states.lost, self._states.mode
        steps, resets = [], []
        for env_id in worker.env_ids:
            # NEXT_STEP resets an environment whose episode has ended. A replaced one needs the seed of its replacement.
            is_due_for_reset = mode is AutoresetMode.NEXT_STEP and self._states.has_ended[env_id]
            if env_id in lost.unreported:
                if mode is AutoresetMode.SAME_STEP:
                    resets.append(env_id)
            elif is_due_for_reset and env_id in lost.first_seeds:
                resets.append(env_id)
            else:
                steps.append(env_id)
        requests = [self._step_request(worker, steps, actions)] if steps else []
        return requests + ([_reset_request(worker, resets, lost.first_seeds)] if resets else [])

    def _losses_to_report(self, requests: Sequence[Request]) -> dict[int, str]:
        """Return the lost episodes that these steps report; not those of steps answered before the loss."""
        answered = {
            env_id
            for request in requests
            if request.command is Command.STEP and request.answer is not None
            for env_id in request.env_ids
        }
        unreported = sorted(self._states.lost.unreported.items())
        return {env_id: why for env_id, why in unreported if env_id not in answered}

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
                lost_steps.setdefault(request.worker, []).extend(request.env_ids)
            for worker, env_ids in lost_steps.items():
                why = next(request.lost for request in lost if request.worker is worker) or ""
                if worker.lost is not None:  # else this call was interrupted after it had replaced it
                    self._replacer.replace(worker, why)
                    idle.update((env_id, why) for env_id in worker.env_ids if env_id not in env_ids + list(losses))
                settled += self._request_resets(worker, env_ids, why, losses)
            self._pool.wait_for(settled)
            self._raise_failures(settled)
        why_lost = self._replacer.why_lost
        for request in settled if why_lost else ():
            if request.is_stale:
                idle.update((env_id, why_lost[request.worker]) for env_id in request.env_ids)
        return settled, idle

    def _request_resets(self, worker: Worker, env_ids: list[int], why: str, losses: dict[int, str]) -> list[Request]:
        """Return the request that resets those of ``env_ids`` that this step resets; add the others to ``losses``."""
        mode, has_ended = self._states.mode, self._states.has_ended
        resets = []
        for env_id in sorted(env_ids):
            is_being_reset = mode is AutoresetMode.NEXT_STEP and has_ended[env_id] and env_id not in losses
            if not is_being_reset:
                losses.setdefault(env_id, why)
            if is_being_reset or mode is AutoresetMode.SAME_STEP:
                resets.append(env_id)
        return [_reset_request(worker, resets, self._states.lost.first_seeds)] if resets else []

    def _store_answer(self, request: Request, infos: Infos) -> None:
        """Store the answer to a step or a reset."""
        each_info, each_others = self._read_answer(request)
        if each_info:
            infos.update(zip(request.env_ids, each_info, strict=True))
        else:
            infos.update((env_id, {}) for env_id in request.env_ids)
        self.last.receive(request.env_ids, each_others or None)
        if request.is_stale:
            return
        if request.command is Command.STEP:
            self._replacer.mark_stepped(request.worker)
        else:
            self._states.lost.mark_reset(request.env_ids)

    def _read_answer(self, request: Request) -> tuple[Any, Any]:
        """Return the infos in an answer, and the parts of observations that are no arrays."""
        if not request.answer:
            return None, None
        if is_layout(request.answer):
            return self._pool.shared.infos.of_each(request.answer, request.env_ids), None
        try:
            each_info, each_others = pickle.loads(request.answer)
        except Exception as error:
            self._states.require_reset()
            raise EnvironmentFailedError(
                f"answer of {request.worker.name} cannot be unpickled: {type(error).__name__}: {error}; use plain "
                "values in infos, and reset all environments to continue"
            ) from error
        return each_info, each_others

    def _mark_ended(self) -> None:
        shared = self._pool.shared
        np.logical_or(shared.terminated, shared.truncated, out=self._states.has_ended)

    def _report_loss(self, env_id: int, why: str, infos: Infos, finals: Mapping[int, Any]) -> None:
        shared = self._pool.shared
        shared.rewards[env_id], shared.terminated[env_id], shared.truncated[env_id] = 0.0, False, True
        infos[env_id] = {**infos[env_id], "episode_lost": why}
        if env_id in finals:
            infos[env_id] |= {"final_obs": finals[env_id], "final_info": {}}
        self._states.lost.unreported.pop(env_id, None)

    def _add_loss(self, env_id: int, why: str) -> None:
        """Report a lost episode in the next step, if an episode was running."""
        states = self._states
        waits_for_reset = states.has_ended[env_id] and states.mode is not AutoresetMode.SAME_STEP
        if not (waits_for_reset or states.needs_reset[env_id]):
            states.lost.unreported.setdefault(env_id, why)

    def _raise_failures(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.failed:
                self._states.require_reset()
                raise failure_as_error(failure_of(request), "reset all environments to continue")


def _full_step(worker: Worker) -> bytes:
    """Return the payload of a step of all environments of a worker if no episode has ended."""
    return pack_steps([StepOf(env_id, False) for env_id in worker.env_ids], None)


def _reset_request(
    worker: Worker, env_ids: Sequence[int], seeds: Mapping[int, int | None], options: dict[str, Any] | None = None
) -> Request:
    payload = [(env_id, seeds.get(env_id), options) for env_id in env_ids]
    return Request(worker, Command.RESET, env_ids, pickle_value(payload))
