"""Transitions in blocks of which any may leave: random retention."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import StepBlocks
from framestow.errors import DamagedDataError
from framestow.replay.eviction import RandomRetention
from framestow.replay.timelines.timeline import (
    Arrays,
    Indices,
    ReadSteps,
    StepKey,
    StepSettings,
    StreamArrays,
    Unneeded,
    arrays_of,
    check_starts,
    check_windows,
    restore_starts,
    restore_streams,
    runs_of,
    slots_in,
    slots_of,
    starts_state,
    streams_state,
)

FARTHEST_RANGE = 1024  # times the blocks that are held: where the slots of one may lie
OF_BLOCKS = ("numbers", "streams", "segments", "num_steps", "are_sealed")  # as StepBlocks.blocks() gives them


class BlockTimeline(StepBlocks, StreamArrays):
    """Up to ``capacity`` transitions over all streams, of which a random segment's leave for those that come.

    A *block* has the transitions that start in one segment of frames, and leaves together with it. Blocks are numbered
    in the order in which their first frames came, over all streams, for ever; a transition's *index* is its block's
    number times ``segment_frames``, plus its place there.

    A block is *sealed* when nothing to come looks at its frames any more: neither the newest observation nor a
    transition that is still to be appended. Then it never changes, a store may keep it, and it may leave. Beside the
    hole that it leaves, transitions that look at frames of it may not be drawn any more: the last one of the segment
    before, and up to ``stack - 1`` of the segment after it. They still count towards the capacity, so each round of as
    many steps as a segment has lets exactly one leave where episodes do not end, and ages are exactly geometric.

    The native ``StepBlocks`` does the work, over arrays of the streams that are made here.
    """

    def __init__(self, steps: StepSettings, retention: RandomRetention) -> None:
        StreamArrays.__init__(self, steps.num_streams)
        self.capacity, self.stack, self.segment_frames = steps.capacity, steps.stack, steps.segment_frames
        self.retention = retention
        self._record = steps.record
        StepBlocks.__init__(self, steps, self)

    def make_room(self) -> list[Unneeded]:
        """Let random segments go until the staged step fits; gives ``unneeded``."""
        while self.lacks_room and self.num_sealed:
            self.let_go()
        return self.unneeded

    def let_go(self) -> list[Unneeded]:
        """Let one random segment go, none where none is sealed; gives ``unneeded``."""
        if self.num_sealed:
            self.let_sealed_go(self.retention.choose(self.num_sealed))
        return self.unneeded

    def sampleable_runs(self) -> Indices:
        """Give the indices of all transitions that may be drawn as runs: first index and number of each."""
        return runs_of(self.sampleable_indices())

    def check(self) -> None:
        """Raise ``AssertionError`` with the broken rule if the timeline contradicts itself."""
        _, streams, segments, num_steps, are_sealed = self.blocks()
        num_told = len(self) + len(self.lost_indices()) + len(self.pending)
        if num_steps.sum() != self.num_steps or num_told != self.num_steps:
            raise AssertionError(f"{self.num_steps} transitions are here, but blocks have {num_steps.sum()}")
        if self.num_steps > self.capacity:
            raise AssertionError(f"{self.num_steps} transitions are more than {self.capacity}")
        if (are_sealed != self._may_leave(streams, segments)).any() or are_sealed.sum() != self.num_sealed:
            raise AssertionError("blocks are sealed too early or too late")
        check_windows(self, self.stack)
        check_starts(self, self.stack)

    def without_block(self, stream: int, stored: Indices) -> Indices:
        """Give those of ``stored``, numbers of segments of ``stream``, whose steps have left or were never stored."""
        _, streams, segments, _, _ = self.blocks()
        return np.setdiff1d(stored, segments[streams == stream])

    def check_segments(self, stream: int, stored: Indices) -> None:
        """Raise ``AssertionError`` unless ``stored``, the segments of ``stream`` whose frames stay, fit its blocks.

        Segments without a block would stay for ever. Blocks without frames are left where segments were damaged: none
        of their steps may be drawn.
        """
        numbers, streams, segments, _, _ = self.blocks()
        of_none = self.without_block(stream, stored)
        if of_none.size:
            raise AssertionError(f"stream {stream} has frames of segments {of_none}, and no block of steps for them")
        for number in numbers[(streams == stream) & ~np.isin(segments, stored)].tolist():
            indices = np.arange(number * self.segment_frames, (number + 1) * self.segment_frames)
            if self.is_sampleable(indices).any():
                raise AssertionError(f"stream {stream} has steps of block {number}, and no frames for them")

    def sealed_steps(self) -> list[StepKey]:
        """Give (stream, segment number) of every sealed block that has a transition."""
        _, streams, segments, num_steps, are_sealed = self.blocks()
        kept = are_sealed & (num_steps > 0)
        return list(zip(streams[kept].tolist(), segments[kept].tolist(), strict=True))

    def step_block(self, key: StepKey) -> bytes:
        """Give a slot for each frame of a sealed segment; IndexError for one that is not sealed."""
        stream, segment = key
        if not 0 <= stream < self.num_streams or not self._may_leave(stream, segment):
            raise IndexError(f"block {segment} of stream {stream} is not sealed: take it from sealed_steps()")
        return self.records(stream, segment)

    def state(self, *, stored: Collection[StepKey] | None = None) -> Arrays:
        """Give everything that is in no sealed block, or in none of those that are ``stored``, as arrays.

        The slots of blocks that are not sealed stand one behind the other, in the order of the blocks.
        """
        blocks: Arrays = dict(zip(OF_BLOCKS, self.blocks(), strict=True))
        if stored is not None:
            keys = zip(blocks["streams"].tolist(), blocks["segments"].tolist(), strict=True)
            is_stored = [
                not num_steps or key in stored for key, num_steps in zip(keys, blocks["num_steps"], strict=True)
            ]
            blocks["are_sealed"] = blocks["are_sealed"] & np.array(is_stored, np.bool_)
        is_open = np.logical_not(blocks["are_sealed"])
        keys = zip(blocks["streams"][is_open].tolist(), blocks["segments"][is_open].tolist(), strict=True)
        slots = np.frombuffer(b"".join(self.records(*key) for key in keys), self._record)
        return {
            **{f"blocks.{name}": values for name, values in blocks.items()},
            "blocks.next_number": np.array([self.next_number]),
            "blocks.first_slots": self.first_slots(),
            "timeline.lost": self.lost_indices(),
            "retention.generator": self.retention.state(),
            **streams_state(self),
            **starts_state(self),
            **arrays_of(slots),
        }

    def restore(self, arrays: Arrays, read_steps: ReadSteps) -> int:
        """Take over what ``state`` gave and the blocks that were sealed then (see ``Timeline``)."""
        slots = slots_of(arrays, self._record, self.num_streams)
        self._check_blocks(arrays, len(slots))
        restore_streams(self, arrays)
        lost = arrays["timeline.lost"]
        first_slots = self._first_slots(arrays)
        open_blocks = iter(slots.reshape(-1, self.segment_frames))
        num_lost, missing = 0, []
        for first_slot, number, stream, segment, num_steps, is_sealed in zip(
            first_slots, *(arrays[f"blocks.{name}"].tolist() for name in OF_BLOCKS), strict=True
        ):
            block = next(open_blocks) if not is_sealed else self._sealed_block(stream, segment, num_steps, read_steps)
            if block is None:  # what could not be drawn before is not lost now
                first = number * self.segment_frames
                num_lost += num_steps - int(np.diff(np.searchsorted(lost, (first, first + self.segment_frames)))[0])
                missing += [(stream, segment * self.segment_frames)] * (num_steps > 0)
            records = None if block is None else np.ascontiguousarray(block).view(np.uint8)
            self.restore_block(number, stream, segment, records, first_slot)
        self.restore_next_number(int(arrays["blocks.next_number"][0]))
        self.lose_indices(lost)
        num_lost += sum(self.lose_leading_to(*place) for place in missing)
        self.restore_pending()
        restore_starts(self, arrays)
        self.retention.restore(arrays["retention.generator"])
        return num_lost

    def _sealed_block(
        self, stream: int, segment: int, num_steps: int, read_steps: ReadSteps
    ) -> npt.NDArray[Any] | None:
        """Slots of a sealed block; ``None`` where it has no transition, or is not what was written."""
        block = read_steps((stream, segment)) if num_steps else None
        slots = slots_in(block, self._record, self.segment_frames, self.num_streams)
        return None if slots is None or (slots["stream"][slots["flags"] > 0] != stream).any() else slots

    def _check_blocks(self, arrays: Arrays, num_slots: int) -> None:
        """Raise ``DamagedDataError`` unless the blocks follow each other and every stream's newest frame has one."""
        numbers, streams, segments, _, are_sealed = (arrays[f"blocks.{name}"] for name in OF_BLOCKS)
        newest = arrays["timeline.newest_positions"]
        places = set(zip(streams.tolist(), segments.tolist(), strict=False))
        if (
            len({len(arrays[f"blocks.{name}"]) for name in OF_BLOCKS}) > 1
            or (np.diff(numbers, prepend=-1) <= 0).any()
            or (len(numbers) and int(arrays["blocks.next_number"][0]) <= numbers[-1])
            or num_slots != self.segment_frames * (~are_sealed).sum()
            or len(places) != len(numbers)
            or any(not 0 <= stream < len(newest) or segment < 0 for stream, segment in places)
            or any(
                (stream, position // self.segment_frames) not in places
                for stream, position in enumerate(newest.tolist())
                if position >= 0
            )
        ):
            raise DamagedDataError(
                f"{len(numbers)} blocks of steps and {num_slots} slots do not fit a memory of {self.num_streams} "
                f"streams and segments of {self.segment_frames} frames; take an older save"
            )

    def _first_slots(self, arrays: Arrays) -> list[int]:
        """Where each block's slots began, so that samplers find theirs again; any (-1) where that is not said."""
        num_blocks = len(arrays["blocks.numbers"])
        first_slots = arrays.get("blocks.first_slots")
        if first_slots is None or first_slots.shape != (num_blocks,):
            return [-1] * num_blocks
        ranges = first_slots // self.segment_frames
        most = FARTHEST_RANGE * (num_blocks + 1)  # no array of more than a store of this size can have written
        is_whole = (first_slots % self.segment_frames == 0).all() and len(np.unique(ranges)) == num_blocks
        if not is_whole or (ranges < 0).any() or (ranges >= most).any():
            return [-1] * num_blocks
        return first_slots.tolist()  # type: ignore[no-any-return]

    def _may_leave(self, stream: Any, segment: Any) -> Any:
        """Whether neither the newest observation nor a transition to come looks at these segments."""
        return (segment + 1) * self.segment_frames <= self.newest_positions[stream] - self.stack + 1
