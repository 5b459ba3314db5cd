"""The possible contents of a disk after a loss of power: synced data, and any part of the rest.

POSIX guarantees no more: ``fsync`` of a file covers its content, ``fsync`` of a folder the names in it. Unsynced data
may survive completely, partly or not at all, in any order. Sectors that were not written read as zeros or as older
content.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from oracles.watched_disk import Operation, Result, WatchedDisk

SECTOR = 512
SURVIVALS = ("nothing", "everything", "names", "contents", "parts")
"""Surviving unsynced data: nothing; everything; names without contents; contents without names; random parts."""
LossCheck = Callable[[int, str], None]


class JournalledDisk(WatchedDisk):
    """The real disk, with a journal of its operations."""

    def __init__(self) -> None:
        self.journal: list[Operation] = []

    def perform(self, operation: Operation, act: Callable[[Operation], Result]) -> Result:
        result = act(operation)
        self.journal.append(
            operation._replace(content=operation.content[: result if isinstance(result, int) else None])
        )
        return result


@dataclass
class _File:
    """A file without a name: synced content, and the changes since."""

    synced: bytes = b""
    changes: list[Operation] = field(default_factory=list)

    def content(self) -> bytes:
        content = bytearray(self.synced)
        for change in self.changes:
            _change(content, change, change.content)
        return bytes(content)

    def sync(self) -> None:
        self.synced, self.changes = self.content(), []

    def in_part(self, random: np.random.Generator) -> bytes:
        """Return the content with some of the changes, and some sectors of each."""
        content = bytearray(self.synced)
        for change in self.changes:
            if random.random() < 0.7:
                _change(content, change, _in_part(change.content, random))
        return bytes(content)


class PlayedDisk:
    """The durable and the possible content under ``root`` after a replay of operations."""

    def __init__(self, root: Path) -> None:
        """Start with the files under ``root``, all of them synced."""
        self.root = root
        self.folders = {path for path in (root, *root.rglob("*")) if path.is_dir()}
        self.new_folders: set[Path] = set()
        self.synced = {path: _File(path.read_bytes()) for path in root.rglob("*") if path.is_file()}
        self.now = dict(self.synced)
        self.new_names: list[tuple[Path, Callable[[dict[Path, _File]], object]]] = []  # by folder, in order

    def play(self, operation: Operation) -> None:
        """Replay an operation."""
        path = operation.path
        match operation.name:
            case "create":  # exclusive: a file of that name was removed before
                file = self.now[path] = _File()
                self.new_names.append((path.parent, lambda names: names.__setitem__(path, file)))
            case "write" | "cut":
                self.now[path].changes.append(operation)
            case "sync":
                self.now[path].sync()
            case "replace":
                self._rename(path, operation.new_path)
            case "remove" if path in self.now:
                del self.now[path]
                self.new_names.append((path.parent, lambda names: names.pop(path, None)))
            case "make folder":
                self.new_folders.add(path)
            case "sync folder":
                self.folders |= {new for new in self.new_folders if new.parent == path}
                self.new_folders -= self.folders
                for folder, act in self.new_names:
                    if folder == path:
                        act(self.synced)
                self.new_names = [(folder, act) for folder, act in self.new_names if folder != path]

    def lay_out(self, folder: Path, survival: str, random: np.random.Generator) -> None:
        """Write the content of ``root`` after a loss of power into the empty ``folder``."""
        names = dict(self.synced)
        for _, act in self.new_names:
            if survival in ("everything", "names") or (survival == "parts" and random.random() < 0.5):
                act(names)
        lost = self.new_folders if survival in ("nothing", "contents") else set()
        for made in sorted((self.folders | self.new_folders) - lost):
            (folder / made.relative_to(self.root)).mkdir(exist_ok=True)
        for path, file in names.items():
            if path.parent in lost:
                continue
            whole = survival in ("everything", "contents")
            content = file.in_part(random) if survival == "parts" else file.content() if whole else file.synced
            (folder / path.relative_to(self.root)).write_bytes(content)

    def _rename(self, path: Path, new_path: Path | None) -> None:
        assert new_path is not None
        assert new_path.parent == path.parent
        file = self.now[new_path] = self.now.pop(path)

        def rename(names: dict[Path, _File]) -> None:
            names.pop(path, None)
            names[new_path] = file

        self.new_names.append((path.parent, rename))


def _in_part(written: bytes, random: np.random.Generator) -> bytes:
    """Return some written sectors; others are zeros or random bytes, and the end may be missing."""
    arrived = bytearray(written)
    for start in range(0, len(arrived), SECTOR):
        sector = arrived[start : start + SECTOR]
        kinds = [sector, sector, bytes(len(sector)), random.bytes(len(sector))]
        arrived[start : start + SECTOR] = kinds[random.integers(4)]
    return bytes(arrived[: random.integers(len(arrived) + 1)] if random.random() < 0.3 else arrived)


def _change(content: bytearray, change: Operation, arrived: bytes) -> None:
    if change.name == "cut":
        content[:] = content[: change.offset].ljust(change.offset, b"\0")
    elif arrived:
        content.extend(bytes(max(0, change.offset - len(content))))
        content[change.offset : change.offset + len(arrived)] = arrived


def check_losses(disk: JournalledDisk, played: PlayedDisk, after: Path, every: int, check: LossCheck) -> int:
    """Lay out in ``after`` what losses of power leave at each operation, every ``every``-th one; return how many.

    ``check`` gets the number of operations before the loss, and what survives of unsynced data.
    """
    random, losses = np.random.default_rng(0), 0
    for number, operation in enumerate(disk.journal, 1):
        played.play(operation)
        for survival in SURVIVALS:
            losses += 1
            if losses % every == 0:
                after.mkdir()
                played.lay_out(after, survival, random)
                check(number, survival)
                shutil.rmtree(after)
    return losses // every
