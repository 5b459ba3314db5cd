"""Open, save and flush a memory in a folder."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from framestow.argument_checks import real_number
from framestow.errors import ClosedMemoryError, DamagedDataError, FramestowError, IncompatibleError
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.store.format import Manifest
from framestow.replay.store.reader import StoredMemory
from framestow.replay.store.writer import StoreWriter, file_bytes
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import generations
from framestow.storage.frame_storage import StorageInFiles


class BackgroundFlush:
    """A thread that calls ``flush`` every ``every_s`` seconds until it is stopped; it does not keep a process alive.

    What ``flush`` raises goes to ``failed``, and the next time is another try. The thread refers to what these two
    refer to, so they must not refer to what is to be collected.
    """

    def __init__(self, flush: Callable[[], object], failed: Callable[[Exception], object], every_s: float) -> None:
        self._flush, self._failed, self._every_s = flush, failed, every_s
        self._stopped = threading.Event()
        self._at_last: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="framestow flush", daemon=True)
        self._thread.start()

    @property
    def is_calling(self) -> bool:
        """Whether it is this thread that asks."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Return when no flush is under way and none will begin. Stopping again does nothing."""
        self._stopped.set()
        self._thread.join()

    def stop_soon(self, at_last: Callable[[], object]) -> None:
        """Let the thread end after what it is doing, and call ``at_last`` then; for this thread itself."""
        self._at_last = at_last
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._flush()
            except Exception as error:
                self._failed(error)
        self._at_last()


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


MOVED_AT_ONCE = 32  # segments, in one hold of the memory's lock


class Directory:
    """Keeps the store of a memory up to date, in the foreground and in the background; one flush at a time.

    What a flush in the background raises is raised by the memory's next step or by its next ``flush``, whichever comes
    first; nothing of that step is stored then.
    """

    def __init__(self, parts: MemoryParts, writer: StoreWriter) -> None:
        self._parts, self._writer = parts, writer
        self._one_at_a_time = threading.Lock()
        self._process = os.getpid()
        self._background: BackgroundFlush | None = None
        self._flushed: Any = None  # what the memory was at the beginning of the last flush
        self.is_open = True

    def flush_every(self, seconds: float | None, memory: object) -> None:
        """Flush in the background from now on, unless ``seconds`` is ``None``; close when ``memory`` is collected."""
        if seconds is not None:
            self._background = BackgroundFlush(self._flush_what_is_new, self._failed, seconds)
        weakref.finalize(memory, self._let_go)

    @property
    def path(self) -> Path:
        """The folder."""
        return self._writer.folder

    def flush_for_room(self) -> None:
        """Flush where files and memory together are over the budget; what goes wrong the next step raises."""
        parts = self._parts
        ram_bytes = sum(parts.storage.nbytes.values()) + parts.timeline.nbytes
        if parts.budget.wants_flush(ram_bytes + self._writer.file_bytes):
            parts.budget.evicted_bytes = 0
            try:
                self.flush()
            except OSError as error:
                self._failed(error)

    def flush(self) -> int:
        """Return the generation on the disk that holds everything that was appended before."""
        with self._one_at_a_time:
            self._check_is_open()
            self._parts.raise_refusal()
            return self._flush(self._writer.pinned)

    def save(self, keep_previous: bool) -> int:
        """Flush; with ``keep_previous`` this generation and those before it stay until they are forgotten."""
        with self._one_at_a_time:
            self._check_is_open()
            return self._flush(set(self._writer.generations) if keep_previous else set(), is_pinned=keep_previous)

    def prune(self, generation: int) -> None:
        """Let go of what only generations before ``generation`` need."""
        with self._one_at_a_time:
            self._check_is_open()
            self._writer.forget_before(generation)

    def close(self) -> None:
        """Flush, and let go of the folder, also where the flush fails. Closing again, or in a fork, does nothing."""
        if not self.is_open or self._process != os.getpid():
            return
        if self._background is not None and not self._background.is_calling:
            self._background.stop()
        with self._one_at_a_time:
            self.is_open = False
            self._parts.refuse_steps(
                ClosedMemoryError(f"memory {self.path} is closed: no step goes into it; open it again"), for_good=True
            )
            try:
                self._flush(self._writer.pinned, is_closed=True)
            finally:
                self._writer.close()

    def _flush(self, kept: set[int], *, is_pinned: bool = False, is_closed: bool = False) -> int:
        before = self._looks()
        manifest = self._writer.commit(self._parts, kept, is_pinned=is_pinned, is_closed=is_closed)
        self._flushed = before
        self._move_to_files()
        return manifest.generation

    def _move_to_files(self) -> None:
        """Let the segments that are on the disk now leave RAM.

        A Ctrl-C between two lines moves a segment twice at worst, which is nothing.
        """
        storage, keys = self._parts.storage, self._writer.new_places
        if not isinstance(storage, StorageInFiles):
            keys.clear()  # columns and floats stay in RAM
            return
        while keys:
            with self._parts.lock:
                for key in filter(lambda key: storage.supports_files(key.stream), keys[:MOVED_AT_ONCE]):
                    with suppress(LookupError):  # it has left the memory or the store meanwhile
                        file, offset, size = self._writer.place(key)
                        storage.move_to_file(*key, file, offset, size)
            del keys[:MOVED_AT_ONCE]

    def _flush_what_is_new(self) -> None:
        with self._one_at_a_time:
            if self.is_open and self._looks() != self._flushed:
                self._flush(self._writer.pinned)

    def _looks(self) -> Any:
        """Something that is another after any change."""
        timeline = self._parts.timeline
        with self._parts.lock:
            courses = timeline.newest_positions, timeline.episode_starts, timeline.is_open
            drawn = self._parts.generator.bit_generator.state
            return [course.tobytes() for course in courses], len(timeline), drawn, self._parts.told.num_updates

    def _failed(self, error: Exception) -> None:
        self._parts.refuse_steps(error, for_good=False)

    def _let_go(self) -> None:
        """Close when the memory is collected, or the interpreter ends; the collector may run in any thread."""
        if self._background is not None and self._background.is_calling:
            self._background.stop_soon(self.close)
        else:
            self.close()

    def _check_is_open(self) -> None:
        if not self.is_open:
            raise ClosedMemoryError(f"memory {self.path} is closed: nothing is written there any more; open it again")
        if self._process != os.getpid():
            raise ClosedMemoryError(
                f"memory {self.path} belongs to process {self._process}: a fork of it writes nothing; flush it there"
            )


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
        parts.evict_to_fit()
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
