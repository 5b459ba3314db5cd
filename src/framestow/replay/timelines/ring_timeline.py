"""The newest transitions over all streams: who came first leaves first."""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import StepRing
from framestow.errors import DamagedDataError
from framestow.replay.timelines.timeline import (
    Arrays,
    Indices,
    ReadSteps,
    StepKey,
    StepSettings,
    StreamArrays,
    Unneeded,
    Windows,
    arrays_of,
    check_starts,
    check_windows,
    restore_starts,
    restore_streams,
    slots_in,
    slots_of,
    starts_state,
    streams_state,
)
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


STEPS_PER_BLOCK = 1024  # as a store keeps them: 12 KB of counted actions


class RingTimeline(StepRing, StreamArrays):
    """The newest ``capacity`` transitions over all streams (a ``Timeline``).

    Transitions are numbered in the order in which they were appended, for ever: that number is a transition's
    *index*, and ``index % capacity`` is its *slot*. Appending to a full memory overwrites the oldest transition, of
    whatever stream, so exactly ``capacity`` are kept: ``oldest`` up to but not including ``next_index``. All of these
    may be drawn but those that were lost or are pending.

    The arrays are NumPy's and are made here; the native ``StepRing`` does the work on them (docs/decisions.md has what
    that saves). A store's block n has the steps of ``STEPS_PER_BLOCK`` indices, from ``n * STEPS_PER_BLOCK`` on. It is
    sealed while all of them are in the ring, so what is left of the oldest block is saved with the state.
    """

    def __init__(self, steps: StepSettings, gives_pages_back: bool = False) -> None:
        StreamArrays.__init__(self, steps.num_streams)
        self.capacity, self.stack = steps.capacity, steps.stack
        self._pages = SlotPages(steps.capacity, steps.record) if gives_pages_back else None
        self._slots = np.zeros(steps.capacity, steps.record) if self._pages is None else self._pages.slots
        StepRing.__init__(self, steps, self, self._slots.view(np.uint8).reshape(steps.capacity, -1))

    @property
    def nbytes(self) -> int:
        """Bytes of the slots that were ever written; the rest has no page behind it yet, or gave it back.

        And of where the episodes begin.
        """
        if self._pages is not None:
            return self._pages.nbytes(self.oldest, self.next_index) + self.starts_nbytes
        return self._slots.itemsize * min(self.next_index, self.capacity) + self.starts_nbytes

    def let_go(self) -> list[Unneeded]:
        """Let the oldest transitions go until a sealed segment can (see ``Timeline``), and the pages of their slots."""
        unneeded = super().let_go()
        if self._pages is not None:
            self._pages.release(self.oldest, self.next_index)
        return unneeded

    def sampleable_indices(self) -> Indices:
        """Give the index of every transition that may be drawn, oldest first."""
        hidden, span = np.concatenate([self.lost, self.pending]), np.arange(self.oldest, self.next_index)
        return np.delete(span, hidden - self.oldest) if hidden.size else span

    def sampleable_runs(self) -> Indices:
        """Give the indices of all transitions that may be drawn as runs: first index and number of each."""
        hidden = np.union1d(self.lost, self.pending)
        starts, stops = np.append(self.oldest, hidden + 1), np.append(hidden, self.next_index)
        return np.stack([starts, stops - starts], axis=1)[stops > starts]

    def windows(self, indices: Indices) -> Windows:
        """Where the frames of the held transitions ``indices`` lie, as ``resolve`` gives them."""
        return Windows(*self.resolve(indices, with_columns=False)[0])

    def check(self) -> None:
        """Raise ``AssertionError`` with the broken rule if the timeline contradicts itself."""
        oldest, next_index, lost = self.oldest, self.next_index, self.lost
        if not 0 <= oldest <= next_index or next_index - oldest > self.capacity:
            raise AssertionError(f"{oldest=} {next_index=} do not span 0 to {self.capacity} transitions")
        if lost.size and (lost[0] < oldest or lost[-1] >= next_index):
            raise AssertionError(f"lost are {lost}, of which some are not in {oldest} to {next_index - 1}")
        check_windows(self, self.stack)
        check_starts(self, self.stack)

    def sealed_steps(self) -> list[StepKey]:
        """Give ``(0, n)`` for every block n whose steps are all in the ring, unless all of them are lost."""
        all_lost = _all_lost(self.lost)
        return [(0, number) for number in _numbers_within(self.oldest, self.next_index) if number not in all_lost]

    def step_block(self, key: StepKey) -> bytes:
        """Give the slots of a sealed block; IndexError for one that is not sealed."""
        if key[1] not in _numbers_within(self.oldest, self.next_index):
            raise IndexError(
                f"block {key[1]} of steps is not sealed: transitions {self.oldest} to {self.next_index - 1} are here; "
                "take it from sealed_steps()"
            )
        return self._slots[_indices_of(key[1]) % self.capacity].tobytes()

    def state(self, *, stored: Collection[StepKey] | None = None) -> Arrays:
        """Give everything that is in no sealed block, as arrays; everything where one of them is not ``stored``.

        The slots stand in the order of their indices.
        """
        is_missing = stored is not None and any(key not in stored for key in self.sealed_steps())
        numbers = range(0) if is_missing else _numbers_within(self.oldest, self.next_index)
        slots = self._slots[_outside(self.oldest, self.next_index, numbers) % self.capacity]
        return {
            "timeline.span": np.array([self.oldest, self.next_index]),
            "timeline.blocks": np.array([numbers.start, numbers.stop]),
            "timeline.lost": self.lost,
            **streams_state(self),
            **starts_state(self),
            **arrays_of(slots),
        }

    def restore(self, arrays: Arrays, read_steps: ReadSteps) -> int:
        """Take over what ``state`` gave and the blocks that were sealed then (see ``Timeline``)."""
        oldest, next_index = (int(index) for index in arrays["timeline.span"])
        numbers = range(*arrays["timeline.blocks"].tolist())
        lost = arrays["timeline.lost"]
        slots = slots_of(arrays, self._slots.dtype, self.num_streams)
        is_span = 0 <= oldest <= next_index <= oldest + self.capacity
        has_sealed = not numbers or numbers == _numbers_within(oldest, next_index)
        # Counted before they are listed: what the arrays claim may be far more than there is.
        num_outside = next_index - oldest - len(numbers) * STEPS_PER_BLOCK
        fits = is_span and has_sealed and num_outside == len(slots)
        if not fits or not _are_ascending_in(lost, oldest, next_index):
            raise DamagedDataError(
                f"transitions {oldest} to {next_index} of {len(slots)} slots, blocks {numbers.start} to {numbers.stop} "
                f"and {len(lost)} lost ones do not fit a memory of {self.capacity} transitions; take an older save"
            )
        outside = _outside(oldest, next_index, numbers)
        restore_streams(self, arrays)
        self._slots[outside % self.capacity] = slots
        self.restore_span(oldest, next_index)
        if self._pages is not None:
            self._pages.restart(oldest)
        self.lose_indices(lost)
        num_lost = self._restore_blocks(numbers, _all_lost(lost), read_steps)
        self.restore_pending()
        restore_starts(self, arrays)
        return num_lost

    def _restore_blocks(self, numbers: range, all_lost: set[int], read_steps: ReadSteps) -> int:
        missing = [np.zeros(0, np.int64)]
        for number in numbers:
            indices = _indices_of(number)
            block = None if number in all_lost else read_steps((0, number))
            slots = slots_in(block, self._slots.dtype, STEPS_PER_BLOCK, self.num_streams)
            if slots is None:
                missing.append(indices)
            else:
                self._slots[indices % self.capacity] = slots
        return self.forget(np.concatenate(missing))


