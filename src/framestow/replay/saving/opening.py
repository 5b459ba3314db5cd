"""Opens the folder that a memory lives in: to begin there, to go on there, or only to read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from framestow.argument_checks import real_number
from framestow.errors import ClosedMemoryError, IncompatibleError
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.saving.directory import Directory
from framestow.replay.saving.saves import open_stored
from framestow.replay.saving.store_format import Manifest
from framestow.replay.saving.store_reader import StoredMemory
from framestow.replay.saving.store_writer import StoreWriter, file_bytes
from framestow.storage.files.manifest import generations

Take = Callable[[MemoryParts], Directory]
NOT_COMPARED = {"labels", "max_bytes"}  # only told, never read; transitions go until it fits


def check_flush_every(flush_every: float | None) -> None:
    """Raise ``InvalidSettingsError`` unless it is a time to wait, or ``None``."""
    if flush_every is not None:
        rule = "it must be a number of seconds above 0; give None to flush by hand"
        real_number("flush_every", flush_every, 0, rule=rule, is_least_excluded=True)


def begin_or_go_on(parts: MemoryParts, folder: Path) -> Directory:
    """Take ``folder`` for a memory that was just built: fill it with what lies there, or make a store of the folder.

    Episodes that were open are closed, since no environment goes on with them. Warns of what a crash left.
    """
    with _writer(folder, parts.settings) as writer:
        newest = writer.newest
        if newest is None:
            writer.begin(None)
            writer.commit(parts, ())
            return Directory(parts, writer)
        with open_stored(folder) as stored:
            _check_settings(parts.settings, stored.settings, folder)
            stored.fill(parts, in_files=True)
        parts.timeline.close_episodes()
        parts.make_fit()
        writer.begin(newest)
        _warn_of_a_crash(writer, newest)
        return Directory(parts, writer)


def stored_frames_per_segment(folder: Path) -> int | None:
    """Frames of a segment of the memory that lies in ``folder``; ``None`` where there is none."""
    if not generations(folder):
        return None
    with open_stored(folder) as stored:
        return stored.settings.frames_per_segment


@contextmanager
def go_on(folder: Path, generation: int | None) -> Iterator[tuple[StoredMemory, Take]]:
    """Take ``folder`` to go on exactly where that generation, or the newest, was.

    Gives what is stored, to build a memory by its settings, and what fills its parts and takes the folder.
    """
    with open_stored(folder, generation) as there:  # raises before a folder is made where there is none
        settings = there.settings
    with _writer(folder, settings) as writer, open_stored(folder, generation) as stored:

        def take(parts: MemoryParts) -> Directory:
            stored.fill(parts, in_files=True)
            base = writer.with_commit(stored.commit)
            writer.begin(base)
            if base is not None and generation is None:
                _warn_of_a_crash(writer, base)
            return Directory(parts, writer)

        yield stored, take


def fill_to_read(parts: MemoryParts, stored: StoredMemory, folder: Path) -> bool:
    """Fill a memory that takes no steps; False where a writer meanwhile removed a file that no generation needs now."""
    try:
        stored.fill(parts, in_files=True)
    except FileNotFoundError:
        if stored.manifest.generation not in generations(folder):
            return False
        raise
    why = f"memory {folder} was opened to be read: no step goes into it; open it with read_only=False"
    parts.refuse_steps(ClosedMemoryError(why), for_good=True)
    return True


@contextmanager
def _writer(folder: Path, settings: MemorySettings) -> Iterator[StoreWriter]:
    """The lock of the folder, let go of if anything fails."""
    writer = StoreWriter(folder, file_bytes=file_bytes(settings))
    try:
        writer.read_generations()
        yield writer
    except BaseException:
        writer.close()
        raise


def _check_settings(asked: MemorySettings, stored: MemorySettings, folder: Path) -> None:
    wanted, there = _flat(asked.state()), _flat(stored.state())
    for name in there | wanted:
        if wanted.get(name) != there.get(name) and name not in NOT_COMPARED:
            raise IncompatibleError(
                f"{name} is {wanted.get(name)!r}: the memory in {folder} has {there.get(name)!r}; give the same, or "
                "another directory"
            )


def _flat(state: dict[str, Any]) -> dict[str, Any]:
    """Settings by dotted names.

    >>> _flat({"capacity": 7, "frame": {"shape": [84, 84]}})
    {'capacity': 7, 'frame.shape': [84, 84]}
    """
    flat: dict[str, Any] = {}
    for name, value in state.items():
        flat |= {f"{name}.{inner}": one for inner, one in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _warn_of_a_crash(writer: StoreWriter, base: Manifest) -> None:
    """Say what is lost, if the memory was not closed."""
    if base.is_closed and not writer.left_over:
        return
    cut = f" and {sum(writer.left_over.values()):,} bytes behind it are cut off" if writer.left_over else ""
    warnings.warn(
        f"memory {writer.folder} was not closed: it goes on from its last flush, with {base.num_transitions:,} "
        f"transitions (generation {base.generation}); what came after is lost{cut}; close it, or use `with`, next time",
        RuntimeWarning,
        stacklevel=5,
    )
