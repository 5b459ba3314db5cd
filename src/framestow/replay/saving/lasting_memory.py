"""What makes a memory last: the part of ``ReplayMemory`` that has to do with the disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from framestow.argument_checks import folder_path, truth_value, whole_number
from framestow.errors import InvalidSettingsError
from framestow.replay.keeping.damaged_segments import OnDamage
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.samplers.sampler import Sampler
from framestow.replay.saving.directory import Directory
from framestow.replay.saving.opening import begin_or_go_on, check_flush_every, fill_to_read, go_on
from framestow.replay.saving.saves import Saves, built, open_stored

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

GENERATION_RULE = "it is the number that save() or flush() returned"


class LastingMemory:
    """Saves, loads, opens, flushes and closes a memory.

    ::

                       lives in        what it holds is on the disk
        save, load     RAM             when ``save`` returned
        directory=     the folder      when ``flush`` or ``close`` returned; in the background every few seconds
        open           the folder      the same; or nothing is written, where it is opened to be read
    """

    def __init__(
        self, parts: MemoryParts, directory: str | PathLike[str] | None = None, flush_every: float | None = 5.0
    ) -> None:
        check_flush_every(flush_every)
        self._parts, self._saves = parts, Saves(parts)
        self._directory: Directory | None = None
        if directory is not None:
            self._live_in(begin_or_go_on(parts, Path(directory).resolve()), flush_every)

    def save(self, path: str | PathLike[str], *, keep_previous: bool = False) -> int:
        """Write everything, generator and open episodes included, to the folder ``path``; return its generation.

        Costs what is new since this memory was last saved to, or loaded from, the same folder; anything else that lies
        there is replaced. With ``keep_previous`` what was saved before can still be loaded, by its generation, until
        ``prune``; in the directory that a memory lives in, this generation too stays until then. A crash at
        any moment leaves what was saved there before, or the new state. Other threads may go on; what is saved is the
        memory between two of their calls. Takes no more than a few MiB of memory.

        Raises ``OSError`` if the disk refuses, ``IncompatibleError`` if somebody else is writing there.
        """
        folder, keep_previous = folder_path("path", path), truth_value("keep_previous", keep_previous)
        if self._directory is not None and folder.resolve() == self._directory.path:
            return self._directory.save(keep_previous)
        return self._saves.save(folder, keep_previous)

    def prune(self, path: str | PathLike[str], generation: int) -> None:
        """Remove what was saved to ``path`` before ``generation``, which must be there: ``FileNotFoundError``."""
        folder, generation = folder_path("path", path), whole_number("generation", generation, 0, rule=GENERATION_RULE)
        if self._directory is not None and folder.resolve() == self._directory.path:
            self._directory.prune(generation)
        else:
            self._saves.prune(folder, generation)

    def flush(self) -> int:
        """Put on the disk what a memory that lives in a directory holds; return the generation.

        Everything that was appended before survives from then on whatever becomes of the process, and, as far as the
        disk keeps what it says (fsync), of the machine's power. Raises what a flush in the background failed with,
        ``OSError`` if the disk refuses, ``ClosedMemoryError`` if the memory was closed.
        """
        if self._directory is None:
            raise InvalidSettingsError(
                "the memory does not live in a directory: there is nothing to flush it to; save it, or build it with "
                "directory=..."
            )
        return self._directory.flush()

    def close(self) -> None:
        """Flush, and let go of the directory and of the sampler, which another memory may then take.

        What is stored can still be sampled until the sampler is taken. A memory in a directory takes no more steps; one
        without goes on as before. Closing again does nothing.
        """
        self._parts.told.release()
        if self._directory is not None:
            self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        sampler: Sampler | None = None,
        threads: int = 1,
        generation: int | None = None,
        max_bytes: int | str | None = None,
    ) -> Self:
        """Read what was saved or flushed to ``path`` into RAM: the same transitions, generator and open episodes.

        ``sampler``: a new one, which takes over the state of the saved one if it is of the same class, and begins
        afresh if not; ``None`` makes the one that the memory was saved with, if that is one of framestow's.
        ``threads``: as for a new memory. ``generation``: an older one that was kept, the newest by default.
        ``max_bytes``: another budget than it was saved with; transitions go until it fits, once all is read. Every byte
        is verified. A writer may go on beside it.

        Raises ``IncompatibleError`` for no ``sampler`` where the saved one is not framestow's, ``DamagedDataError``,
        naming the file, if a byte is not what was written, ``FileNotFoundError`` if nothing was saved there,
        ``InvalidSettingsError`` for a budget that cannot hold what the streams are filling.
        """
        folder, generation = _checked_place(path, generation)
        with open_stored(folder, generation) as stored:
            make: Callable[..., Self] = cls
            memory = built(partial(make, sampler=sampler, threads=threads), stored.settings.held_to(max_bytes), path)
            with memory._parts.told.released_on_error():
                stored.fill(memory._parts)
                memory._parts.make_fit()
                memory._saves.remember(path, stored.commit)
        return memory

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        read_only: bool = True,
        generation: int | None = None,
        sampler: Sampler | None = None,
        threads: int = 1,
        flush_every: float | None = 5.0,
        on_damage: OnDamage = "raise",
    ) -> Self:
        """Open a memory where it lies: packed segments stay in its files, and are verified when they are asked for.

        With ``read_only`` it is what it was at that generation, for as long as it is looked at, whatever a writer
        beside it does; nothing is written, and it takes no steps (``ClosedMemoryError``). Without, it goes on exactly
        where it was, open episodes and all, and what came after that generation goes with the next flush. The other
        arguments are those of ``load`` and of a new memory.

        Raises as ``load``, and ``IncompatibleError`` if somebody else is writing there.
        """
        check_flush_every(flush_every)
        folder, generation = _checked_place(path, generation)
        folder = folder.resolve()
        any_memory: Callable[..., Self] = cls
        make = partial(any_memory, sampler=sampler, threads=threads, on_damage=on_damage)
        if not truth_value("read_only", read_only):
            with go_on(folder, generation) as (stored, take):
                memory = built(make, stored.settings, path)
                with memory._parts.told.released_on_error():
                    memory._live_in(take(memory._parts), flush_every)
            return memory
        is_filled = False
        while not is_filled:
            with open_stored(folder, generation) as stored:
                memory = built(make, stored.settings, path)
                with memory._parts.told.released_on_error():
                    is_filled = fill_to_read(memory._parts, stored, folder)
                if not is_filled:
                    memory._parts.told.release()
        return memory

    def _live_in(self, directory: Directory, flush_every: float | None) -> None:
        self._directory = directory
        self._parts.budget.count_files(self._parts.settings.retention == "random")
        with self._parts.lock:
            self._parts.make_fit()
        directory.flush_every(flush_every, memory=self)


def _checked_place(path: str | PathLike[str], generation: int | None) -> tuple[Path, int | None]:
    """Give both checked; ``InvalidSettingsError`` for what is no path, and for what is no number of a generation."""
    if generation is not None:
        generation = whole_number("generation", generation, 0, rule=GENERATION_RULE)
    return folder_path("path", path), generation