def _numbers_within(oldest: int, next_index: int) -> range:
    """Numbers of the blocks whose steps all lie in a span of indices."""
    first = -(-oldest // STEPS_PER_BLOCK)
    return range(first, max(first, next_index // STEPS_PER_BLOCK))


def _indices_of(number: int) -> Indices:
    return np.arange(number * STEPS_PER_BLOCK, (number + 1) * STEPS_PER_BLOCK)


def _outside(oldest: int, next_index: int, numbers: range) -> Indices:
    """The indices of a span that are in none of the blocks with these numbers, ascending."""
    if not numbers:
        return np.arange(oldest, max(oldest, next_index))
    head, tail = range(oldest, numbers.start * STEPS_PER_BLOCK), range(numbers.stop * STEPS_PER_BLOCK, next_index)
    return np.concatenate([np.arange(part.start, max(part.start, part.stop)) for part in (head, tail)])


def _all_lost(lost: Indices) -> set[int]:
    """Numbers of the blocks that are lost to the last step."""
    numbers, counts = np.unique(lost // STEPS_PER_BLOCK, return_counts=True)
    return set(numbers[counts == STEPS_PER_BLOCK].tolist())


def _are_ascending_in(indices: Indices, start: int, stop: int) -> bool:
    return not indices.size or (bool((np.diff(indices) > 0).all()) and start <= indices[0] and indices[-1] < stop)
