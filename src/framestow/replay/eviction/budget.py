"""Keep a memory within ``max_bytes``: what counts against the budget, and how long its segments may be."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from framestow._core import Core
from framestow.errors import InvalidSettingsError
from framestow.frames.observation_spec import ObservationSpec
from framestow.interface import plural
from framestow.replay.eviction.byte_amounts import KIB, format_bytes

FEWEST_FRAMES = 20  # per segment; shorter segments hardly compress
OUTPUT_ARRAYS = 3  # batches whose arrays are reused: one is learnt from, one waits, one is being sampled
OUTPUT_PART = 8  # batches take at most 1/8 of a budget
DEAD_PART = 8  # evicted bytes in files, or bytes written twice during a flush, take at most 1/8 of a budget
COMMITS = 3  # in a folder at a time; each has the open segments
# Of a step whose memory lives in a directory: one in RAM, and either one in each commit or three in the log. Its reward
# may change at any time, and so may its extras: then half of the log may be old blocks, and a flush adds new ones.
STEP_COPIES = 4
OTHER_BYTES = 16 * KIB  # small parts of constant size: partly used pages of slots, arrays of environments

PACKER_FRAMES = 64  # working memory of the packer besides segments, at most, in frames
ENV_BYTES = 8 * KIB  # working memory per environment
BLOCK_BYTES, RAW_BLOCK_BYTES = 640 * KIB, 160 * KIB  # partly filled blocks of segments, packed or of vectors


class Budget:
    """Keep a memory within ``max_bytes``; ``None`` means without limit.

    The budget counts ``Core.charged_bytes``, an upper bound of the real bytes. These depend only on the stored
    frames, so a memory evicts the same transitions at the same steps after saving and loading.
    """

    def __init__(self, max_bytes: int | None, fixed_bytes: int, empty_charge: int) -> None:
        self.max_bytes = max_bytes
        self.max_charged_bytes = sys.maxsize
        """Most charged bytes; ``evict_to_fit`` evicts the excess."""
        self.output_bytes = 0
        """Bytes reserved for the arrays of coming batches; stays 0 without a budget."""
        self.evicted_bytes = 0
        """Charged bytes evicted since a caller set this to 0."""
        # Charged bytes of a memory without frames: no share of the budget that transitions use.
        self._empty_charge = empty_charge
        self._fixed_bytes = fixed_bytes + OTHER_BYTES
        self._sampler_bytes = 0  # those that do not grow with the steps
        self._file_copies = 0  # of the frames in RAM and files, of a memory that lives in a directory; else 0
        self._share_out()

    def _share_out(self) -> None:
        """Compute the bytes for transitions from all others, so that they do not depend on the order of the calls."""
        if self.max_bytes is not None:
            left = self.max_bytes - self._fixed_bytes - self._sampler_bytes - self.output_bytes
            if self._file_copies:
                left -= self.max_bytes // DEAD_PART
                left -= (left - self._empty_charge) * (self._file_copies - 1) // self._file_copies
            self.max_charged_bytes = left

    def count_files(self, copies: int) -> None:
        """Reserve bytes for the other ``copies`` of the frames, and for evicted ones that a flush will remove."""
        self._file_copies = copies
        self._share_out()

    @property
    def max_flushed_bytes(self) -> int:
        """Most bytes that a flush may move: until it is done, both RAM and files have them."""
        return sys.maxsize if self.max_bytes is None else self.max_bytes // (2 * DEAD_PART)

    def wants_flush(self, num_bytes: int) -> bool:
        """Return whether ``num_bytes``, with files, exceed the budget, and a flush would free enough of them."""
        return self.max_bytes is not None and num_bytes > self.max_bytes and self.evicted_bytes > self.max_flushed_bytes

    def reserve_output(self, output_bytes: int) -> None:
        """Reserve up to ``output_bytes`` for coming batches; call ``evict_to_fit`` afterwards."""
        if self.max_bytes is not None:
            self.output_bytes = max(self.output_bytes, min(output_bytes, self.max_bytes // OUTPUT_PART))
            self._share_out()

    def count_sampler(self, fixed_bytes: int) -> None:
        """Reserve the bytes of a new sampler that are not charged per step, in place of the previous sampler's."""
        self._sampler_bytes = fixed_bytes
        self._share_out()

    def share_used(self, core: Core) -> float:
        """Return the used share of the bytes for transitions, from 0 to 1; 0 without a budget."""
        if self.max_bytes is None:
            return 0.0
        return (core.charged_bytes - self._empty_charge) / (self.max_charged_bytes - self._empty_charge)

    def evict_to_fit(self, core: Core) -> list[tuple[int, int, int]]:
        """Evict transitions, as the retention says, until the rest fits the budget or nothing more can be evicted.

        Returns the evicted frames: environment, first, before.
        """
        charged_before = core.charged_bytes
        evicted: list[tuple[int, int, int]] = []
        while core.charged_bytes > self.max_charged_bytes:
            ranges = core.evict_next()
            if not ranges:
                break
            evicted += ranges
        self.evicted_bytes += charged_before - core.charged_bytes
        return evicted

    def clear(self, core: Core) -> None:
        """Evict all transitions, and end all open episodes."""
        charged_before = core.charged_bytes
        core.clear()
        self.evicted_bytes += charged_before - core.charged_bytes


