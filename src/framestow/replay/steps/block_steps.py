"""Store the steps of a memory with random retention, in blocks that are evicted in random order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import TAKEN, StepBlocks
from framestow.errors import DamagedDataError
from framestow.replay.eviction.retention import RandomRetention
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
    spans_of,
    starts_state,
)

MAX_UNSTORED_BYTES = 2**24  # of blocks in no file, beyond those in one: few blocks have no step, or are damaged
MAX_SLOT_RANGES = 1024  # times the number of blocks: a damaged store must not make the slots span more
BLOCK_FIELDS = ("numbers", "env_ids", "segments", "num_steps", "are_sealed")  # as StepBlocks.blocks() gives them


class BlockSteps(StepBlocks):
    """Up to ``capacity`` transitions over all environments; a full memory evicts a random segment.

    A *block* has the transitions that start in one segment of frames, and is evicted together with it. Blocks are
    numbered over all environments, in the order of their first frames. A transition's *index* is its block's number
    times ``segment_frames``, plus its index in the block.

    A block is *sealed* when neither the newest observation nor a later transition can reference its frames. Sealed
    blocks never change, can be saved and can be evicted. An eviction also makes neighbours lost: the last transition of
    the segment before, and up to ``stack - 1`` of the segment after. These still count towards the capacity. So in
    endless episodes, as many new steps as a segment has evict exactly one segment, and ages are exactly geometric.
    """

    def __init__(self, settings: StepSettings, retention: RandomRetention) -> None:
        super().__init__(settings, retention)
        self.capacity, self.stack, self.segment_frames = settings.capacity, settings.stack, settings.segment_frames
        self.retention = retention
        self._record = settings.record
        self.block_versions: dict[StepKey, int] = {}  # how often a sealed block was changed, of those that were

    def sampleable_spans(self) -> Indices:
        """Return all sampleable indices as spans of consecutive ones, ascending: first index and length of each."""
        return spans_of(self.sampleable_indices())

    def check(self) -> None:
        """Raise ``AssertionError`` with the broken rule if the step store contradicts itself."""
        _, env_ids, segments, num_steps, are_sealed = self.blocks()
        num_counted = len(self) + len(self.lost) + len(self.pending)
        if num_steps.sum() != self.num_steps or num_counted != self.num_steps:
            raise AssertionError(f"{self.num_steps} transitions are stored, but blocks have {num_steps.sum()}")
        if self.num_steps > self.capacity:
            raise AssertionError(f"{self.num_steps} transitions are more than {self.capacity}")
        must_be_sealed = self._are_sealed(segments, self.newest_positions[env_ids])
        if (are_sealed != must_be_sealed).any() or are_sealed.sum() != self.num_sealed:
            raise AssertionError("blocks are sealed too early or too late")
        check_windows(self, self.sampleable_spans(), self.stack)
        check_starts(self)

    def without_block(self, env_id: int, stored: Indices) -> Indices:
        """Return those of ``stored``, segment numbers of ``env_id``, that have no block of steps."""
        _, env_ids, segments, _, _ = self.blocks()
        return np.setdiff1d(stored, segments[env_ids == env_id])

    def check_segments(self, env_id: int, stored: Indices) -> None:
        """Raise ``AssertionError`` if ``stored``, the stored segments of ``env_id``, contradict its blocks.

        A segment without a block would never be evicted. A block without frames, after damage, must have no sampleable
        steps.
        """
        numbers, env_ids, segments, _, _ = self.blocks()
        without_block = self.without_block(env_id, stored)
        if without_block.size:
            raise AssertionError(
                f"environment {env_id} has frames of segments {without_block}, and no block of steps for them"
            )
        for number in numbers[(env_ids == env_id) & ~np.isin(segments, stored)].tolist():
            indices = np.arange(number * self.segment_frames, (number + 1) * self.segment_frames)
            if self.is_sampleable(indices).any():
                raise AssertionError(f"environment {env_id} has steps of block {number}, and no frames for them")

    @property
    def has_evicted(self) -> bool:
        """Whether a block was ever evicted."""
        return self.next_number > len(self.first_slots())

    @property
    def most_unsealed(self) -> int:
        """Most steps that were in a sealed block and are in none now: blocks are evicted whole."""
        return 0

    def list_sealed_steps(self) -> list[StepKey]:
        """Return (environment, segment number) of every sealed block that has transitions."""
        _, env_ids, segments, num_steps, are_sealed = self.blocks()
        kept = are_sealed & (num_steps > 0)
        return list(zip(env_ids[kept].tolist(), segments[kept].tolist(), strict=True))

    def blocks_of(self, indices: Indices) -> Iterator[StepKey]:
        """Yield the blocks that stored steps are in, sealed or not, each once."""
        numbers, env_ids, segments, _, _ = self.blocks()
        rows = np.searchsorted(numbers, np.unique(indices // self.segment_frames))
        return zip(env_ids[rows].tolist(), segments[rows].tolist(), strict=True)

    def step_block(self, key: StepKey) -> bytes:
        """Return one slot per frame of a sealed segment, as bytes; ``IndexError`` for another segment."""
        env_id, segment = key
        if not 0 <= env_id < self.num_envs or not self._are_sealed(segment, self.newest_positions[env_id]):
            raise IndexError(
                f"block {segment} of environment {env_id} is not sealed; use a key from list_sealed_steps()"
            )
        return self.records(env_id, segment)

    def state(self) -> Arrays:
        """Return, as arrays, everything that is in no sealed block.

        The slots of the open blocks are concatenated in the order of their numbers.
        """
        blocks: Arrays = dict(zip(BLOCK_FIELDS, self.blocks(), strict=True))
        is_open = np.logical_not(blocks["are_sealed"])
        keys = zip(blocks["env_ids"][is_open].tolist(), blocks["segments"][is_open].tolist(), strict=True)
        slots = np.frombuffer(b"".join(self.records(*key) for key in keys), self._record)
        return {
            **{f"blocks.{name}": values for name, values in blocks.items()},
            "blocks.next_number": np.array([self.next_number]),
            "blocks.first_slots": self.first_slots(),
            "steps.lost": self.lost,
            "retention.generator": self.retention.state(),
            **env_arrays(self),
            **starts_state(self),
            **slots_to_arrays(slots),
        }

    def restore(self, arrays: Arrays, read_steps: ReadSteps) -> int:
        """Restore what ``state`` returned and the blocks sealed then, as ``RingSteps.restore`` does."""
        slots = slots_from_arrays(arrays, self._record, self.num_envs)
        self._check_blocks(arrays, len(slots))
        restore_env_arrays(self, arrays)
        lost = arrays["steps.lost"]
        first_slots = self._first_slots(arrays)
        open_blocks = iter(slots.reshape(-1, self.segment_frames))
        num_lost, missing = 0, []
        num_unstored = 0  # blocks in no file, less those in one
        for first_slot, number, env_id, segment, num_steps, is_sealed in zip(
            first_slots, *(arrays[f"blocks.{name}"].tolist() for name in BLOCK_FIELDS), strict=True
        ):
            block = (
                next(open_blocks) if not is_sealed else self._find_sealed_block(env_id, segment, num_steps, read_steps)
            )
            num_unstored += 1 if block is None else -1
            if num_unstored * self.segment_frames * self._record.itemsize > MAX_UNSTORED_BYTES:
                raise DamagedDataError(f"{num_unstored} blocks of steps are in no file; load an older save")
            if block is None:  # transitions that were lost before are not counted again
                first = number * self.segment_frames
                num_lost += num_steps - int(np.diff(np.searchsorted(lost, (first, first + self.segment_frames)))[0])
                missing += [(env_id, segment * self.segment_frames)] * (num_steps > 0)
            records = None if block is None else np.ascontiguousarray(block).view(np.uint8)
            self.restore_block(number, env_id, segment, records, first_slot)
        self.restore_next_number(int(arrays["blocks.next_number"][0]))
        self.lose_indices(lost)
        num_lost += sum(self.lose_leading_to(*frame) for frame in missing)
        self.restore_pending()
        restore_starts(self, arrays)
        self.retention.restore(arrays["retention.generator"])
        return num_lost

    def num_sampleable_in(self, key: StepKey, arrays: Arrays) -> int:
        """Return how many steps of a sealed block were sampleable when ``state`` returned ``arrays``."""
        row = (arrays["blocks.env_ids"] == key[0]) & (arrays["blocks.segments"] == key[1])
        first = int(arrays["blocks.numbers"][row].sum()) * self.segment_frames
        num_lost = np.diff(np.searchsorted(arrays["steps.lost"], (first, first + self.segment_frames)))
        return int(arrays["blocks.num_steps"][row].sum()) - int(num_lost[0])

    def _find_sealed_block(
        self, env_id: int, segment: int, num_steps: int, read_steps: ReadSteps
    ) -> npt.NDArray[Any] | None:
        """Return the slots of a sealed block; ``None`` if it has no transitions or is damaged."""
        block = read_steps((env_id, segment)) if num_steps else None
        slots = slots_from_block(block, self._record, self.segment_frames, self.num_envs)
        return None if slots is None or (slots["env_id"][slots["flags"] & TAKEN > 0] != env_id).any() else slots

    def _check_blocks(self, arrays: Arrays, num_slots: int) -> None:
        """Raise ``DamagedDataError`` unless block numbers ascend and every environment's newest frame has a block."""
        numbers, env_ids, segments, _, are_sealed = (arrays[f"blocks.{name}"] for name in BLOCK_FIELDS)
        newest = arrays["steps.newest_positions"]
        keys = set(zip(env_ids.tolist(), segments.tolist(), strict=False))
        if (
            len({len(arrays[f"blocks.{name}"]) for name in BLOCK_FIELDS}) > 1
            or (np.diff(numbers, prepend=-1) <= 0).any()
            or (len(numbers) and int(arrays["blocks.next_number"][0]) <= numbers[-1])
            or num_slots != self.segment_frames * (~are_sealed).sum()
            or len(keys) != len(numbers)
            or any(not 0 <= env_id < len(newest) or segment < 0 for env_id, segment in keys)
            or any(
                (env_id, position // self.segment_frames) not in keys
                for env_id, position in enumerate(newest.tolist())
                if position >= 0
            )
        ):
            raise DamagedDataError(
                f"{len(numbers)} blocks of steps and {num_slots} slots do not fit a memory of {self.num_envs} "
                f"environments and segments of {self.segment_frames} frames; load an older save"
            )

    def _first_slots(self, arrays: Arrays) -> list[int]:
        """Return the first slot of each block, since samplers save data by slot; -1 (any) if the store lacks it."""
        num_blocks = len(arrays["blocks.numbers"])
        first_slots = arrays.get("blocks.first_slots")
        if first_slots is None or first_slots.shape != (num_blocks,):
            return [-1] * num_blocks
        ranges = first_slots // self.segment_frames
        most = MAX_SLOT_RANGES * (num_blocks + 1)
        is_whole = (first_slots % self.segment_frames == 0).all() and len(np.unique(ranges)) == num_blocks
        if not is_whole or (ranges < 0).any() or (ranges >= most).any():
            return [-1] * num_blocks
        return first_slots.tolist()  # type: ignore[no-any-return]

    def _are_sealed(self, segments: Any, newest_positions: Any) -> Any:
        """Return whether neither the newest observation nor a later transition references these segments."""
        return (segments + 1) * self.segment_frames <= newest_positions - self.stack + 1
