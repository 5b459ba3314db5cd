"""Which transitions are evicted, and when: by capacity, by a budget of bytes, or because they are damaged."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import one_of
from framestow.errors import DamagedSegmentError, InvalidSettingsError
from framestow.frames.observation_spec import AnySpec
from framestow.replay.byte_amounts import KIB, format_bytes
from framestow.replay.timelines.timeline import Timeline
from framestow.storage.frame_storage import FrameStorage

Retention = Literal["fifo", "random"]
RETENTIONS: tuple[Retention, ...] = ("fifo", "random")

MIN_SEALED_SEGMENTS = 16  # that a full memory chooses from
MIN_SEGMENT_FRAMES = 16  # and no less than so many stacks, since each hole costs a stack of transitions:
MIN_SEGMENT_STACKS = 4


def check_retention(retention: str, capacity: int, num_streams: int, stack: int) -> None:
    """Raise ``InvalidSettingsError`` for a retention that is none, or that so few transitions do not allow."""
    one_of("retention", retention, RETENTIONS, "take 'fifo'")
    fewest = min_segment_frames(stack) * (num_streams + MIN_SEALED_SEGMENTS) + num_streams * stack
    if retention == "random" and capacity < fewest:
        raise InvalidSettingsError(
            f"capacity is {capacity}: retention='random' with {num_streams} environments and a stack of {stack} takes "
            f"at least {fewest} transitions, to choose from {MIN_SEALED_SEGMENTS} segments; raise it or take 'fifo'"
        )


def check_segment_frames(retention: str, frames: int, stack: int) -> None:
    """Raise ``InvalidSettingsError`` where any segment may leave and one alone, without its neighbours, shows nothing.

    A single step shows ``stack`` frames and one more; longer returns are not asked for.
    Of segments of F frames that leave at random, a window of W
    frames that lies in k of them is whole with probability 1 / k, since the age of a segment is exponential: so from
    F = W frames on more than half of a full memory can be drawn, and of F = 1 one in W at most.
    """
    fewest = stack + 1
    if retention == "random" and frames < fewest:
        raise InvalidSettingsError(
            f"frames_per_segment is {frames}: with retention='random' a segment must show a transition where its "
            f"neighbours have left, {stack} frames of its observation and 1 to its next one; give at least "
            f"{fewest}"
        )


def min_segment_frames(stack: int) -> int:
    """Give the fewest frames that a segment may have by itself where any may leave."""
    return max(MIN_SEGMENT_FRAMES, MIN_SEGMENT_STACKS * stack)


def segment_frames(retention: str, capacity: int, num_streams: int, stack: int, usual: int) -> int:
    """Give the frames of a segment: what packs best (``usual``), but few enough to choose from enough segments.

    However full the memory is, a segment of each stream is being filled, and ``stack`` frames before it are still
    looked at; all others may leave, and they are ``MIN_SEALED_SEGMENTS`` at least.

    >>> [segment_frames("random", capacity, 8, 4, usual=320) for capacity in (1_000, 5_000, 100_000)]
    [40, 207, 320]
    """
    if retention != "random":
        return usual
    most = (capacity - num_streams * stack) // (num_streams + MIN_SEALED_SEGMENTS)
    return max(min(usual, most), min_segment_frames(stack))


class RandomRetention:
    """Chooses who leaves, each with the same probability, by a generator of its own.

    So every experience has a chance to stay, and recent ones have more: of n segments, one is still there after k
    others have left with probability (1 - 1/n)^k. It is the rule of a table whose new row takes the place of a random
    one.
    """

    def __init__(self, seed: int | None = None) -> None:
        # Not the memory's own numbers, which are default_rng(seed)'s.
        self._generator = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])

    def choose(self, num_sealed: int) -> int:
        """Give the number, from 0, of one among ``num_sealed``."""
        return int(self._generator.integers(num_sealed))

    def state(self) -> npt.NDArray[np.uint8]:
        """Give the generator's state, as JSON in bytes."""
        return np.frombuffer(json.dumps(self._generator.bit_generator.state).encode(), np.uint8)

    def restore(self, state: npt.NDArray[np.uint8]) -> None:
        """Take over what ``state`` gave."""
        self._generator.bit_generator.state = json.loads(state.tobytes())


OnDamage: TypeAlias = Literal["raise", "skip"]
"""``"raise"``: whoever asks for a damaged segment gets the error. ``"skip"``: the segment leaves the memory, is
counted, and is never asked for again."""


class DamagedSegments:
    """Decides by ``on_damage``, and counts what was skipped. Hold the memory's lock for each call.

    Transitions that look at a frame of a skipped segment are no more drawn; all others are as likely as each other.
    """

    def __init__(self, on_damage: OnDamage, timeline: Timeline, storage: FrameStorage) -> None:
        one_of("on_damage", on_damage, get_args(OnDamage), "take 'raise' to hear of damage")
        self.are_skipped = on_damage == "skip"
        self._timeline, self._storage = timeline, storage
        self._segments: set[tuple[int, int]] = set()
        self.num_transitions = 0
        """Transitions that were lost with skipped segments, or with damaged blocks of steps."""

    @property
    def num_segments(self) -> int:
        """Segments that were skipped."""
        return len(self._segments)

    def skip(self, error: DamagedSegmentError) -> None:
        """Let the segment leave, or raise ``error`` where damage is to be heard of."""
        if not self.are_skipped:
            raise error
        length = self._storage.frames_per_segment
        first, before = error.segment * length, (error.segment + 1) * length
        self.num_transitions += self._timeline.lose(error.stream, first, before)
        self._storage.evict(error.stream, before, first)
        self._segments.add((error.stream, error.segment))


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
