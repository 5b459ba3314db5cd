"""The files of a store: its commits and logs by name, and files that none of its commits accounts for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from framestow.replay.store import open_store
from framestow.replay.store.format import Arrays, Commit, FolderContents, StoredCommit, commit_path
from framestow.storage.files.block_format import LOG, LogPlace
from framestow.storage.files.writer_lock import LOCK


def generations(folder: Path) -> list[int]:
    """Return the generations that can be loaded, oldest first."""
    return FolderContents(folder).generations


def newest_commit(folder: Path) -> Commit:
    """Return the newest whole commit."""
    newest = FolderContents(folder).newest
    assert newest is not None, f"{folder} has no commit"
    return newest.whole()


def read_commit(folder: Path, generation: int | None = None) -> tuple[Commit, Arrays]:
    """Return a commit and the arrays of its state; the newest by default."""
    stored = StoredCommit.read(folder, newest_commit(folder).generation if generation is None else generation)
    return stored.whole(), stored.arrays()


def commit_files(folder: Path) -> list[Path]:
    """Return the commits, oldest first, without their copies."""
    return sorted(folder.glob("COMMIT.??????"))


def files_of_newest_commit(folder: Path) -> list[Path]:
    """Return the newest commit, and its copy if there is one."""
    number = newest_commit(folder).generation
    paths = (commit_path(folder, number, is_copy=is_copy) for is_copy in (False, True))
    return [path for path in paths if path.exists()]


def log_file(folder: Path, name: str, number: int = 1, ending: str = LOG) -> Path:
    """Return a file of a log of the newest commit."""
    return LogPlace(folder, name, newest_commit(folder).id).path(number, ending)


def unaccounted(folder: Path) -> set[str]:
    """Return the names of files that no commit that stays needs."""
    contents = FolderContents(folder)
    needed = {LOCK}
    for number in contents.existing:
        needed |= {commit_path(folder, number, is_copy=is_copy).name for is_copy in (False, True)}
    for number in contents.existing:
        needed |= contents.read(number).whole().file_ends().keys()
    return set(contents.names) - needed


@contextmanager
def log_files_of(num_bytes: int) -> Iterator[None]:
    """Limit log files to ``num_bytes``, so that small stores have several files, removals and compaction."""
    usual, open_store.FILE_BYTES = open_store.FILE_BYTES, num_bytes
    try:
        yield
    finally:
        open_store.FILE_BYTES = usual
