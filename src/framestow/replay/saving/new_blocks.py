"""Which sealed blocks a memory holds and a log lacks, copied out of the memory in small pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import RLock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.storage.files.block_format import BlockKey
from framestow.storage.files.block_log import BlockLogWriter

FEW = 32  # blocks that may be copied while the memory waits
MAX_ROUNDS = 16  # where a memory seals faster than the disk writes, it has to wait in the end

Numbers = npt.NDArray[np.int64]  # of sealed blocks of one stream, ascending


class Sealed(NamedTuple):
    """One kind of a memory's sealed blocks: they never change, and are sealed in the order of their numbers."""

    numbers: Callable[[], list[Numbers]]
    """Those that are held, of each stream; asked with the memory's lock held."""
    copy: Callable[[int, int], bytes]
    """The bytes of the block of a stream and number; ``IndexError`` if it is not held."""


class NewBlocks:
    """Brings one log up to what a memory holds, in three calls; what it appended is in ``appended``.

    ``append_sealed`` keeps the memory waiting for a block at a time, ``take_rest``, with the lock held, for the few
    that were sealed since; ``append_rest`` does not.
    """

    def __init__(self, log: BlockLogWriter, sealed: Sealed, lock: RLock) -> None:
        self._log, self._sealed, self._lock = log, sealed, lock
        self._seen: list[int] = []  # by stream: all that are held below this number are in the log
        self._rest: list[tuple[BlockKey, bytes]] = []
        self._held: list[Numbers] = []
        self.appended: list[BlockKey] = []

    def append_sealed(self) -> None:
        """Append what is held, until nearly all of it is in the log."""
        for _ in range(MAX_ROUNDS):
            with self._lock:
                held = self._sealed.numbers()
            lacking = self._lacking(held)
            for key in _keys_of(lacking):
                with self._lock:
                    try:
                        block = self._sealed.copy(*key)
                    except IndexError:
                        continue  # it left meanwhile
                self._append(key, block)
            if sum(map(len, lacking)) <= FEW:
                return

    def take_rest(self) -> list[Numbers]:
        """Copy what was sealed since; hold the memory's lock. Gives all blocks that are held."""
        self._held = self._sealed.numbers()
        self._rest = [(key, self._sealed.copy(*key)) for key in _keys_of(self._lacking(self._held))]
        return self._held

    def append_rest(self) -> None:
        """Append those, and let the log need none but those that are held."""
        for key, block in self._rest:
            self._append(key, block)
        for stream, held in enumerate(self._held):
            unneeded = np.setdiff1d(self._log.numbers(stream), held, assume_unique=True)
            self._log.drop(BlockKey(stream, number) for number in unneeded.tolist())

    def _append(self, key: BlockKey, block: bytes) -> None:
        self._log.append(key, block)
        self.appended.append(key)

    def _lacking(self, held: list[Numbers]) -> list[Numbers]:
        """Those of ``held`` that are not in the log, nor were seen before."""
        if not self._seen:
            self._seen = [0] * len(held)
            new = [np.setdiff1d(held[stream], self._log.numbers(stream), True) for stream in range(len(held))]
        else:
            new = [numbers[np.searchsorted(numbers, seen) :] for numbers, seen in zip(held, self._seen, strict=True)]
        for stream, numbers in enumerate(held):
            if len(numbers):
                self._seen[stream] = int(numbers[-1]) + 1
        return new


def _keys_of(numbers: list[Numbers]) -> Iterator[BlockKey]:
    return (BlockKey(stream, int(number)) for stream, of_stream in enumerate(numbers) for number in of_stream)