@dataclass(frozen=True)
class SegmentNeeds:
    """Choose the length of segments so that ``num_sealed`` of them and all open ones fit a budget."""

    frame: ObservationSpec
    num_envs: int
    depths: tuple[int, ...]  # of each array: frames that a step stores at most, with lead-ins
    stack: int
    num_sealed: int  # sealed segments that must fit beside all open ones
    fewest_frames: int  # shortest segment that the retention allows
    step_bytes: int  # of a step besides its frames, in RAM
    file_copies: int  # of the frames in RAM and files, of a memory that lives in a directory; else 0

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
                f"max_bytes is {format_bytes(max_bytes)}: {plural(self.num_envs, 'environment')} of "
                f"{self._bytes_a_step:,} "
                f"bytes per step, in segments of {frames} frames, may need {format_bytes(least)} for open "
                f"segments and {plural(self.num_sealed, 'sealed segment')}; give at least {least:_}"
            )

    def _least_bytes(self, frames: int) -> int:
        """Return the bytes that suffice for frames of noise: growing open segments, and ``num_sealed`` sealed ones."""
        num_frames = (2 * self.num_envs + self.num_sealed) * frames
        segments = num_frames * self._frame_bytes
        # Besides, random retention allocates the steps of an open segment whole.
        step_bytes = (self._step_copies * num_frames + self.num_envs * frames) * self.step_bytes
        frames_beside = PACKER_FRAMES + self.num_envs * (self.stack + 3)
        num_arrays = len(self.frame.frame_specs)
        blocks = sum(RAW_BLOCK_BYTES if frame.is_column else BLOCK_BYTES for frame in self.frame.frame_specs)
        fixed = num_arrays * self.num_envs * ENV_BYTES + blocks + OTHER_BYTES
        fixed += frames_beside * self.frame.nbytes
        needed = segments + segments // 16 + step_bytes + fixed  # the arena's blocks waste up to 1/16
        if self.file_copies:
            needed = self.file_copies * needed + COMMITS * self.num_envs * frames * self._bytes_a_step
            needed += needed // (DEAD_PART - 1)
        return needed + needed // (OUTPUT_PART - 1) + 1

    def _comfortable_bytes(self, frames: int) -> int:
        return max(self._least_bytes(frames), 4 * self.num_envs * frames * self._bytes_a_step)

    @property
    def _step_copies(self) -> int:
        return STEP_COPIES if self.file_copies else 1

    @property
    def _frame_bytes(self) -> int:
        return sum(depth * frame.nbytes for depth, frame in zip(self.depths, self.frame.frame_specs, strict=True))

    @property
    def _bytes_a_step(self) -> int:
        return self._frame_bytes + self._step_copies * self.step_bytes
