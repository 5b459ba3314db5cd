"""Decide which transitions are evicted: by capacity, by a memory budget, or because their frames are damaged.

Frames are evicted in whole segments. With ``retention="fifo"`` the oldest transitions are evicted first, with
``"random"`` a random segment.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import one_of
from framestow.errors import DamagedDataError, DamagedSegmentError, InvalidSettingsError
from framestow.frames.observation_spec import AnySpec
from framestow.replay.byte_amounts import KIB, format_bytes
from framestow.replay.steps.step_store import StepStore
from framestow.storage.frame_storage import FrameStorage

Retention: TypeAlias = Literal["fifo", "random"]
RETENTIONS: tuple[Retention, ...] = get_args(Retention)

MIN_SEALED_SEGMENTS = 16  # a full memory with random retention evicts one of at least so many
MIN_SEGMENT_FRAMES = 16  # shortest segment that is chosen for random retention
MIN_SEGMENT_STACKS = 4  # an evicted segment also costs a stack of its neighbours' transitions, so segments are longer


def check_retention(
    retention: Retention, capacity: int, num_envs: int, stack: int, frames_per_segment: int | None = None
) -> None:
    """Raise ``InvalidSettingsError`` for an unknown retention, or for a capacity too small for random retention.

    A smaller capacity would be exceeded by segments that are not sealed yet, or would leave few to choose from. Without
    ``frames_per_segment`` the shortest segments that ``segment_frames`` chooses must fit.
    """
    one_of("retention", retention, RETENTIONS, "use 'fifo'")
    frames = min_segment_frames(stack) if frames_per_segment is None else frames_per_segment
    fewest = frames * (num_envs + MIN_SEALED_SEGMENTS) + num_envs * stack
    if retention == "random" and capacity < fewest:
        segments, way_out = "", "raise it"
        if frames_per_segment is not None:
            segments, way_out = f" and segments of {frames} frames", "raise it, give a smaller frames_per_segment"
        raise InvalidSettingsError(
            f"capacity is {capacity}: retention='random' with {num_envs} environments and a stack of {stack}"
            f"{segments} needs at least {fewest} transitions, to choose from {MIN_SEALED_SEGMENTS} segments; {way_out} "
            "or use 'fifo'"
        )


def check_segment_frames(retention: Retention, frames: int, stack: int) -> None:
    """Raise ``InvalidSettingsError`` if random retention would leave segments without a sampleable transition.

    A one-step transition references W = ``stack`` + 1 frames. Segments of F frames are evicted at random, and their
    ages are exponential. So a window that spans k segments is complete with probability 1 / k. From F = W on, more than
    half of a full memory is sampleable; with F = 1 it is at most one in W.
    """
    fewest = stack + 1
    if retention == "random" and frames < fewest:
        raise InvalidSettingsError(
            f"frames_per_segment is {frames}: with retention='random' a segment must contain a whole transition, "
            f"{stack} frames of its observation and 1 of its next one; give at least {fewest}"
        )


def min_segment_frames(stack: int) -> int:
    """Return the fewest frames of a segment that ``segment_frames`` chooses for random retention."""
    return max(MIN_SEGMENT_FRAMES, MIN_SEGMENT_STACKS * stack)


def segment_frames(retention: Retention, capacity: int, num_envs: int, stack: int, usual: int) -> int:
    """Return the number of frames per segment: ``usual``, or fewer so that random retention has enough segments.

    In a full memory each environment has one open segment, and ``stack`` frames before it are still referenced. All
    other segments can be evicted; there are at least ``MIN_SEALED_SEGMENTS`` of them.

    >>> [segment_frames("random", capacity, 8, 4, usual=320) for capacity in (1_000, 5_000, 100_000)]
    [40, 207, 320]
    """
    if retention != "random":
        return usual
    most = (capacity - num_envs * stack) // (num_envs + MIN_SEALED_SEGMENTS)
    return max(min(usual, most), min_segment_frames(stack))


class RandomRetention:
    """Choose the sealed segment to evict, each with the same probability.

    Of n segments, each one survives k evictions with probability (1 - 1/n)^k. So ages are geometric: most transitions
    are recent, and some are old. A table whose new rows overwrite random rows follows the same law.
    """

    def __init__(self, seed: int | None = None) -> None:
        # A spawned generator, so that evictions and samples are independent: the memory samples by default_rng(seed).
        self._generator = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])

    def choose(self, num_sealed: int) -> int:
        """Return a random number from 0 to ``num_sealed`` - 1."""
        return int(self._generator.integers(num_sealed))

    def state(self) -> npt.NDArray[np.uint8]:
        """Return the generator's state, as JSON in bytes."""
        return np.frombuffer(json.dumps(self._generator.bit_generator.state).encode(), np.uint8)

    def restore(self, state: npt.NDArray[np.uint8]) -> None:
        """Set the generator to what ``state`` returned."""
        self._generator.bit_generator.state = json.loads(state.tobytes())


