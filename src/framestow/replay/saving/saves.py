"""Saving a memory again and again, each time for the price of what is new; and what a folder is opened as."""

from __future__ import annotations

import threading
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TypeVar

from framestow.errors import DamagedDataError, FramestowError, IncompatibleError
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.saving.store_reader import StoredMemory
from framestow.replay.saving.store_writer import StoreWriter, file_bytes
from framestow.storage.files.file_system import DISK, FileSystem

Built = TypeVar("Built")


class Saves:
    """Which folders hold what a memory held, so that to save there again costs what is new since.

    A folder is known by the random name of its last commit: whoever saved or loaded another one there meanwhile gave
    it another name, and everything is written anew. One save at a time; the memory goes on beside it.
    """

    def __init__(self, parts: MemoryParts, files: FileSystem = DISK) -> None:
        self._parts, self._disk, self._file_bytes = parts, files, file_bytes(parts.settings)
        self._commits: dict[Path, str] = {}
        self._one_at_a_time = threading.Lock()

    def remember(self, path: str | PathLike[str], commit: str) -> None:
        """Note that the memory holds what this commit wrote to ``path``."""
        self._commits[Path(path).resolve()] = commit

    def save(self, path: str | PathLike[str], keep_previous: bool) -> int:
        """Write what ``path`` lacks and return the number of the generation (see ``ReplayMemory.save``)."""
        folder = Path(path).resolve()
        with self._one_at_a_time, StoreWriter(folder, file_bytes=self._file_bytes, files=self._disk) as writer:
            try:
                writer.read_generations()
            except DamagedDataError:
                if keep_previous:
                    raise
            writer.begin(writer.with_commit(self._commits.get(folder, "")))
            kept = set(writer.generations) if keep_previous else set()
            manifest = writer.commit(self._parts, kept, is_pinned=keep_previous, is_closed=True)
            self._commits[folder] = manifest.commit
            return manifest.generation

    def prune(self, path: str | PathLike[str], generation: int) -> None:
        """Let go of what only generations before ``generation`` need (see ``ReplayMemory.prune``)."""
        folder = Path(path).resolve()
        with self._one_at_a_time, StoreWriter(folder, file_bytes=self._file_bytes, files=self._disk) as writer:
            writer.read_generations()
            writer.begin(writer.newest)
            writer.forget_before(generation)


def keep_only(path: str | PathLike[str], generation: int, files: FileSystem = DISK) -> None:
    """Let go of what was saved to ``path`` before and after ``generation``, which must be there: ``FileNotFoundError``.

    For whoever goes on from there, and has no use for what was saved after it and never came to count.
    """
    with StoreWriter(Path(path).resolve(), files=files) as writer:
        writer.read_generations()
        writer.keep_only(generation)


def open_stored(path: str | PathLike[str], generation: int | None = None) -> StoredMemory:
    """Open what was saved to ``path``: of its generations the newest if ``generation`` is ``None``.

    Raises as ``StoredMemory.open``.
    """
    return StoredMemory.open(Path(path), generation)


def built(make: Callable[..., Built], settings: MemorySettings, path: str | PathLike[str]) -> Built:
    """Call ``make`` with the arguments of a memory of ``settings``; ``IncompatibleError`` where it finds no room."""
    try:
        return make(**settings.arguments())
    except FramestowError:
        raise
    except (MemoryError, ValueError, OverflowError) as error:
        raise IncompatibleError(
            f"{path}: a memory of {settings.capacity:,} transitions cannot be built here ({error}); load it where "
            "there is more memory"
        ) from error
