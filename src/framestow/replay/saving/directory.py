"""The folder that a memory lives in: its segments lie in files there, and what is new is flushed."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from framestow.errors import ClosedMemoryError
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.saving.background_flush import BackgroundFlush
from framestow.replay.saving.store_writer import StoreWriter
from framestow.storage.frame_storage import StorageInFiles

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
            parts.budget.let_go_bytes = 0
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
                for key in filter(lambda key: storage.lies_in_files(key.stream), keys[:MOVED_AT_ONCE]):
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
