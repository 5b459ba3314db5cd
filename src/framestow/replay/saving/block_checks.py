"""What a block must hold, beyond the bytes that were written: frames that unpack, steps that can be."""

from __future__ import annotations

import numpy as np

from framestow.errors import DamagedDataError
from framestow.replay.columns import slot_record
from framestow.replay.memory_settings import MemorySettings
from framestow.storage.files.block_format import BlockKey
from framestow.storage.storages import make_storage

UNPACKED_BYTES = 8 * 2**20  # of frames at once


class SegmentCheck:
    """Unpacks every frame of a segment, whatever storage it is of; tells why it cannot be what was written."""

    def __init__(self, settings: MemorySettings, frames_per_segment: int) -> None:
        self._settings, self._frames_per_segment = settings, frames_per_segment
        frames_at_once = max(1, min(UNPACKED_BYTES // settings.frame.nbytes, frames_per_segment))
        self._unpacked = [frame.empty(1, frames_at_once) for frame in settings.frame.leaf_frames]

    def __call__(self, key: BlockKey, segment: bytes) -> str | None:
        """Check a sealed segment."""
        first = key.number * self._frames_per_segment
        return self.contradiction(key, segment, range(first, first + self._frames_per_segment))

    def contradiction(self, key: BlockKey, segment: bytes, positions: range) -> str | None:
        """What is wrong with a segment that must hold the frames of ``positions``; None where nothing is."""
        settings = self._settings
        if key.stream >= settings.num_frame_streams:
            return f"there are {settings.num_frame_streams} streams of frames"
        leaf = key.stream // settings.num_envs
        frame, unpacked = settings.frame.leaf_frames[leaf], self._unpacked[leaf]
        # One of its own for each segment: what stands in it stands alone.
        storage = make_storage(settings.storage, frame, 1, frames_per_segment=self._frames_per_segment)
        try:
            storage.restore(0, key.number, segment)
            if storage.held(0) != positions:
                held = storage.held(0)
                return f"it holds frames {held.start} to {held.stop - 1}, not {positions.start} to {positions.stop - 1}"
            length = unpacked.shape[1]
            for start in range(positions.start, positions.stop, length):
                count = min(length, positions.stop - start)
                window = unpacked[:, :count]
                last = np.array([start + count - 1])
                storage.windows(np.zeros(1, np.int32), last, np.array([count], np.int32), window)
        except (DamagedDataError, ValueError, IndexError) as error:
            return str(error)
        return None


class StepsCheck:
    """Tells why a block of steps cannot be what was written."""

    def __init__(self, settings: MemorySettings) -> None:
        self._settings = settings
        self._record = slot_record(settings.num_envs, settings.action, settings.extras)

    def __call__(self, _key: BlockKey, block: bytes) -> str | None:
        """Check the fields of each step by itself."""
        settings = self._settings
        if len(block) % self._record.itemsize:
            return f"its {len(block)} bytes are no steps of {self._record.itemsize} bytes"
        steps = np.frombuffer(block, self._record)
        for name, is_wrong in {
            "stream": steps["stream"] >= settings.num_envs,
            "reward": ~np.isfinite(steps["reward"]),
            "history": steps["history"] >= settings.stack,
            "flags": steps["flags"] > MAX_FLAGS,
            "action": settings.action.are_outside(steps["action"]).reshape(len(steps), -1).any(1),
        }.items():
            if is_wrong.any():
                place = int(np.flatnonzero(is_wrong)[0])
                return f"the {name} of step {place} is {steps[name][place]}"
        return None


MAX_FLAGS = 7  # terminated, truncated, and that a place of a block is taken
