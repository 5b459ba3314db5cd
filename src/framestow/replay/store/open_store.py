"""Keep a memory in the store of a folder, or save it there: create, resume, flush, save, prune, close.

``OpenStore`` writes through ``StoreWriter``, in the foreground and in the background; ``StoredMemory`` reads.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

from framestow.checks import real_number
from framestow.errors import ClosedMemoryError, ForkedMemoryError, IncompatibleError
from framestow.interface import warn_caller
from framestow.replay.eviction.byte_amounts import MIB
from framestow.replay.forked_locks import call_in_children
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.store.format import Commit, FolderContents
from framestow.replay.store.other_settings import check_settings
from framestow.replay.store.reader import StoredMemory
from framestow.replay.store.writer import StoreWriter
from framestow.storage.files.block_log import FILE_BYTES
from framestow.storage.files.file_system import DISK, FileSystem

MAX_UNFLUSHED_BYTES = 64 * MIB  # of segments that wait in RAM for a background flush
STEPS_PER_CHECK = 16  # steps between two looks at the unflushed bytes
_log = logging.getLogger(__name__)
SEGMENTS_PER_LOCK = 32  # moved to files while the memory's lock is locked once


class OpenStore:
    """The store of one memory in one folder. One flush, save or prune runs at a time.

    A memory *lives* in its directory: ``create_or_resume`` and ``resume`` lock that folder until ``close``, and
    segments move from RAM to its files. Any other folder is locked for each save, which writes what the folder lacks.
    If another memory saved there meanwhile, a save writes everything.

    An error of a background flush is raised by the memory's next step or its next ``flush``, whichever comes first. The
    memory stores nothing of that step.
    """

    def __init__(self, parts: MemoryParts, folder: Path, commit: str = "") -> None:
        """Describe the store in ``folder``, an absolute path; ``commit`` wrote the data that the memory has of it."""
        self._parts, self.path = parts, folder
        self._commit = commit  # random name of the last commit whose data the memory contains
        self._writer: StoreWriter | None = None  # has the folder locked; None if the memory does not live there
        # Held by the flush, save or prune that runs. Take it before the memory's lock, never after it.
        self._one_at_a_time = threading.Lock()
        self._process = os.getpid()  # a forked child must not write
        self._background: BackgroundFlush | None = None  # None without flush_every
        self._flushed: Any = None  # change marker at the beginning of the last flush
        # Whether a flush writes a copy of its commit. Under a budget that lets the old files go at once.
        self._flush_copies = parts.settings.max_bytes is not None
        self.is_open = True
        self._logged = ""  # the last error that was logged
        self._num_steps = 0  # calls of make_room, which looks at the unflushed bytes now and then
        call_in_children(self)

    def enter_child(self) -> None:
        """Refuse steps in a forked child if the memory lives in the folder; wait for no flush of the parent's."""
        self._one_at_a_time = threading.Lock()
        if self._writer is not None:
            with suppress(ForkedMemoryError):  # then every call of the memory raises it
                self._parts.refuse_steps(self._not_of_this_process(), for_good=True)

    @classmethod
    def create_or_resume(cls, parts: MemoryParts, folder: Path) -> OpenStore:
        """Fill a new memory from the store in ``folder``, or create the store there.

        Closes the open episodes of a resumed memory, since no environment continues them. Warns if it was not closed.
        """
        store = cls(parts, folder)
        with store._lock_folder() as writer:
            if writer.newest is None:
                writer.continue_from(None)
                store._write(writer, set())
            else:
                store._continue_from(writer, None)
                parts.core.close_episodes()
                parts.evict_to_fit()
        return store

    @classmethod
    def resume(cls, parts: MemoryParts, folder: Path, generation: int | None) -> OpenStore:
        """Fill a new memory with one generation (``None``: the newest) and its open episodes; continue from there."""
        store = cls(parts, folder)
        with store._lock_folder() as writer:
            store._continue_from(writer, generation)
        return store

    def flush_every(self, seconds: float | None, memory: object) -> None:
        """Flush every ``seconds`` in the background (``None``: never); close once ``memory`` is collected."""
        if seconds is not None:
            self._background = BackgroundFlush(self._flush_if_changed, self._log_and_raise_later, seconds)
        weakref.finalize(memory, self._close_at_collection)

    def flush_for_budget(self) -> None:
        """Flush if files and RAM together exceed ``max_bytes``; the next step raises an ``OSError`` of it."""
        parts = self._parts
        ram_bytes = sum(parts.frames.nbytes.values()) + parts.steps.nbytes
        if self._writer is not None and parts.budget.wants_flush(ram_bytes + self._writer.file_bytes):
            parts.budget.evicted_bytes = 0
            try:
                self.flush()
            except OSError as error:
                self._raise_later(error)

    def make_room(self) -> None:
        """Wait for the disk if the background flush lags behind what is appended; a step calls it first.

        Segments that belong in files take at most ``MAX_UNFLUSHED_BYTES`` of RAM, and those of 16 steps; or less of a
        budget, since a flush has them twice. Raises the error of the flush.
        """
        self._num_steps += 1
        if self._num_steps % STEPS_PER_CHECK or (self._background is None and self._parts.budget.max_bytes is None):
            return
        most = min(MAX_UNFLUSHED_BYTES, self._parts.budget.max_flushed_bytes)
        if self._parts.frames.unflushed_bytes > most:
            self._flush_unless(lambda: self._parts.frames.unflushed_bytes <= most)

    def flush(self) -> int:
        """Write everything that was appended before; return the generation."""
        with self._begin_writer() as writer:
            self._parts.raise_refusal()
            return self._write(writer, writer.pinned, with_copy=self._flush_copies)

    def save(self, keep_previous: bool) -> int:
        """Write the data that the folder lacks; return the generation.

        With ``keep_previous``, later commits keep this generation and the older ones until ``prune``.
        """
        with self._begin_writer() as writer:
            kept = writer.earlier if keep_previous else set()
            return self._write(writer, kept, is_pinned=keep_previous, is_closed=self._writer is None, with_copy=True)

    def prune(self, generation: int) -> None:
        """Remove the generations before ``generation`` and the files that only they need."""
        if not FolderContents(self.path).generations:
            raise FileNotFoundError(
                f"{self.path}: no memory was saved in this folder, so nothing is removed; give the folder of a save"
            )
        with self._begin_writer() as writer:
            writer.prune_before(generation)

    def close(self) -> None:
        """Flush and unlock the folder that the memory lives in, even if the flush fails.

        Closing again does nothing, and neither does closing in a forked child.
        """
        if not self.is_open or self._writer is None or self._process != os.getpid():
            return
        if self._background is not None and not self._background.is_current_thread:
            self._background.stop()
        with self._one_at_a_time:
            self.is_open = False
            self._parts.refuse_steps(
                ClosedMemoryError(f"memory {self.path} is closed: it takes no steps and no changes; open it again"),
                for_good=True,
            )
            try:
                self._write(self._writer, self._writer.pinned, is_closed=True, with_copy=True)
            finally:
                self._writer.close()

    @contextmanager
    def _lock_folder(self) -> Iterator[StoreWriter]:
        """Lock the folder until ``close``; unlock it if anything fails."""
        with ExitStack() as on_error:
            writer = on_error.enter_context(self._new_writer())
            yield writer
            on_error.pop_all()
        self._writer = writer

    @contextmanager
    def _begin_writer(self) -> Iterator[StoreWriter]:
        """Wait until no other call writes; give a writer that has the folder locked, and continues from the memory."""
        self._check_is_open()
        with self._one_at_a_time:
            if self._writer is not None:
                self._check_is_open()
                yield self._writer
            else:
                with self._new_writer() as writer:
                    writer.continue_from(writer.with_commit(self._commit))
                    yield writer

    def _new_writer(self) -> StoreWriter:
        """Lock the folder. Log files take a small part of a budget, since they are removed as a whole."""
        max_bytes = self._parts.settings.max_bytes
        file_bytes = FILE_BYTES if max_bytes is None else min(FILE_BYTES, max_bytes // 16)
        return StoreWriter(self.path, file_bytes=file_bytes)

    def _continue_from(self, writer: StoreWriter, generation: int | None) -> None:
        """Fill the memory with a generation, and let the writer continue from it.

        ``None`` means the newest one, and warns of lost steps if the memory was not closed.
        """
        skips_damage = self._parts.damage.are_skipped
        with StoredMemory.open(self.path, generation, skips_damage=skips_damage) as stored:
            check_settings(self._parts.settings, stored.settings, self.path)
            stored.check_room(self._parts.settings.max_bytes, in_files=True)
            stored.fill(self._parts, in_files=True)
            is_whole = not stored.is_partial
        # With a log that cannot be used nothing can be continued: the next commit writes everything that is left.
        base = writer.with_commit(stored.commit.name) if is_whole else None
        writer.continue_from(base)
        if generation is None:
            _warn_of_crash(self.path, stored.commit)

    def _write(
        self,
        writer: StoreWriter,
        kept: set[int],
        *,
        is_pinned: bool = False,
        is_closed: bool = False,
        with_copy: bool = False,
    ) -> int:
        before = None if self._writer is None else self._change_marker()
        commit = writer.commit(self._parts, kept, is_pinned=is_pinned, is_closed=is_closed, with_copy=with_copy)
        self._commit, self._flushed = commit.name, before
        if self._writer is not None:
            self._move_to_files(self._writer)
        return commit.generation

    def _move_to_files(self, writer: StoreWriter) -> None:
        """Release the RAM of segments that are on the disk now.

        A Ctrl-C between two lines can at worst move a segment twice, which is harmless.
        """
        storage, keys = self._parts.frames, writer.moved
        while keys:
            with self._parts.lock:
                for key in filter(lambda key: storage.supports_files(key.track), keys[:SEGMENTS_PER_LOCK]):
                    with suppress(LookupError):  # evicted from the memory or the store meanwhile
                        file, offset, size, _ = writer.find(key)
                        storage.move_to_file(*key, file, offset, size)
            del keys[:SEGMENTS_PER_LOCK]

    def _flush_if_changed(self) -> None:
        self._flush_unless(lambda: self._change_marker() == self._flushed)

    def _flush_unless(self, is_done: Callable[[], bool]) -> None:
        """Flush, unless the memory is closed or of another process, or ``is_done`` once no other call writes."""
        if self._process != os.getpid():
            return
        with self._one_at_a_time:
            if self.is_open and self._writer is not None and not is_done():
                self._write(self._writer, self._writer.pinned, with_copy=self._flush_copies)

    def _change_marker(self) -> Any:
        """Return a value that differs after any change of the memory."""
        steps = self._parts.steps
        with self._parts.lock:
            of_envs = steps.newest_positions, steps.episode_starts, steps.stretch_starts, steps.is_open
            drawn = self._parts.generator.bit_generator.state
            return (
                [array.tobytes() for array in of_envs],
                len(steps),
                drawn,
                self._parts.notified_sampler.change_marker,
                self._parts.num_changes,
            )

    def _log_and_raise_later(self, error: Exception) -> None:
        """Log an error of the background, since a memory that is only sampled takes no step; log it once in a row."""
        if str(error) != self._logged:
            self._logged = str(error)
            _log.error("memory %s: a flush in the background failed: %s", self.path, error)
        self._raise_later(error)

    def _raise_later(self, error: Exception) -> None:
        self._parts.refuse_steps(error, for_good=False)

    def _close_at_collection(self) -> None:
        """Close when the memory is collected or the interpreter exits; the collector may run in any thread."""
        if self._background is not None and self._background.is_current_thread:
            self._background.stop_from_within(self._close_and_log)
        else:
            self._close_and_log()

    def _close_and_log(self) -> None:
        """Close; log an error, since no caller sees it."""
        try:
            self.close()
        except Exception as error:
            _log.error("memory %s: it could not be closed, so its last steps are lost: %s", self.path, error)

    def _check_is_open(self) -> None:
        if not self.is_open:
            raise ClosedMemoryError(f"memory {self.path} is closed: it cannot be written; open it again")
        if self._writer is not None and self._process != os.getpid():
            raise self._not_of_this_process()

    def _not_of_this_process(self) -> ClosedMemoryError:
        return ClosedMemoryError(
            f"memory {self.path} belongs to process {self._process}: a forked child cannot write it; flush it there"
        )


class BackgroundFlush:
    """A daemon thread that calls ``flush`` every ``every_s`` seconds until it is stopped.

    It passes an error of ``flush`` to ``failed`` and tries again at the next interval. The thread references both
    functions, so they must not reference an object that has to be collected.
    """

    def __init__(self, flush: Callable[[], object], failed: Callable[[Exception], object], every_s: float) -> None:
        self._flush, self._failed, self._every_s = flush, failed, every_s
        self._stopped = threading.Event()
        self._then: Callable[[], object] = lambda: None  # called by the thread when it ends
        self._thread = threading.Thread(target=self._run, name="framestow flush", daemon=True)
        self._thread.start()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Wait for the current flush, then start no other one. Stopping again does nothing."""
        self._stopped.set()
        self._thread.join()

    def stop_from_within(self, then: Callable[[], object]) -> None:
        """Stop after the current flush, then call ``then``; for calls from this thread itself."""
        self._then = then
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._flush()
            except Exception as error:
                self._failed(error)
        self._then()


def check_flush_every(flush_every: float | None) -> None:
    """Raise ``InvalidSettingsError`` unless ``flush_every`` is a positive number of seconds or ``None``."""
    if flush_every is not None:
        rule = "it must be a number of seconds above 0; give None to flush by hand"
        real_number("flush_every", flush_every, 0, rule=rule, is_least_excluded=True)


def keep_only(path: str | PathLike[str], generation: int, files: FileSystem = DISK) -> None:
    """Remove all generations but ``generation``, older and newer ones, from ``path``.

    A run that resumes from a checkpoint calls this: later saves of the memory belong to no checkpoint.

    Raises:
        FileNotFoundError: the generation is not stored there.
    """
    with StoreWriter(Path(path).resolve(), files=files) as writer:
        writer.keep_only(generation)


def start_over(path: str | PathLike[str], *, keeps_pinned: bool, files: FileSystem = DISK) -> None:
    """Remove every generation from ``path``, so that a run without a checkpoint can start there again.

    Raises:
        IncompatibleError: ``keeps_pinned``, and a generation was saved with ``keep_previous``, as checkpoints do.
        DamagedDataError: a commit is damaged or missing, so nothing is removed.
    """
    with StoreWriter(Path(path).resolve(), files=files) as writer:
        newest = writer.newest
        if keeps_pinned and newest is not None and (newest.is_pinned or newest.kept):
            raise IncompatibleError(
                f"{path}: the memory has {newest.num_transitions:,} transitions of a checkpoint that is missing: "
                "without a checkpoint a run starts again; put the checkpoint back, or move the memory away"
            )
        writer.keep_only(None)


def _warn_of_crash(folder: Path, commit: Commit) -> None:
    """Warn if the memory was not closed: say which data is lost."""
    if not commit.is_closed:
        warn_caller(
            f"memory {folder} was not closed: it resumes from its last flush, with {commit.num_transitions:,} "
            f"transitions (generation {commit.generation}); later steps are lost; close it next time (a "
            "buffer by its memory.close())",
            RuntimeWarning,
        )
