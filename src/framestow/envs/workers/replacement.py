"""Replace the workers that are lost by new processes."""

from __future__ import annotations

import warnings
from typing import NoReturn

from framestow.envs.vector.vector_state import PendingLosses
from framestow.envs.workers.pool import OnWorkerLost, WorkerPool
from framestow.envs.workers.worker import Worker
from framestow.errors import EnvironmentFailedError, WorkerLostError

_MAX_LOSSES = 3  # of one worker without a completed step


class WorkerReplacer:
    """Replace lost workers, unless ``on_worker_lost`` is ``"raise"`` or a worker is lost too often.

    ``lost`` draws the seeds of the replaced environments.
    """

    def __init__(self, pool: WorkerPool, on_worker_lost: OnWorkerLost, lost: PendingLosses) -> None:
        self._pool, self._on_worker_lost, self._lost = pool, on_worker_lost, lost
        self.broken: str | None = None
        """Why only ``close`` works; ``None`` while all is well."""
        self.why_lost: dict[Worker, str] = {}
        """Reason of the last loss of each worker that was replaced; empty while none was."""
        # Losses of a worker since it last completed a step; too many make ``broken``.
        self._num_losses: dict[Worker, int] = dict.fromkeys(pool.workers, 0)

    def mark_stepped(self, worker: Worker) -> None:
        """Mark that the worker has completed a step, and count its losses from here on."""
        self._num_losses[worker] = 0

    def replace(self, worker: Worker, why: str) -> None:
        """Replace a worker that was lost for the reason ``why``; its environments are made again.

        Raises:
            WorkerLostError: ``on_worker_lost`` is ``"raise"``, or the worker was lost too often.
        """
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
            self._lost.mark_replaced(worker.env_ids)
            self.why_lost[worker] = why
            return

    def _break(self, why: str) -> NoReturn:
        self.broken = why
        raise WorkerLostError(why)
