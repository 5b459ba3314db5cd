"""The state of a generation made anew from its logs alone: what is in whole segments with their steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.replay.columns import slot_record
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.saving.array_file import Arrays
from framestow.replay.saving.examined_log import LogView
from framestow.replay.saving.moment import NEXT_POSITIONS, OPEN_SEGMENTS, OPEN_SIZES, held_runs
from framestow.replay.timelines.ring_timeline import STEPS_PER_BLOCK
from framestow.replay.timelines.saved_steps import OF_EPISODES, arrays_of
from framestow.replay.timelines.timelines import make_timeline
from framestow.storage.files.block_format import BlockKey

POSITIONS_KEPT = 2**32  # slots have the low 32 bits of a position
FARTHEST = 2**30  # frames from a stream's newest one to any that it holds

TAKEN = 4  # flag of a slot in which there is a step; the last frame of an episode starts none

Slots = npt.NDArray[Any]  # of slot_record


class RebuiltState:
    """Makes the arrays of a state file from the blocks that are there.

    What was only in the state is lost: open segments, steps of no full block, the open episodes. So every stream goes
    on with a new segment behind its newest step or frame, and all of its episodes are closed. Segments that are not
    there are named where steps might look at them; whoever goes through them takes those steps out of the draw.
    """

    def __init__(self, settings: MemorySettings, frames_per_segment: int) -> None:
        self._settings, self._length = settings, frames_per_segment
        self._record = slot_record(settings.num_envs, settings.action, settings.extras)
        self._firsts = np.full(settings.num_envs, -1, np.int64)  # number of the first segment of each stream
        self._nexts = np.zeros(settings.num_envs, np.int64)  # and of the one behind its last

    def arrays(self, segments: Iterable[BlockKey], steps: LogView) -> Arrays:
        """Give the arrays for these segments and the blocks of steps that are whole."""
        whole = self._whole_in_all_leaves(segments)
        empty = make_timeline(self._settings, self._length).state()
        for name in OF_EPISODES:  # the steps tell them when it is loaded
            del empty[name]
        of_steps = self._of_blocks(whole, steps) if self._settings.retention == "random" else self._of_ring(steps)
        runs = [
            np.arange(first, after) if first >= 0 else np.empty(0, np.int64)
            for first, after in zip(self._firsts.tolist(), self._nexts.tolist(), strict=True)
        ]
        num_leaves = len(self._settings.frame.leaf_frames)
        newest = self._nexts * self._length - 1
        of_streams: Arrays = {
            "timeline.newest_positions": newest,
            "timeline.episode_starts": np.maximum(newest, 0),
        }
        of_frames: Arrays = {
            NEXT_POSITIONS: np.tile(self._nexts * self._length, num_leaves),
            OPEN_SIZES: np.zeros(self._settings.num_frame_streams, np.int64),
            OPEN_SEGMENTS: np.empty(0, np.uint8),
        }
        return empty | of_steps | of_streams | of_frames | held_runs(runs * num_leaves)

    def _whole_in_all_leaves(self, segments: Iterable[BlockKey]) -> set[BlockKey]:
        """Cover every segment that is there; give those of which no leaf is missing, by the streams of steps."""
        there = set(segments)
        num_streams, num_all = self._settings.num_envs, self._settings.num_frame_streams
        for stream, number in there:
            self._cover(stream % num_streams, number, number)
        return {
            key
            for key in there
            if key.stream < num_streams
            and all(BlockKey(leaf, key.number) in there for leaf in range(key.stream, num_all, num_streams))
        }

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

    def _of_blocks(self, whole: set[BlockKey], steps: LogView) -> Arrays:
        """Where a block of steps belongs to each segment: the newest that fit the capacity, numbered anew.

        Nothing tells of a block that is still there whether it had left the memory. One that steps to come may look
        at, such as each stream's newest, stands in the state itself.
        """
        there = {key for key in steps.whole_keys() if key in whole}
        for key in there:
            if self._slots_of(key, steps)["flags"][-1] & TAKEN:  # which led to the first frame of the next segment
                self._cover(key.stream, key.number, key.number + 1)
        newest = {BlockKey(stream, after - 1) for stream, after in enumerate(self._nexts.tolist()) if after}
        chosen: list[tuple[BlockKey, Slots]] = []
        room = self._settings.capacity
        none = np.zeros(self._length, self._record)
        for key in sorted(there | newest, key=lambda key: (key.number, key.stream), reverse=True):
            slots = self._slots_of(key, steps) if key in there else none  # steps of frames that are lost
            room -= int((slots["flags"] & TAKEN > 0).sum())
            if room >= 0 or key in newest:
                chosen.append((key, slots))
        chosen.reverse()
        streams, segments = (np.array([key[part] for key, _ in chosen], np.int64) for part in (0, 1))
        is_sealed = (segments + 1) * self._length <= self._nexts[streams] * self._length - self._settings.stack
        in_state = [slots for (_, slots), sealed in zip(chosen, is_sealed, strict=True) if not sealed]
        return {
            "blocks.numbers": np.arange(len(chosen)),
            "blocks.streams": streams,
            "blocks.segments": segments,
            "blocks.num_steps": np.array([(slots["flags"] & TAKEN > 0).sum() for _, slots in chosen], np.int64),
            "blocks.are_sealed": is_sealed,
            "blocks.next_number": np.array([len(chosen)]),
            **arrays_of(np.concatenate([np.zeros(0, self._record), *in_state])),
        }

    def _slots_of(self, key: BlockKey, steps: LogView) -> Slots:
        """The slots of a block that is whole."""
        return np.frombuffer(steps.read(key) or b"", self._record)

    def _cover_steps(self, slots: Slots) -> None:
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
