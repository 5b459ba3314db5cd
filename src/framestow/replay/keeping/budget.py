"""What a memory may take, and what happens when it would take more."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from framestow.errors import InvalidSettingsError
from framestow.frames.observation_spec import AnySpec
from framestow.replay.keeping.byte_amounts import KIB, format_bytes
from framestow.replay.timelines.timeline import Timeline
from framestow.storage.frame_storage import FrameStorage

FEWEST_FRAMES = 20  # of a segment; shorter ones hardly shrink
OUTPUT_ARRAYS = 3  # batches whose arrays are kept: one that is learnt from, one that waits, one that is drawn
OUTPUT_PART = 8  # of a budget is the most that they may take

DEAD_PART = 8  # of a budget may be dead in files, or twice there while a flush goes on

OTHER_BYTES = 16 * KIB  # of what is small and does not grow: pages that slots use partly, arrays of streams

PACKER_FRAMES = 64  # at most what packing takes besides segments, in frames
STREAM_BYTES = 8 * KIB  # and for each stream
BLOCK_BYTES = 640 * KIB  # and for blocks of segments that are being filled or emptied


class Budget:
    """Holds a memory to ``max_bytes``; to nothing where that is ``None``.

    What counts is what storages say (``FrameStorage.charged_bytes``), which is never less than what they take. It
    follows from what is held alone, so a memory that was saved and loaded lets the same transitions go at the same
    steps.
    """

    def __init__(self, max_bytes: int | None, fixed_bytes: int, empty_charge: int) -> None:
        self.max_bytes = max_bytes
        self.most_charged = sys.maxsize if max_bytes is None else max_bytes - fixed_bytes - OTHER_BYTES
        """Whoever finds more charged after a step calls ``make_fit``."""
        self.output_bytes = 0
        """What the arrays that are kept for batches to come may take, once there is a budget."""
        self.let_go_bytes = 0
        """Charged bytes that have left since somebody set this to 0."""
        self._empty_charge = empty_charge
        self._sampler_bytes = 0

    def count_files(self, is_random: bool) -> None:
        """Leave room for what is dead in the files of a memory that lives in a folder, until a flush removes it.

        Where segments leave at random, a store lets up to half of its files be dead before it copies the rest.
        """
        if self.max_bytes is not None:
            self.most_charged -= self.max_bytes // DEAD_PART
            if is_random:
                self.most_charged -= (self.most_charged - self._empty_charge) // 2

    def wants_flush(self, num_bytes: int) -> bool:
        """Whether a memory of ``num_bytes``, files and all, is over, and enough has left to be worth a flush."""
        return (
            self.max_bytes is not None
            and num_bytes > self.max_bytes
            and (self.let_go_bytes > self.max_bytes // (2 * DEAD_PART))
        )

    def reserve_output(self, output_bytes: int) -> None:
        """Keep so much, if it is not too much, for batches to come; ``make_fit`` then makes room for it."""
        if self.max_bytes is not None:
            allowed = max(self.output_bytes, min(output_bytes, self.max_bytes // OUTPUT_PART))
            self.most_charged -= allowed - self.output_bytes
            self.output_bytes = allowed

    def count_sampler(self, fixed_bytes: int) -> None:
        """Leave room for what a sampler keeps besides what is charged for each step, instead of for the last one's."""
        if self.max_bytes is not None:
            self.most_charged -= fixed_bytes - self._sampler_bytes
            self._sampler_bytes = fixed_bytes

    def share_used(self, storage: FrameStorage) -> float:
        """How much of what a full memory takes is taken, from 0 to 1; 0 without a budget."""
        if self.max_bytes is None:
            return 0.0
        return (storage.charged_bytes - self._empty_charge) / (self.most_charged - self._empty_charge)

    def make_fit(self, storage: FrameStorage, timeline: Timeline) -> None:
        """Let transitions go, by the retention's rule, until what is held fits, or nothing is left that could go."""
        charged_before = storage.charged_bytes
        while storage.charged_bytes > self.most_charged:
            if not timeline.let_go():
                break
            evict_unneeded(storage, timeline)
        self.let_go_bytes += charged_before - storage.charged_bytes


def evict_unneeded(storage: FrameStorage, timeline: Timeline) -> None:
    """Evict the frames that no transition needs any more.

    They are forgotten only when all of them are gone. If Ctrl-C comes before, the next call evicts them again.
    """
    for stream, first, before in timeline.unneeded:
        storage.evict(stream, before, first)
    timeline.forget_unneeded()


@dataclass(frozen=True)
class SegmentNeeds:
    """What decides how long segments may be under a budget: ``num_sealed`` of them are to fit beside the open ones."""

    frame: AnySpec
    num_streams: int
    stack: int
    num_sealed: int
    fewest_frames: int
    column_bytes: int = 0  # of extra columns a step, which stay for as long as its segment does

    def frames_within(self, max_bytes: int, usual: int) -> int:
        """Choose how many frames a segment has: as usual, or fewer where many streams would fill a small budget.

        Open segments of noise take at most half of it. Raises ``InvalidSettingsError`` with the bytes that would do
        where even the shortest ones may take more.
        """
        frames, fewest = usual, min(usual, max(FEWEST_FRAMES, self.fewest_frames))
        while frames > fewest and max_bytes < self._comfortable_bytes(frames):
            frames = max(frames // 2, fewest)
        self.check(max_bytes, frames)
        return frames

    def check(self, max_bytes: int, frames: int) -> None:
        """Raise ``InvalidSettingsError`` where segments of so many frames may take more than the budget."""
        least = self._least_bytes(frames)
        if max_bytes < least:
            raise InvalidSettingsError(
                f"max_bytes is {format_bytes(max_bytes)}: {self.num_streams} environments of {self._bytes_a_frame:,} "
                f"bytes a frame, in segments of {frames}, may need {format_bytes(least)} for what they are filling and "
                f"{self.num_sealed} sealed; give at least {least:_}"
            )

    def _least_bytes(self, frames: int) -> int:
        """Bytes with which a memory of noise holds something: open segments with room to grow, and sealed ones."""
        segments = (2 * self.num_streams + self.num_sealed) * frames * self._bytes_a_frame
        frames_beside = PACKER_FRAMES + self.num_streams * (self.stack + 3)
        num_leaves = len(self.frame.leaf_frames)
        num_packed = max(1, sum(not frame.is_column for frame in self.frame.leaf_frames))
        fixed = num_leaves * self.num_streams * STREAM_BYTES + num_packed * BLOCK_BYTES + OTHER_BYTES
        fixed += frames_beside * self.frame.nbytes
        needed = segments + segments // 16 + fixed  # what blocks may waste
        return needed + needed // (OUTPUT_PART - 1) + 1

    def _comfortable_bytes(self, frames: int) -> int:
        return max(self._least_bytes(frames), 4 * self.num_streams * frames * self._bytes_a_frame)

    @property
    def _bytes_a_frame(self) -> int:
        return self.frame.nbytes + self.column_bytes
