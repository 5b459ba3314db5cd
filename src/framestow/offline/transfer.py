"""Shared by imports and exports: their result, their progress, and a folder or file that appears only when complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from framestow.checks import any_path, check_callable, folder_path
from framestow.errors import FramestowError, IncompatibleError, InvalidSettingsError
from framestow.frames.observation_spec import equal_rows
from framestow.interface import printable
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.episodes import StoredEpisode
from framestow.replay.settings.step_fields import ExtrasSpec
from framestow.storage.files.file_system import DISK
from framestow.storage.files.writer_lock import LOCK, WriterLock

MOST_INFLATION = 1032  # bytes of which deflate makes one, at most
MOST_NAMED = 10  # of the episodes that were left out

BAD_EPISODES = "episodes that cannot be imported"  # in ``Transferred.left_out``
SKIP_BAD = "or leave such episodes out: skip_bad=True, --skip-bad"

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of bytes done and in total, several times a second."""


def check_transfer(memory: Any, progress: Any) -> None:
    """Raise ``InvalidSettingsError`` unless ``memory`` is a memory and ``progress`` can be called."""
    if not isinstance(memory, ReplayMemory):
        raise InvalidSettingsError(
            f"memory is {memory!r}: it must be a ReplayMemory; give one, or ReplayMemory.load(path)"
        )
    check_callable("progress", progress, "a function of the bytes done and in total")


def match_extras(memory: ReplayMemory, there: ExtrasSpec, path: Path) -> list[str]:
    """Return a note about the extras of ``path`` that ``memory`` does not have, in a list, which is empty for none.

    Raises:
        InvalidSettingsError: ``memory`` has an extra that is not there, or with another dtype or shape.
    """
    found = {spec.name: (spec.dtype, spec.shape) for spec in there.extras}
    wanted = memory.inner.settings.extras
    for spec in wanted.extras:
        if found.get(spec.name) != (spec.dtype, spec.shape):
            raise InvalidSettingsError(
                f"memory has the extra {spec.description}: {path} has {there.description}; build the memory without it"
            )
    left_out = [spec.description for spec in there.extras if spec.name not in wanted.names]
    return [f"extras are left out, which the memory does not have: {', '.join(left_out)}"] if left_out else []


def begins_padded(memory: ReplayMemory, episode: StoredEpisode) -> bool:
    """Return whether the first observation of ``episode`` is made of its frames and padding alone.

    It is not if older frames were given with the episode's first observation, or with that of a stretch that began
    shortly before the stored part.
    """
    settings = memory.inner.settings
    layout = settings.layout
    for stack in layout.split(layout.flatten(episode.observations(0, 1), "observation")):
        num_padded = stack.shape[1] - 1 - episode.history
        if num_padded > 0:
            older, first = stack[:, :num_padded], stack[:, num_padded : num_padded + 1]
            fillings = [np.zeros_like(first)] + [first] * (settings.stack_padding == "first_frame")
            if not any(equal_rows(older, np.broadcast_to(filling, older.shape)).all() for filling in fillings):
                return False
    return True


def no_progress(done: int, total: int) -> None:
    """Do nothing."""


@dataclass
class Transferred:
    """Result of an import or export.

    ``left_out`` counts skipped steps by reason. ``notes`` lists other information that was lost, one sentence each.
    ``observation_bytes`` is the size in RAM of all observations that an export wrote.
    """

    transitions: int = 0
    episodes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    observation_bytes: int = 0


def count_left_out(transferred: Transferred, reason: str) -> None:
    """Count one more step that was skipped for ``reason``."""
    transferred.left_out[reason] = transferred.left_out.get(reason, 0) + 1


def note_bad(transferred: Transferred, bad: Mapping[int, FramestowError]) -> None:
    """Count the episodes that cannot be imported, and name them in a note; ``bad`` has the error of each number."""
    if bad:
        transferred.left_out[BAD_EPISODES] = len(bad)
        numbers = ", ".join(map(str, list(bad)[:MOST_NAMED])) + (", …" if len(bad) > MOST_NAMED else "")
        transferred.notes.append(f"episodes that were left out: {numbers}. The first: {next(iter(bad.values()))}")


def reason(error: Exception) -> str:
    """Return what an error says of a file, or its class if it says nothing, as printable text."""
    return printable(str(error) or type(error).__name__)


@contextmanager
def fill_path(path: str | Path) -> Iterator[Path]:
    """Yield the path of a folder or a file to create; it becomes ``path`` when the block ends without an error.

    It is written in ``.NAME.unfinished`` beside ``path``, synced to disk, and renamed. After an error it is removed,
    with the parent folders that this call created. The next call for ``path`` removes the remains of a killed process.

    Raises:
        InvalidSettingsError: ``path`` exists.
        IncompatibleError: while another process writes it.
        DamagedDataError: ``.NAME.unfinished`` is a link, or no folder.
    """
    final = any_path("folder", path).resolve()
    folder_path("folder", final.parent)
    _check_is_free(final)
    made_above = [folder for folder in final.parents if not folder.exists()]
    work = final.with_name(f".{final.name}.unfinished")
    content, remains = work / final.name, str(work)
    DISK.is_folder(work)  # raises for a link: what a killed process left there is removed
    try:
        DISK.make_folder(work)
        with WriterLock(work / LOCK, str(final), "wait for it, or use another folder") as lock:
            try:
                _check_is_free(final)
                if content.is_dir():
                    shutil.rmtree(content)
                content.unlink(missing_ok=True)
                yield content
                _sync_all(content)
                try:
                    lock.check()
                except IncompatibleError:
                    remains = ""  # none: another process writes there now
                    raise
                content.rename(final)
                DISK.sync_folder(final.parent)
            finally:
                shutil.rmtree(remains, ignore_errors=True)  # on Windows the locked file stays until the next call
    except BaseException as error:
        with suppress(OSError):  # keep a folder that another process filled meanwhile
            for folder in made_above:
                folder.rmdir()
        if isinstance(error, OSError) and error.errno and error.filename is None:  # a full disk
            raise OSError(error.errno, error.strerror, str(final)) from error
        raise


def bytes_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder, including subfolders."""
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())


def _check_is_free(final: Path) -> None:
    if final.exists():
        raise InvalidSettingsError(
            f"{final}: the path exists, and nothing is overwritten; give another one, or remove it"
        )


def _sync_all(content: Path) -> None:
    for path in [*sorted(content.rglob("*")), content]:
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        else:
            DISK.sync_folder(path)