OnDamage: TypeAlias = Literal["raise", "skip"]
"""What to do with damage. ``"raise"``: raise the error. ``"skip"``: leave out what is damaged, count it and log it."""

_log = logging.getLogger(__name__)


class DamagedSegments:
    """Skip damaged segments, or raise their errors, as ``on_damage`` says; count the skipped ones.

    Transitions that reference a frame of a skipped segment are not sampled any more. The caller holds the memory's
    lock.
    """

    def __init__(self, on_damage: OnDamage, steps: StepStore, storage: FrameStorage) -> None:
        one_of("on_damage", on_damage, get_args(OnDamage), "use 'raise' to get an error")
        self.are_skipped = on_damage == "skip"
        self.are_logged = True
        """Whether skipped damage is logged; a repair reports it itself."""
        self._steps, self._storage = steps, storage
        # The skipped segments, as (env_id, number of the segment). Each is counted and logged once.
        self._segments: set[tuple[int, int]] = set()
        self.num_transitions = 0
        """Transitions lost with skipped segments or with damaged blocks of steps."""

    @property
    def num_segments(self) -> int:
        """Number of skipped segments."""
        return len(self._segments)

    def skip(self, error: DamagedSegmentError) -> None:
        """Evict the damaged segment that ``error`` names, or raise ``error`` if ``on_damage`` is ``"raise"``."""
        if not self.are_skipped:
            raise error
        length = self._storage.frames_per_segment
        first, before = error.segment * length, (error.segment + 1) * length
        self.num_transitions += self._steps.lose(error.env_id, first, before)
        self._storage.evict(error.env_id, before, first)
        if (error.env_id, error.segment) not in self._segments:
            self._segments.add((error.env_id, error.segment))
            if self.are_logged:
                _log.warning("a damaged segment is skipped: %s", error)

    def skip_steps(self, error: KeyError | DamagedDataError) -> None:
        """Log the damaged block of steps that ``error`` names, or raise ``error``. The step store counts its steps."""
        if not self.are_skipped:
            raise error
        if self.are_logged:
            _log.warning("a damaged block of steps is skipped: %s", error.args[0])


FEWEST_FRAMES = 20  # per segment; shorter segments hardly compress
OUTPUT_ARRAYS = 3  # batches whose arrays are reused: one is learnt from, one waits, one is being sampled
OUTPUT_PART = 8  # batches take at most 1/8 of a budget
DEAD_PART = 8  # evicted bytes in files, or bytes written twice during a flush, take at most 1/8 of a budget
OTHER_BYTES = 16 * KIB  # small parts of constant size: partly used pages of slots, arrays of environments

PACKER_FRAMES = 64  # working memory of the packer besides segments, at most, in frames
ENV_BYTES = 8 * KIB  # working memory per environment
BLOCK_BYTES, RAW_BLOCK_BYTES = 640 * KIB, 160 * KIB  # partly filled blocks of segments, packed or of vectors


