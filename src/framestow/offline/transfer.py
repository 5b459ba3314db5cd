"""What an import or an export tells of itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from framestow.errors import InvalidSettingsError
from framestow.storage.files.file_system import DISK
from framestow.storage.files.writer_lock import LOCK, WriterLock

Progress: TypeAlias = Callable[[int, int], None]
"""Is told how many bytes of how many are done, some times a second."""


def no_progress(done: int, total: int) -> None:
    """Tell nobody."""


@dataclass
class Transferred:
    """What went over, and what did not: filled while it goes.

    ``left_out`` gives numbers of steps by the reason why they did not go over, ``notes`` what else the other side
    cannot hold or did not tell, a sentence each.
    """

    transitions: int = 0
    episodes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def leave_out(self, reason: str, steps: int = 1) -> None:
        """Count ``steps`` that did not go over for ``reason``."""
        if steps:
            self.left_out[reason] = self.left_out.get(reason, 0) + steps


@contextmanager
def unfinished_folder(path: str | Path) -> Iterator[Path]:
    """Give the absolute path of a folder to make and fill, which becomes ``path`` when the block ends without an error.

    By one rename, after every file of it is on the disk. Until then it lies in ``.NAME.unfinished`` beside ``path``.
    After an error nothing is left, also of the folders above that this call made. What a killed process left is removed
    by the next one that makes ``path``. Raises ``InvalidSettingsError`` if ``path`` exists, ``IncompatibleError`` while
    another process makes it.
    """
    final = Path(path).resolve()
    _check_is_free(final)
    made_above = [folder for folder in final.parents if not folder.exists()]
    work = final.with_name(f".{final.name}.unfinished")
    content = work / final.name
    try:
        DISK.make_folder(work)
        with WriterLock(work / LOCK, str(final), "wait for it, or give another folder"):
            try:
                _check_is_free(final)
                if content.exists():
                    shutil.rmtree(content)
                yield content
                _sync_all(content)
                content.rename(final)
                DISK.sync_folder(final.parent)
            finally:
                shutil.rmtree(work, ignore_errors=True)  # on Windows the locked file stays until the next one
    except BaseException:
        with suppress(OSError):  # one that others have filled meanwhile stays, and those above it
            for folder in made_above:
                folder.rmdir()
        raise


def bytes_of_folder(folder: Path) -> int:
    """Bytes of all files in ``folder`` and below."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _check_is_free(final: Path) -> None:
    if final.exists():
        raise InvalidSettingsError(
            f"{final}: something is there already, and nothing is written over; give another folder, or remove it"
        )


def _sync_all(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        else:
            DISK.sync_folder(path)
    DISK.sync_folder(folder)
