"""A disk whose n-th operation fails, or every operation from the n-th on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from oracles.watched_disk import Operation, Result, WatchedDisk


class FailingDisk(WatchedDisk):
    """Raises ``OSError(error)`` at operation ``at``; a failing write has written its first half.

    A failing sync loses its content, as Linux may: the unsynced part reads as zeros.

    ``lasting``: operations that need space fail from then on, as on a full disk; operations that free space work.
    """

    def __init__(self, at: int, error: int, *, lasting: bool = False) -> None:
        self.at, self.error, self.lasting = at, error, lasting
        self.operations: list[Operation] = []
        self.failed: Operation | None = None
        self._synced_bytes: dict[Path, int] = {}

    def perform(self, operation: Operation, act: Callable[[Operation], Result]) -> Result:
        self.operations.append(operation)
        number = len(self.operations) - 1
        is_due = number == self.at or (self.lasting and number > self.at and operation.name in ("create", "write"))
        if not is_due:
            self._note_synced(operation)
            return act(operation)
        self.failed = self.failed or operation
        if operation.name == "write":
            act(operation._replace(content=operation.content[: len(operation.content) // 2]))
        if operation.name == "sync":
            self._lose(operation.path)
        if operation.name in ("write", "cut", "sync"):  # the kernel knows a descriptor there, no name
            raise OSError(self.error, os.strerror(self.error))
        raise OSError(self.error, os.strerror(self.error), str(operation.path))

    def _note_synced(self, operation: Operation) -> None:
        match operation.name:
            case "create":
                self._synced_bytes[operation.path] = 0
            case "cut":
                self._synced_bytes[operation.path] = min(
                    operation.offset, self._synced_bytes.get(operation.path, operation.offset)
                )
            case "sync":
                self._synced_bytes[operation.path] = operation.path.stat().st_size

    def _lose(self, path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: self._synced_bytes[path]].ljust(len(content), b"\0"))
