"""Store the newest steps of a memory in a ring: the oldest transition is evicted first."""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import StepRing
from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.replay.byte_amounts import format_bytes
from framestow.replay.steps.step_store import (
    Arrays,
    FrameRange,
    Indices,
    ReadSteps,
    SealedBlocks,
    SegmentSpans,
    StepKey,
    StepSettings,
    StepStore,
    check_starts,
    check_windows,
    env_arrays,
    restore_env_arrays,
    restore_starts,
    slots_from_arrays,
    slots_from_block,
    slots_to_arrays,
    starts_state,
)

CAN_RELEASE_PAGES = sys.platform == "linux"  # MADV_DONTNEED frees pages on Linux only

# Without it, Linux refuses a mapping that is larger than the RAM, also if hardly any of its pages are ever used. Python
# names MAP_NORESERVE from 3.13 on; 0x4000 is its value on x86-64 and arm64.
NO_RESERVE: int = getattr(mmap, "MAP_NORESERVE", 0x4000) if sys.platform == "linux" else 0


def private_pages(num_bytes: int) -> mmap.mmap:
    """Return at least ``num_bytes`` of private zeroed memory pages; deleting the object frees them at once."""
    size = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)


class SlotPages:
    """Zero-initialized slots of a ring; pages without a stored slot are returned to the operating system.

    The ring stores indices ``oldest`` to ``next_index`` (excluded), index i in slot ``i % len(slots)``. Unwritten pages
    take no memory. So a ring of 100,000,000 slots with a budget for a million steps takes the memory of a million.
    """

    def __init__(self, num_slots: int, record: np.dtype[Any]) -> None:
        self._record_bytes = record.itemsize
        self._pages = private_pages(num_slots * record.itemsize)
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # a kernel without huge pages
                self._pages.madvise(mmap.MADV_NOHUGEPAGE)  # a single slot would keep a whole huge page
        self.slots: npt.NDArray[Any] = np.frombuffer(self._pages, record, num_slots)
        self._released = 0  # pages with only indices below this are released

    def nbytes(self, oldest: int, next_index: int) -> int:
        """Return the bytes of all touched pages while the ring stores ``oldest`` to ``next_index`` (excluded)."""
        first_touched = self._released if self._released > next_index - len(self.slots) else 0
        num_touched = min(next_index - min(first_touched, oldest), len(self.slots))
        return min(num_touched * self._record_bytes + (mmap.PAGESIZE if first_touched else 0), len(self._pages))

    def release(self, oldest: int, next_index: int) -> None:
        """Return the pages to the operating system whose slots all have evicted indices below ``oldest``."""
        if not CAN_RELEASE_PAGES:
            return
        # The page of the first slot may have become free since the last call, so start before it.
        first = max(self._released - mmap.PAGESIZE // self._record_bytes - 1, next_index - len(self.slots), 0)
        for start, stop in self._whole_pages(first, oldest):
            self._pages.madvise(mmap.MADV_DONTNEED, start, stop - start)
        self._released = oldest

    def restart(self, oldest: int) -> None:
        """Start an unwritten ring at index ``oldest``."""
        self._released = oldest

    def _whole_pages(self, first: int, before: int) -> Iterator[tuple[int, int]]:
        """Yield the byte ranges of pages that only have slots of indices ``first`` to ``before`` (at most one lap)."""
        num_slots = len(self.slots)
        while first < before:
            slot = first % num_slots
            stop_slot = min(slot + before - first, num_slots)
            start = -(-slot * self._record_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
            is_end = stop_slot == num_slots  # no slot follows on the last page
            stop = len(self._pages) if is_end else stop_slot * self._record_bytes // mmap.PAGESIZE * mmap.PAGESIZE
            if start < stop:
                yield start, stop
            first += stop_slot - slot


SPAN = "steps.span"  # array of a store: oldest and next index
STEPS_PER_BLOCK = 1024  # of a store: 12 KB with Discrete actions


class RingSteps(StepRing, StepStore):
    """The newest ``capacity`` transitions over all environments.

    Transitions are numbered in the order of appending: this number is the *index*, and ``index % capacity`` the *slot*.
    A full memory overwrites the oldest transition of all environments, so indices ``oldest`` to ``next_index``
    (excluded) are stored. All of them are sampleable except lost and pending ones.

    The native ``StepRing`` does the work on NumPy arrays that Python allocates (docs/decisions/core.md has the gain). A
    store's block n has the steps of indices ``n * STEPS_PER_BLOCK`` to ``(n + 1) * STEPS_PER_BLOCK`` (excluded). A
    block is sealed while all its steps are in the ring. The rest of a partly overwritten block is saved with the state.
    """

    def __init__(self, steps: StepSettings, releases_pages: bool = False) -> None:
        StepStore.__init__(self, steps.num_envs)
        self.capacity, self.stack = steps.capacity, steps.stack
        try:
            # Slots whose unused pages go back to the system, for a memory with a budget; None without one.
            self._pages = SlotPages(steps.capacity, steps.record) if releases_pages else None
            self._slots = np.zeros(steps.capacity, steps.record) if self._pages is None else self._pages.slots
        except (MemoryError, OSError, OverflowError, ValueError) as error:
            slot_bytes = steps.record.itemsize
            raise InvalidSettingsError(
                f"capacity is {steps.capacity}: the system does not give {format_bytes(steps.capacity * slot_bytes)}, "
                f"{slot_bytes} bytes for the step of each transition; lower it"
                + ("" if releases_pages else ", or give max_bytes: then unused steps take no memory")
            ) from error
        StepRing.__init__(self, steps, self, self._slots.view(np.uint8).reshape(steps.capacity, -1))

    @property
    def nbytes(self) -> int:
        """Bytes of the slots with memory behind them, and of the episode starts."""
        if self._pages is not None:
            return self._pages.nbytes(self.oldest, self.next_index) + self.starts_nbytes
        return self._slots.itemsize * min(self.next_index, self.capacity) + self.starts_nbytes

    def evict_next(self) -> list[FrameRange]:
        """Evict the oldest transitions until a sealed segment is unreferenced, and release the pages of their slots."""
        unreferenced_frames = super().evict_next()
        if self._pages is not None:
            self._pages.release(self.oldest, self.next_index)
        return unreferenced_frames

    def sampleable_indices(self) -> Indices:
        unsampleable, span = np.concatenate([self.lost, self.pending]), np.arange(self.oldest, self.next_index)
        return np.delete(span, unsampleable - self.oldest) if unsampleable.size else span

    def sampleable_runs(self) -> Indices:
        unsampleable = np.union1d(self.lost, self.pending)
        starts, stops = np.append(self.oldest, unsampleable + 1), np.append(unsampleable, self.next_index)
        return np.stack([starts, stops - starts], axis=1)[stops > starts]

    def check(self) -> None:
        oldest, next_index, lost = self.oldest, self.next_index, self.lost
        if not 0 <= oldest <= next_index or next_index - oldest > self.capacity:
            raise AssertionError(f"{oldest=} {next_index=} do not span 0 to {self.capacity} transitions")
        if lost.size and (lost[0] < oldest or lost[-1] >= next_index):
            raise AssertionError(f"lost are {lost}, but the ring has {oldest} to {next_index - 1}")
        check_windows(self, self.stack)
        check_starts(self)

    def list_sealed_steps(self) -> list[StepKey]:
        """Return ``(0, n)`` for every block n whose steps are all in the ring and not all lost."""
        all_lost = _all_lost(self.lost)
        return [(0, number) for number in _numbers_within(self.oldest, self.next_index) if number not in all_lost]

    def step_block(self, key: StepKey) -> bytes:
        if key[1] not in _numbers_within(self.oldest, self.next_index):
            raise IndexError(
                f"block {key[1]} of steps is not sealed: transitions {self.oldest} to {self.next_index - 1} are "
                "stored; use a key from list_sealed_steps()"
            )
        return self._slots[_indices_of(key[1]) % self.capacity].tobytes()

    def state(self) -> Arrays:
        """Return, as arrays, everything that is in no sealed block. The slots are in the order of their indices."""
        numbers = _numbers_within(self.oldest, self.next_index)
        slots = self._slots[_outside(self.oldest, self.next_index, numbers) % self.capacity]
        return {
            SPAN: np.array([self.oldest, self.next_index]),
            "steps.blocks": np.array([numbers.start, numbers.stop]),
            "steps.lost": self.lost,
            **env_arrays(self),
            **starts_state(self),
            **slots_to_arrays(slots),
        }

    def restore(self, arrays: Arrays, read_steps: ReadSteps) -> int:
        oldest, next_index = (int(index) for index in arrays[SPAN])
        numbers = range(*arrays["steps.blocks"].tolist())
        lost = arrays["steps.lost"]
        slots = slots_from_arrays(arrays, self._slots.dtype, self.num_envs)
        is_span = 0 <= oldest <= next_index <= oldest + self.capacity
        has_sealed = not numbers or numbers == _numbers_within(oldest, next_index)
        # Count before listing: damaged arrays may claim far more indices than exist.
        num_outside = next_index - oldest - len(numbers) * STEPS_PER_BLOCK
        fits = is_span and has_sealed and num_outside == len(slots)
        if not fits or not _are_ascending_in(lost, oldest, next_index):
            raise DamagedDataError(
                f"transitions {oldest} to {next_index} of {len(slots)} slots, blocks {numbers.start} to {numbers.stop} "
                f"and {len(lost)} lost ones do not fit a memory of {self.capacity} transitions; load an older save"
            )
        outside = _outside(oldest, next_index, numbers)
        restore_env_arrays(self, arrays)
        self._slots[outside % self.capacity] = slots
        self.restore_span(oldest, next_index)
        if self._pages is not None:
            self._pages.restart(oldest)
        self.lose_indices(lost)
        num_lost = self._restore_blocks(numbers, _all_lost(lost), read_steps)
        self.restore_pending()
        restore_starts(self, arrays)
        return num_lost

    def num_sampleable_in(self, key: StepKey, arrays: Arrays) -> int:
        first, before = _indices_of(key[1])[[0, -1]] + [0, 1]
        return STEPS_PER_BLOCK - int(np.diff(np.searchsorted(arrays["steps.lost"], (first, before)))[0])

    def _rebuild_blocks(self, spans: SegmentSpans, _whole: Collection[StepKey], blocks: SealedBlocks) -> Arrays:
        """Keep the newest blocks that fit the capacity; there is one order over all environments."""
        numbers = [number for _, number in blocks.keys]
        if not numbers:
            return {}
        after = max(numbers) + 1
        first = max(min(numbers), after - self.capacity // STEPS_PER_BLOCK)
        for number in filter(lambda number: number >= first, numbers):
            spans.add_slots(np.frombuffer(blocks.read((0, number)) or b"", self._slots.dtype))
        return {
            SPAN: np.array([first, after]) * STEPS_PER_BLOCK,
            "steps.blocks": np.array([first, after]),
        }

    def _restore_blocks(self, numbers: range, all_lost: set[int], read_steps: ReadSteps) -> int:
        missing = [np.zeros(0, np.int64)]
        size = self._slots.itemsize
        stored = self._slots.view(np.uint8)  # NumPy copies bytes ten times as fast as records
        for number in numbers:
            block = None if number in all_lost else read_steps((0, number))
            slots = slots_from_block(block, self._slots.dtype, STEPS_PER_BLOCK, self.num_envs)
            if slots is None:
                missing.append(_indices_of(number))
                continue
            start = number * STEPS_PER_BLOCK % self.capacity
            before_end = min(STEPS_PER_BLOCK, self.capacity - start) * size
            stored[start * size : start * size + before_end] = slots.view(np.uint8)[:before_end]
            stored[: STEPS_PER_BLOCK * size - before_end] = slots.view(np.uint8)[before_end:]
        return self.forget(np.concatenate(missing))


def _numbers_within(oldest: int, next_index: int) -> range:
    """Return the numbers of the blocks whose steps are all in a span of indices."""
    first = -(-oldest // STEPS_PER_BLOCK)
    return range(first, max(first, next_index // STEPS_PER_BLOCK))


def _indices_of(number: int) -> Indices:
    return np.arange(number * STEPS_PER_BLOCK, (number + 1) * STEPS_PER_BLOCK)


def _outside(oldest: int, next_index: int, numbers: range) -> Indices:
    """Return the indices of a span that are in none of the blocks ``numbers``, ascending."""
    if not numbers:
        return np.arange(oldest, max(oldest, next_index))
    head, tail = range(oldest, numbers.start * STEPS_PER_BLOCK), range(numbers.stop * STEPS_PER_BLOCK, next_index)
    return np.concatenate([np.arange(part.start, max(part.start, part.stop)) for part in (head, tail)])


def _all_lost(lost: Indices) -> set[int]:
    """Return the numbers of the blocks whose steps are all lost."""
    numbers, counts = np.unique(lost // STEPS_PER_BLOCK, return_counts=True)
    return set(numbers[counts == STEPS_PER_BLOCK].tolist())


def _are_ascending_in(indices: Indices, start: int, stop: int) -> bool:
    return not indices.size or (bool((np.diff(indices) > 0).all()) and start <= indices[0] and indices[-1] < stop)
