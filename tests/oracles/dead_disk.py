"""A disk that ignores all operations from the n-th on, like the disk of a killed process."""

from __future__ import annotations

from collections.abc import Callable

from oracles.watched_disk import Operation, Result, WatchedDisk


class Killed(BaseException):
    """Not an ``Exception``, so that no code handles it as an error of the disk."""


class DeadDisk(WatchedDisk):
    """Does half of write ``at`` and none of the later operations, including cleanup."""

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
