"""A folder that is there whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from framestow.errors import InvalidSettingsError
from framestow.storage.files.file_system import DISK
from framestow.storage.files.writer_lock import LOCK, WriterLock


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
