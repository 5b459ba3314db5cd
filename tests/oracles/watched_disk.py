"""A disk with a hook that runs before each operation that changes it.

Syncs call the hook and do nothing else: no test stops the kernel, and each sync would take milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from framestow.storage.files.file_system import DISK, AppendFile, FileSystem

Result = TypeVar("Result")


class Operation(NamedTuple):
    """A system call that changes a disk or makes a change durable."""

    name: str  # create · write · cut · sync · replace · remove · make folder · sync folder
    path: Path
    content: bytes = b""  # of a write
    offset: int = 0  # of a write; the size of a cut
    new_path: Path | None = None  # of a replace


class WatchedDisk(FileSystem):
    """A disk whose operations all go through :meth:`perform`; subclasses override it."""

    stands_in: WatchedDisk | None = None  # this disk, while DISK forwards to it

    def perform(self, operation: Operation, act: Callable[[Operation], Result]) -> Result:
        return act(operation)

    def _open(self, path: Path, size: int, mode: str) -> AppendFile:
        disk = self.stands_in or self
        if mode == "rb+":
            return _WatchedFile(disk, path, size, mode)
        return self.perform(Operation("create", path), lambda _: _WatchedFile(disk, path, size, mode))

    def replace(self, old: Path, new: Path) -> None:
        self.perform(Operation("replace", old, new_path=new), lambda _: FileSystem.replace(self, old, new))

    def remove(self, path: Path) -> bool:
        return self.perform(Operation("remove", path), lambda _: FileSystem.remove(self, path))

    def sync_folder(self, folder: Path) -> None:
        self.perform(Operation("sync folder", folder), lambda _: None)

    def _make_folder(self, path: Path) -> None:
        self.perform(Operation("make folder", path), lambda _: FileSystem._make_folder(self, path))


class _WatchedFile(AppendFile):
    def __init__(self, disk: WatchedDisk, path: Path, size: int, mode: str) -> None:
        super().__init__(path, size, mode)
        self._disk = disk

    def _write(self, content: memoryview, offset: int) -> int:
        operation = Operation("write", self.path, bytes(content), offset)
        return self._disk.perform(
            operation, lambda operation: AppendFile._write(self, memoryview(operation.content), offset)
        )

    def _cut(self, size: int) -> None:
        self._disk.perform(Operation("cut", self.path, offset=size), lambda _: AppendFile._cut(self, size))

    def _sync(self) -> None:
        self._disk.perform(Operation("sync", self.path), lambda _: None)


@contextmanager
def as_the_disk(disk: WatchedDisk) -> Iterator[None]:
    """Redirect all writes of this process to ``disk``: the ``DISK`` object takes its class and state.

    Files opened inside the block keep writing to ``disk`` afterwards.
    """
    disk.stands_in = disk
    usual = DISK.__class__, DISK.__dict__
    DISK.__class__, DISK.__dict__ = type(disk), disk.__dict__
    try:
        yield
    finally:
        DISK.__class__, DISK.__dict__ = usual
