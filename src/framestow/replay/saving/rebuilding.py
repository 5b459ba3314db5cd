"""The state of a generation made anew from its logs alone: what is in whole segments with their steps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from framestow.replay.columns import slot_record
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.saving.array_file import Arrays
from framestow.replay.saving.examined_log import LogView
from framestow.replay.saving.moment import NEXT_POSITIONS, OPEN_SEGMENTS, OPEN_SIZES, held_runs
from framestow.replay.timelines.ring_timeline import STEPS_PER_BLOCK
from framestow.replay.timelines.timelines import make_timeline
from framestow.storage.files.block_format import BlockKey

POSITIONS_KEPT = 2**32  # slots have the low 32 bits of a position
FARTHEST = 2**30  # frames from a stream's newest one to any that it holds

Numbers = npt.NDArray[np.int64]


class RebuiltState:
    """Makes the arrays of a state file from the blocks that are there.

    What was only in the state is lost: open segments, steps of no full block, the open episodes. So every stream goes
    on with a new segment behind its newest step or frame, and all of its episodes are closed. Segments that are not
    there are named where steps might look at them; whoever goes through them takes those steps out of the draw.
    """

    def __init__(self, settings: MemorySettings, frames_per_segment: int) -> None:
        self._settings, self._length = settings, frames_per_segment
        self._record = slot_record(settings.num_streams, settings.action)
        self._firsts = np.full(settings.num_streams, -1, np.int64)  # number of the first segment of each stream
        self._nexts = np.zeros(settings.num_streams, np.int64)  # and of the one behind its last

    def arrays(self, segments: Iterable[BlockKey], steps: LogView) -> Arrays:
        """Give the arrays for these segments and the blocks of steps that are whole."""
        for stream, number in segments:
            self._cover(stream, number, number)
        empty = make_timeline(self._settings, self._length).state()
        of_steps = self._of_ring(steps)
        runs = [
            np.arange(first, after) if first >= 0 else np.empty(0, np.int64)
            for first, after in zip(self._firsts.tolist(), self._nexts.tolist(), strict=True)
        ]
        newest = self._nexts * self._length - 1
        of_streams: Arrays = {
            "timeline.newest_positions": newest,
            "timeline.episode_starts": np.maximum(newest, 0),
        }
        of_frames: Arrays = {
            NEXT_POSITIONS: self._nexts * self._length,
            OPEN_SIZES: np.zeros(self._settings.num_streams, np.int64),
            OPEN_SEGMENTS: np.empty(0, np.uint8),
        }
        return empty | of_steps | of_streams | of_frames | held_runs(runs)

    def _of_ring(self, steps: LogView) -> Arrays:
        """Where transitions have one order over all streams: the newest that fit the capacity, in whole blocks."""
        numbers = [key.number for key in steps.whole_keys()]
        if not numbers:
            return {}
        stop = (max(numbers) + 1) * STEPS_PER_BLOCK
        first = max(min(numbers), -(-(stop - self._settings.capacity) // STEPS_PER_BLOCK))
        for number in numbers:
            if number >= first:
                self._cover_steps(np.frombuffer(steps.read(BlockKey(0, number)) or b"", self._record))
        return {
            "timeline.span": np.array([first * STEPS_PER_BLOCK, stop]),
            "timeline.blocks": np.array([first, stop // STEPS_PER_BLOCK]),
        }

    def _cover_steps(self, slots: npt.NDArray[np.void]) -> None:
        for stream in np.unique(slots["stream"]).tolist():
            low = slots["position"][slots["stream"] == stream].astype(np.int64)
            near = int(self._nexts[stream]) * self._length
            positions = low + (near - low + POSITIONS_KEPT // 2) // POSITIONS_KEPT * POSITIONS_KEPT
            positions = positions[abs(positions - near) < FARTHEST]  # what stands for a lost step is farther back
            if positions.size:
                first, last = int(positions.min()), int(positions.max()) + 1
                self._cover(stream, max(0, first) // self._length, last // self._length)

    def _cover(self, stream: int, first: int, last: int) -> None:
        known = int(self._firsts[stream])
        self._firsts[stream] = first if known < 0 else min(known, first)
        self._nexts[stream] = max(int(self._nexts[stream]), last + 1)
