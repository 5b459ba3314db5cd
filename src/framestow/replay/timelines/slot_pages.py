"""A ring of slots that takes memory only for those in use."""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.storage.raw_ring import private_pages

GIVES_BACK = sys.platform == "linux"  # elsewhere a page that was written to stays


class SlotPages:
    """Slots of a ring, all zeros at first, whose pages go back to the system when nothing in them is held.

    The ring holds indices ``oldest`` up to ``next_index``, index i in slot ``i % len(slots)``. Pages that were never
    written to take nothing, so a ring may be far larger than what it will ever hold: of 100,000,000 slots under a
    budget for a million, a million take memory, wherever in the ring they are.
    """

    def __init__(self, num_slots: int, record: np.dtype[Any]) -> None:
        self._record_bytes = record.itemsize
        self._pages = private_pages(num_slots * record.itemsize)
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # a kernel without huge pages
                self._pages.madvise(mmap.MADV_NOHUGEPAGE)  # one of them would stay for a single slot
        self.slots: npt.NDArray[Any] = np.frombuffer(self._pages, record, num_slots)
        self._released = 0  # indices below are gone, and so are the pages that they had for themselves

    def nbytes(self, oldest: int, next_index: int) -> int:
        """Bytes of the pages behind the slots while the ring holds ``oldest`` up to ``next_index``."""
        first_touched = self._released if self._released > next_index - len(self.slots) else 0
        num_touched = min(next_index - min(first_touched, oldest), len(self.slots))
        return min(num_touched * self._record_bytes + (mmap.PAGESIZE if first_touched else 0), len(self._pages))

    def release(self, oldest: int, next_index: int) -> None:
        """Give back the pages whose slots all belong to indices below ``oldest`` that have gone."""
        if not GIVES_BACK:
            return
        # The page of the first slot may have been kept for one that has gone since: look at it again.
        first = max(self._released - mmap.PAGESIZE // self._record_bytes - 1, next_index - len(self.slots), 0)
        for start, stop in self._whole_pages(first, oldest):
            self._pages.madvise(mmap.MADV_DONTNEED, start, stop - start)
        self._released = oldest

    def restart(self, oldest: int) -> None:
        """Take note that the ring, nothing of which was written to, is filled from index ``oldest`` on."""
        self._released = oldest

    def _whole_pages(self, first: int, before: int) -> Iterator[tuple[int, int]]:
        """Offsets of the pages that have slots of indices ``first`` up to ``before`` alone; at most a lap of them."""
        num_slots = len(self.slots)
        while first < before:
            slot = first % num_slots
            stop_slot = min(slot + before - first, num_slots)
            start = -(-slot * self._record_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
            is_end = stop_slot == num_slots  # behind which nothing lies
            stop = len(self._pages) if is_end else stop_slot * self._record_bytes // mmap.PAGESIZE * mmap.PAGESIZE
            if start < stop:
                yield start, stop
            first += stop_slot - slot
