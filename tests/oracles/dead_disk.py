"""A disk as a process sees it that is killed at its n-th operation: from then on nothing happens any more."""

from __future__ import annotations

from collections.abc import Callable

from oracles.watched_disk import Operation, Result, WatchedDisk


class Killed(BaseException):
    """No ``Exception``, so that nothing takes it for an error of the disk."""


class DeadDisk(WatchedDisk):
    """Does half of write ``at`` and nothing of any other operation; whatever tidies up afterwards changes nothing."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.num_operations = 0

    def perform(self, operation: Operation, act: Callable[[Operation], Result]) -> Result:
        number = self.num_operations
        self.num_operations += 1
        if number == self.at and operation.name == "write":
            act(operation._replace(content=operation.content[: len(operation.content) // 2]))
        if number >= self.at:
            raise Killed
        return act(operation)
