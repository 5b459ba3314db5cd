"""Store the newest steps of a memory in a ring: the oldest transition is evicted first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from framestow._core import StepRing
from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.replay.eviction.byte_amounts import format_bytes
from framestow.replay.steps.step_store import (
    Arrays,
    Indices,
    ReadSteps,
    StepKey,
    StepSettings,
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

SPAN = "steps.span"  # array of a store: oldest and next index
STEPS_PER_BLOCK = 1024  # of a store: 12 KB with Discrete actions


class RingSteps(StepRing):
    """The newest ``capacity`` transitions over all environments.

    Transitions are numbered in the order of appending: this number is the *index*, and ``index % capacity`` the *slot*.
    A full memory overwrites the oldest transition of all environments, so indices ``oldest`` to ``next_index``
    (excluded) are stored. All of them are sampleable except lost and pending ones.

    A store's block n has the steps of indices ``n * STEPS_PER_BLOCK`` to ``(n + 1) * STEPS_PER_BLOCK`` (excluded). A
    block is sealed while all its steps are in the ring. The rest of a partly overwritten block is saved with the state.
    """

    def __init__(self, settings: StepSettings) -> None:
        self.capacity, self.stack, self._record = settings.capacity, settings.stack, settings.record
        self.block_versions: dict[StepKey, int] = {}  # how often a sealed block was changed, of those that were
        self._missing: set[int] = set()  # numbers of the blocks that were restored without their steps
        try:
            super().__init__(settings)
        except (MemoryError, OverflowError) as error:
            slot_bytes = settings.record.itemsize
            raise InvalidSettingsError(
                f"capacity is {self.capacity}: the system does not give {format_bytes(self.capacity * slot_bytes)}, "
                f"{slot_bytes} bytes for the step of each transition; lower it"
                + ("" if settings.releases_pages else ", or give max_bytes: then unused steps take no memory")
            ) from error

    def sampleable_spans(self) -> Indices:
        """Return all sampleable indices as spans of consecutive ones, ascending: first index and length of each."""
        unsampleable = np.union1d(self.lost, self.pending)
        starts, stops = np.append(self.oldest, unsampleable + 1), np.append(unsampleable, self.next_index)
        return np.stack([starts, stops - starts], axis=1)[stops > starts]

    def check(self) -> None:
        """Raise ``AssertionError`` with the broken rule if the step store contradicts itself."""
        oldest, next_index, lost = self.oldest, self.next_index, self.lost
        if not 0 <= oldest <= next_index or next_index - oldest > self.capacity:
            raise AssertionError(f"{oldest=} {next_index=} do not span 0 to {self.capacity} transitions")
        if lost.size and (lost[0] < oldest or lost[-1] >= next_index):
            raise AssertionError(f"lost are {lost}, but the ring has {oldest} to {next_index - 1}")
        check_windows(self, self.sampleable_spans(), self.stack)
        check_starts(self)

    @property
    def has_evicted(self) -> bool:
        """Whether a step was ever evicted."""
        return self.oldest > 0

    def list_sealed_steps(self) -> list[StepKey]:
        """Return ``(0, n)`` for every block n whose steps are all in the ring, unless they were missing in a store."""
        return [(0, number) for number in _numbers_within(self.oldest, self.next_index) if number not in self._missing]

    @property
    def most_unsealed(self) -> int:
        """Most steps that were in a sealed block and are in none now: the rest of a partly overwritten one."""
        return STEPS_PER_BLOCK - 1

    @property
    def num_sealed(self) -> int:
        """Number of blocks whose steps are all in the ring."""
        return len(_numbers_within(self.oldest, self.next_index))

    def blocks_of(self, indices: Indices) -> Iterator[StepKey]:
        """Yield the blocks that stored steps are in, sealed or not, each once."""
        return ((0, number) for number in np.unique(indices // STEPS_PER_BLOCK).tolist())

    def step_block(self, key: StepKey) -> bytes:
        """Return the slots of a sealed block as bytes; raise ``IndexError`` for a block that is not sealed."""
        if key[1] not in _numbers_within(self.oldest, self.next_index):
            raise IndexError(
                f"block {key[1]} of steps is not sealed: transitions {self.oldest} to {self.next_index - 1} are "
                "stored; use a key from list_sealed_steps()"
            )
        return self.records(_indices_of(key[1]))

    def state(self) -> Arrays:
        """Return, as arrays, everything that is in no sealed block. The slots are in the order of their indices."""
        numbers = _numbers_within(self.oldest, self.next_index)
        slots = np.frombuffer(self.records(_outside(self.oldest, self.next_index, numbers)), self._record)
        return {
            SPAN: np.array([self.oldest, self.next_index]),
            "steps.blocks": np.array([numbers.start, numbers.stop]),
            "steps.lost": self.lost,
            **env_arrays(self),
            **starts_state(self),
            **slots_to_arrays(slots),
        }

    def restore(self, arrays: Arrays, read_steps: ReadSteps) -> int:
        """Restore what ``state`` returned and the blocks sealed then, into a new step store of the same settings.

        The transitions of a block that ``read_steps`` cannot return (None) are lost; returns their number. Raises
        ``DamagedDataError`` for arrays that ``state`` cannot have returned.
        """
        oldest, next_index = (int(index) for index in arrays[SPAN])
        numbers = range(*arrays["steps.blocks"].tolist())
        lost = arrays["steps.lost"]
        slots = slots_from_arrays(arrays, self._record, self.num_envs)
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
        self.restore_records(outside, slots.view(np.uint8))
        self.restore_span(oldest, next_index)
        self.lose_indices(lost)
        num_lost = self._restore_blocks(numbers, read_steps)
        self.restore_pending()
        restore_starts(self, arrays)
        return num_lost

    def num_sampleable_in(self, key: StepKey, arrays: Arrays) -> int:
        """Return how many steps of a sealed block were sampleable when ``state`` returned ``arrays``."""
        first, before = _indices_of(key[1])[[0, -1]] + [0, 1]
        return STEPS_PER_BLOCK - int(np.diff(np.searchsorted(arrays["steps.lost"], (first, before)))[0])

    def _restore_blocks(self, numbers: range, read_steps: ReadSteps) -> int:
        for number in numbers:
            block = read_steps((0, number))
            slots = slots_from_block(block, self._record, STEPS_PER_BLOCK, self.num_envs)
            if slots is None:
                self._missing.add(number)
            else:
                self.restore_records(_indices_of(number), slots.view(np.uint8))
        return self.lose_records(np.concatenate([np.zeros(0, np.int64), *map(_indices_of, sorted(self._missing))]))


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


def _are_ascending_in(indices: Indices, start: int, stop: int) -> bool:
    return not indices.size or (bool((np.diff(indices) > 0).all()) and start <= indices[0] and indices[-1] < stop)