class Budget:
    """Keep a memory within ``max_bytes``; ``None`` means without limit.

    The budget counts ``FrameStorage.charged_bytes``, an upper bound of the real bytes. These depend only on the stored
    frames, so a memory evicts the same transitions at the same steps after saving and loading.
    """

    def __init__(self, max_bytes: int | None, fixed_bytes: int, empty_charge: int) -> None:
        self.max_bytes = max_bytes
        self.max_charged_bytes = sys.maxsize if max_bytes is None else max_bytes - fixed_bytes - OTHER_BYTES
        """Most charged bytes; ``evict_to_fit`` evicts the excess."""
        self.output_bytes = 0
        """Bytes reserved for the arrays of coming batches; stays 0 without a budget."""
        self.evicted_bytes = 0
        """Charged bytes evicted since a caller set this to 0."""
        # Charged bytes of a memory without frames: no share of the budget that transitions use.
        self._empty_charge = empty_charge
        # Bytes of the sampler that do not grow with the steps. ``max_charged_bytes`` is reduced by them already.
        self._sampler_bytes = 0

    def count_files(self, is_random: bool) -> None:
        """Reserve bytes for evicted segments that stay in the files of a memory until the next flush.

        With random retention, a store rewrites a file only when half of it is evicted.
        """
        if self.max_bytes is not None:
            self.max_charged_bytes -= self.max_bytes // DEAD_PART
            if is_random:
                self.max_charged_bytes -= (self.max_charged_bytes - self._empty_charge) // 2

    def wants_flush(self, num_bytes: int) -> bool:
        """Return whether ``num_bytes``, with files, exceed the budget, and a flush would free enough of them."""
        return (
            self.max_bytes is not None
            and num_bytes > self.max_bytes
            and (self.evicted_bytes > self.max_bytes // (2 * DEAD_PART))
        )

    def reserve_output(self, output_bytes: int) -> None:
        """Reserve up to ``output_bytes`` for coming batches; call ``evict_to_fit`` afterwards."""
        if self.max_bytes is not None:
            allowed = max(self.output_bytes, min(output_bytes, self.max_bytes // OUTPUT_PART))
            self.max_charged_bytes -= allowed - self.output_bytes
            self.output_bytes = allowed

    def count_sampler(self, fixed_bytes: int) -> None:
        """Reserve the bytes of a new sampler that are not charged per step, in place of the previous sampler's."""
        if self.max_bytes is not None:
            self.max_charged_bytes -= fixed_bytes - self._sampler_bytes
            self._sampler_bytes = fixed_bytes

    def share_used(self, storage: FrameStorage) -> float:
        """Return the used share of the bytes for transitions, from 0 to 1; 0 without a budget."""
        if self.max_bytes is None:
            return 0.0
        return (storage.charged_bytes - self._empty_charge) / (self.max_charged_bytes - self._empty_charge)

    def evict_to_fit(self, storage: FrameStorage, steps: StepStore) -> None:
        """Evict transitions, as the retention says, until the rest fits the budget or nothing more can be evicted."""
        charged_before = storage.charged_bytes
        while storage.charged_bytes > self.max_charged_bytes:
            if not steps.evict_next():
                break
            evict_unreferenced_frames(storage, steps)
        self.evicted_bytes += charged_before - storage.charged_bytes


def evict_unreferenced_frames(storage: FrameStorage, steps: StepStore) -> None:
    """Evict the frames that no transition references any more.

    The step store's list is cleared last, so the next call repeats what a Ctrl-C interrupted.
    """
    for env_id, first, before in steps.unreferenced_frames:
        storage.evict(env_id, before, first)
    steps.clear_unreferenced_frames()


@dataclass(frozen=True)
class SegmentNeeds:
    """Choose the length of segments so that ``num_sealed`` of them and all open ones fit a budget."""

    frame: AnySpec
    num_envs: int
    stack: int
    num_sealed: int  # sealed segments that must fit beside all open ones
    fewest_frames: int  # shortest segment that the retention allows
    extra_bytes: int = 0  # of the extras of a step, which are stored as long as its segment

    def frames_within(self, max_bytes: int, usual: int) -> int:
        """Return the frames per segment: ``usual``, or fewer if many environments share a small budget.

        Open segments take at most half of the budget, even if their frames are noise. Raises ``InvalidSettingsError``,
        naming the bytes needed, if the shortest segments could exceed the budget.
        """
        frames, fewest = usual, min(usual, max(FEWEST_FRAMES, self.fewest_frames))
        while frames > fewest and max_bytes < self._comfortable_bytes(frames):
            frames = max(frames // 2, fewest)
        self.check(max_bytes, frames)
        return frames

    def check(self, max_bytes: int, frames: int) -> None:
        """Raise ``InvalidSettingsError`` if segments of ``frames`` frames could exceed the budget."""
        least = self._least_bytes(frames)
        if max_bytes < least:
            raise InvalidSettingsError(
                f"max_bytes is {format_bytes(max_bytes)}: {self.num_envs} environments of {self._bytes_a_frame:,} "
                f"bytes per frame, in segments of {frames} frames, may need {format_bytes(least)} for their open "
                f"segments and {self.num_sealed} sealed ones; give at least {least:_}"
            )

    def _least_bytes(self, frames: int) -> int:
        """Return the bytes that suffice for frames of noise: growing open segments, and ``num_sealed`` sealed ones."""
        segments = (2 * self.num_envs + self.num_sealed) * frames * self._bytes_a_frame
        frames_beside = PACKER_FRAMES + self.num_envs * (self.stack + 3)
        num_arrays = len(self.frame.frame_specs)
        blocks = sum(RAW_BLOCK_BYTES if frame.is_column else BLOCK_BYTES for frame in self.frame.frame_specs)
        fixed = num_arrays * self.num_envs * ENV_BYTES + blocks + OTHER_BYTES
        fixed += frames_beside * self.frame.nbytes
        needed = segments + segments // 16 + fixed  # the arena's blocks waste up to 1/16
        return needed + needed // (OUTPUT_PART - 1) + 1

    def _comfortable_bytes(self, frames: int) -> int:
        return max(self._least_bytes(frames), 4 * self.num_envs * frames * self._bytes_a_frame)

    @property
    def _bytes_a_frame(self) -> int:
        return self.frame.nbytes + self.extra_bytes
