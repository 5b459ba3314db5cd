"""A disk that kills its process at the n-th operation."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from oracles.watched_disk import Operation, Result, WatchedDisk

BEFORE, WITHIN = "before", "within"
MOMENTS = BEFORE, WITHIN


class KillingDisk(WatchedDisk):
    """Sends SIGKILL to its process before operation ``at``, or in the middle of write ``at``."""

    def __init__(self, at: int, moment: str) -> None:
        self.at, self.moment = at, moment
        self.num_operations = 0

    def perform(self, operation: Operation, act: Callable[[Operation], Result]) -> Result:
        if self.moment == WITHIN and operation.name != "write":
            return act(operation)
        if self.num_operations == self.at:
            if self.moment == WITHIN:
                act(operation._replace(content=operation.content[: len(operation.content) // 2]))
            os.kill(os.getpid(), signal.SIGKILL)
        self.num_operations += 1
        return act(operation)
