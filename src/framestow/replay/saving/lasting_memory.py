"""What makes a memory last: the part of ``ReplayMemory`` that has to do with the disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING

from framestow.replay.memory_parts import MemoryParts
from framestow.replay.samplers.sampler import Sampler
from framestow.replay.saving.saves import Saves, built, open_stored

if TYPE_CHECKING:
    from typing_extensions import Self


class LastingMemory:
    """Saves a memory and loads it."""

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self._saves = Saves(parts)

    def save(self, path: str | PathLike[str], *, keep_older: bool = False) -> int:
        """Write everything, generator and open episodes included, to the folder ``path``; return its generation.

        Costs what is new since this memory was last saved to, or loaded from, the same folder; anything else that lies
        there is replaced. With ``keep_older`` what was saved there before can still be loaded, by its generation, until
        ``forget_older``. A crash at any moment leaves what was saved there before, or the new state. Other threads may
        go on; what is saved is the memory between two of their calls. Takes no more than a few MiB of memory.

        Raises ``OSError`` if the disk refuses, ``IncompatibleError`` if somebody else is writing there.
        """
        return self._saves.save(path, keep_older)

    def forget_older(self, path: str | PathLike[str], generation: int) -> None:
        """Remove what was saved to ``path`` before ``generation``, which must be there: ``FileNotFoundError``."""
        self._saves.forget_older(path, generation)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        sampler: Sampler | None = None,
        threads: int = 1,
        generation: int | None = None,
        max_bytes: int | str | None = None,
    ) -> Self:
        """Read what ``save`` wrote to ``path`` into RAM: the same transitions, generator and open episodes.

        ``sampler``: a new one of the class that the memory was saved with, ``Uniform()`` by default; it takes over
        the saved one's state. ``threads``: as for a new memory. ``generation``: an older one that was kept, the newest
        by default. ``max_bytes``: another budget than it was saved with; transitions go until it fits, once all is
        read. Every byte is verified.

        Raises ``IncompatibleError`` for a sampler of another class, ``DamagedDataError``, naming the file, if a byte is
        not what was written, ``FileNotFoundError`` if nothing was saved there, ``InvalidSettingsError`` for a budget
        that cannot hold what the streams are filling.
        """
        with open_stored(path, generation) as stored:
            make: Callable[..., Self] = cls
            memory = built(partial(make, sampler=sampler, threads=threads), stored.settings.held_to(max_bytes), path)
            stored.fill(memory._parts)
            memory._parts.make_fit()
            memory._saves.remember(path, stored.commit)
        return memory
