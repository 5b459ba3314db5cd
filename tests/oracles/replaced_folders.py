"""Ways in which the folder of a writer goes away, or becomes another one, while the writer has it locked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from oracles.watched_disk import Operation, Result, WatchedDisk

Replace = Callable[[Path, Path], object]
"""Takes the folder of a writer, and another folder of that kind."""


def remove(folder: Path, _other: Path) -> None:
    shutil.rmtree(folder)


def move_away(folder: Path, _other: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def put_another_there(folder: Path, other: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


def put_another_over_it(folder: Path, other: Path) -> None:
    """As a backup that is restored into the folder, which the lock's own file survives."""
    for file in list(folder.iterdir()):
        if file.name != "LOCK":
            file.unlink()
    shutil.copytree(other, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("LOCK"))


WAYS: dict[str, Replace] = {
    "removed": remove,
    "moved away": move_away,
    "removed, and another one put there": put_another_there,
    "restored from another one, file by file": put_another_over_it,
}


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of each file below ``folder`` by its path in there; empty if there is no such folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


class ReplacingDisk(WatchedDisk):
    """Calls ``replace`` once after operation ``at``, counted from 0."""

    def __init__(self, at: int, replace: Callable[[], object]) -> None:
        self.at, self._replace = at, replace
        self.num_operations = 0

    @property
    def has_replaced(self) -> bool:
        return self.num_operations > self.at

    def perform(self, operation: Operation, act: Callable[[Operation], Result]) -> Result:
        result = act(operation)
        self.num_operations += 1
        if self.num_operations - 1 == self.at:
            self._replace()
        return result
