"""The parts of a ``ReplayMemory``: the native core, sampler, budget, generator and lock.

``ReplayMemory`` connects them. Savers read them, and loaders fill them.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import Core
from framestow.errors import DamagedSegmentError, InvalidSettingsError
from framestow.frames.observation_spec import Frames
from framestow.replay.eviction.budget import COMMITS, STEP_COPIES, Budget
from framestow.replay.eviction.byte_amounts import KIB, format_bytes
from framestow.replay.eviction.retention import DamagedSegments, OnDamage
from framestow.replay.forked_draws import ForkedGenerator
from framestow.replay.forked_locks import ForkSafeLock
from framestow.replay.samplers.notified_sampler import NotifiedSampler
from framestow.replay.samplers.sampler import Indices, Sampler, check_is_sampler
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.steps.block_steps import BlockSteps
from framestow.replay.steps.step_stores import AnySteps, make_step_store
from framestow.storage.frame_storage import FrameStorage

SAMPLER_BYTES = 64 * KIB  # partly used pages of weights, and the arrays of a draw
SLOTS_A_BYTE = 64  # in the table that finds those pages


class MemoryParts:
    """The native core, its storage and step store, the sampler and the generator of one memory, and their lock.

    Hold ``lock`` to read or change more than one of them.

    Builders of batches, stores of folders and draws hold the parts, and the parts hold none of them. ``InnerMemory``
    holds all of these. So no reference goes in a circle, and a memory in RAM is freed with its last reference, without
    Python's collector, which knows nothing of its bytes. One object in place of both would be in such a circle.
    """

    def __init__(
        self,
        settings: MemorySettings,
        sampler: Sampler | None = None,
        seed: int | None = None,
        on_damage: OnDamage = "raise",
    ) -> None:
        self.settings = settings
        self.seed: int | None = secrets.randbits(128) if seed is None else seed
        """Seed of the generators; ``None`` once they are those of a saved memory."""
        self.frames = _make_storage(settings)
        self.steps: AnySteps = make_step_store(settings, self.frames.frames_per_segment, self.seed)
        # All changes of both, and of the newest stack of every environment, go through it.
        self.core = Core(self.steps, self.frames, settings.layout, settings.stack_padding)
        # Bytes that evicting steps does not free. A block of steps is allocated whole with its first frame.
        is_whole = settings.retention == "random"
        block_bytes = settings.num_envs * self.frames.frames_per_segment * settings.step_bytes if is_whole else 0
        fixed_bytes = self.core.nbytes + block_bytes
        self.budget = Budget(settings.max_bytes, fixed_bytes, self.core.charged_bytes)
        # Counts and evicts damaged segments, or raises their errors.
        self.damage = DamagedSegments(on_damage, self.core)
        self._check_room_for(sampler)
        self.notified_sampler = NotifiedSampler(sampler, self.steps)
        # Draws the batches. Evictions at random have a generator of their own (``RandomRetention``).
        self.generator = ForkedGenerator(self.seed)
        # Held for every change of the parts, and for every draw. Unpacking a batch happens without it.
        self.lock = ForkSafeLock(order=1)
        self._step_copies = self._sampler_copies = 1  # of a step and of its part of the sampler, in RAM and files
        self.refusal: Exception | None = None
        """Error that the next step raises instead of being stored (``refuse_steps``)."""
        self.num_changes = 0
        """Number of changes of stored steps, so that a flush sees that there is something to save."""
        # Whether ``refusal`` stays after it was raised once: of a memory that is closed or read-only.
        self._refuses_for_good = False
        # By track, the numbers of loaded segments without a block of steps. A repaired store may have some, because
        # neighbouring steps use their frames.
        self._loaded_without_block: dict[int, npt.NDArray[np.int64]] = {}
        self._charge_sampler()

    @property
    def disk_bytes(self) -> int:
        """Number of bytes of the segments in files."""
        return self.frames.disk_nbytes

    @property
    def open_frames(self) -> int:
        """Number of frames in open segments, of all arrays."""
        length = self.frames.frames_per_segment
        return sum(self.frames.next_position(track) % length for track in self.settings.tracks.all)

    @property
    def frame_bytes_by_key(self) -> dict[str, int]:
        """Number of bytes in RAM of the frames of each array; empty if an observation is a single array."""
        return self.frames.nbytes_by_key

    @property
    def sampler_bytes(self) -> dict[str, int]:
        """Number of bytes of the sampler, as a part of the report; empty if it has no state."""
        nbytes = self.notified_sampler.sampler.nbytes
        return {"priorities": nbytes} if nbytes else {}

    def refuse_steps(self, error: Exception, *, for_good: bool) -> None:
        """Make the next step raise ``error`` (a failed flush), or all steps if ``for_good`` (a closed memory)."""
        with self.lock:
            if not self._refuses_for_good:
                self.refusal, self._refuses_for_good = error, for_good

    @property
    def is_read_only(self) -> bool:
        """Whether every further step is refused: the memory is closed, or was opened to be read."""
        return self._refuses_for_good

    def raise_refusal(self) -> None:
        """Raise ``refusal``, if there is one; only once unless it is for good."""
        with self.lock:
            error = self.refusal
            if error is not None:
                if not self._refuses_for_good:
                    self.refusal = None
                raise error

    def switch_sampler(self, sampler: Sampler) -> None:
        """Use ``sampler`` from now on; evict transitions if it needs more of the budget."""
        with self.lock:
            self._check_room_for(sampler)
            self.notified_sampler.switch(sampler)
            self._charge_sampler()
            self.evict_to_fit()

    def update_priorities(self, indices: Indices, priorities: npt.NDArray[np.floating[Any]]) -> None:
        """Pass checked priorities to the sampler."""
        with self.lock:
            self.notified_sampler.update_priorities(indices, priorities)

    def evict_to_fit(self) -> list[tuple[int, int, int]]:
        """Evict transitions until the memory is within its budget; return the frames evicted. Hold ``lock``."""
        return self.budget.evict_to_fit(self.core)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return what is saved besides steps and frames: values for JSON, and the sampler's arrays."""
        sampler, arrays = self.notified_sampler.state()
        return {
            "settings": self.settings.state(),
            "sampler": sampler,
            "generator": self.generator.bit_generator.state,
            "output_bytes": self.budget.output_bytes,
        }, arrays

    def restore(self, state: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore sampler and generator from ``state``'s result; the step store is filled already.

        Raises:
            IncompatibleError: the saved sampler is not framestow's and the memory was built without one.
        """
        self.notified_sampler.restore(state["sampler"], arrays)
        self._check_room_for(self.notified_sampler.sampler)
        self._charge_sampler()
        self.generator.bit_generator.state, self.seed = state["generator"], None
        self.budget.reserve_output(state.get("output_bytes", 0))

    def restore_stacks(self) -> None:
        """Restore the stacks, and what a loaded memory knows of its segments; the storage is filled already."""
        if isinstance(self.steps, BlockSteps):
            tracks = self.settings.tracks
            for track in tracks.all:
                without_block = self.steps.without_block(tracks.env_of(track), self._segments_of(track))
                self._loaded_without_block[track] = without_block
        self._restack(np.flatnonzero(self.steps.newest_positions >= 0).astype(np.int32))

    def restart_draws(self, seed: int | None) -> None:
        """Draw batches and evictions as a new memory with this seed does; ``None`` takes fresh entropy."""
        self.seed = secrets.randbits(128) if seed is None else seed
        self.generator.restart(self.seed)
        if isinstance(self.steps, BlockSteps):
            self.steps.retention.restart(self.seed)

    def check(self) -> None:
        """Raise ``AssertionError`` with the broken rule if step store and storage contradict each other; for tests."""
        with self.lock:
            self.steps.check()
            self.check_segments()
            frames = self.frames.frames_per_segment
            windows, _ = self.steps.resolve(self.steps.sampleable_indices(), with_extras=False)
            for track in self.settings.tracks.all:
                is_mine = windows.env_ids == self.settings.tracks.env_of(track)
                lasts = windows.last_positions[is_mine]
                needed = np.unique(np.concatenate([lasts - windows.counts[is_mine] + 1, lasts]) // frames)
                lacking = np.setdiff1d(needed, self._segments_of(track))
                if lacking.size or (lasts >= self.frames.stored_positions(track).stop).any():
                    raise AssertionError(f"track {track} lacks segments {lacking} of {needed} that steps need")

    def check_segments(self) -> None:
        """Raise ``AssertionError`` unless all arrays have the same frames and segments match the blocks of steps.

        Every save calls it first, so an inconsistent memory is never written. Hold ``lock``.
        """
        for track in self.settings.tracks.all:
            env_id = self.settings.tracks.env_of(track)
            if self.frames.next_position(track) != self.frames.next_position(env_id):
                raise AssertionError(f"environment {env_id} has different frames in two arrays")
            if isinstance(self.steps, BlockSteps):
                loaded = self._loaded_without_block.get(track, np.empty(0, np.int64))
                self.steps.check_segments(env_id, np.setdiff1d(self._segments_of(track), loaded))

    def _segments_of(self, track: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the segments of ``track`` that are not to be evicted, ascending."""
        frames = self.frames.frames_per_segment
        number, num_open = divmod(self.frames.next_position(track), frames)
        numbers = self.frames.sealed_segments(track)
        return np.append(numbers, number) if num_open else numbers

    def _restack(self, env_ids: npt.NDArray[np.int32]) -> None:
        """Rebuild the stacks of environments as windows of their newest frames; skipped frames leave zeros."""
        settings = self.settings
        depths, specs = settings.layout.depths, settings.frame.frame_specs
        for env_id in env_ids:
            newest = self.steps.newest_positions[env_id]
            count = min(newest - self.steps.stretch_starts[env_id], settings.stack - 1) + 1
            window: Frames = tuple(spec.empty(1, depth) for spec, depth in zip(specs, depths, strict=True))
            one = np.array([env_id], np.int32)
            try:
                last = np.array([newest])
                self.frames.windows(one, last, np.array([count], np.int32), window, settings.stack_padding)
            except DamagedSegmentError as error:
                self.damage.skip(error)
                continue
            except IndexError:
                if newest - count + 1 < self.steps.unreadable_before[env_id]:
                    continue
                raise
            self.core.restore_stack(int(env_id), window)

    def _check_room_for(self, sampler: Sampler | None) -> None:
        """Raise ``InvalidSettingsError`` if the table of the sampler's slots may take half of the budget."""
        max_bytes = self.settings.max_bytes
        if sampler is None or max_bytes is None:
            return
        check_is_sampler(sampler)
        table_bytes = self._table_bytes(sampler)
        if table_bytes > max_bytes // 2:
            raise InvalidSettingsError(
                f"capacity is {self.settings.capacity}: a table for the {type(sampler).__name__} of so many "
                f"transitions may take {format_bytes(table_bytes)} of {format_bytes(max_bytes)} in max_bytes; lower it "
                f"to at most {max(max_bytes // 2 - SAMPLER_BYTES, 0) * SLOTS_A_BYTE}"
            )

    def _table_bytes(self, sampler: Sampler) -> int:
        """Return the bytes of the sampler that do not depend on the number of stored steps."""
        max_bytes, num_slots = self.settings.max_bytes, self.steps.num_slots
        if max_bytes is None or not sampler.bytes_a_step:
            return 0
        if self.settings.retention == "random":  # its slots grow with the memory: as many as a budget may ever have
            num_slots = max_bytes // self.settings.step_bytes
        return SAMPLER_BYTES + num_slots // SLOTS_A_BYTE

    def count_files(self) -> None:
        """Count steps in the files of a directory in the budget."""
        self._step_copies = STEP_COPIES
        self._sampler_copies = 1 + COMMITS
        self.frames.charge_commits(COMMITS, self.steps.most_unsealed, self.settings.step_bytes)
        self._charge_sampler()

    def _charge_sampler(self) -> None:
        """Count the bytes of steps and of the sampler in the budget."""
        sampler = self.notified_sampler.sampler
        self.budget.count_sampler(self._table_bytes(sampler))
        sampler_bytes = self._sampler_copies * math.ceil(sampler.bytes_a_step)
        self.frames.charge_steps(self._step_copies * self.settings.step_bytes + sampler_bytes)


def _make_storage(settings: MemorySettings) -> FrameStorage:
    """Build the storage of ``settings``; the bytes that it charges include the slots."""
    return FrameStorage(
        settings.frame,
        settings.num_envs,
        settings.storage,
        settings.threads,
        settings.frames_per_segment,
        settings.step_bytes,
        settings.layout.depths,
    )
