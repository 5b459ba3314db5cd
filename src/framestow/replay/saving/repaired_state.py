"""A generation without the blocks that are lost: what its state says then, and whether it can be loaded."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.samplers.saved_samplers import MADE
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.saving.array_file import Arrays
from framestow.replay.saving.examined_generation import ExaminedGeneration, examine_generation
from framestow.replay.saving.examined_log import KeptBlocks, LogView
from framestow.replay.saving.moment import NEXT_POSITIONS, OPEN_SEGMENTS, OPEN_SIZES, held_runs
from framestow.replay.saving.saves import built
from framestow.replay.saving.store_reader import StoredMemory
from framestow.storage.storages import make_storage


class RepairedGeneration(NamedTuple):
    """A generation as it is going to be."""

    examined: ExaminedGeneration
    arrays: Arrays
    """Of its state file, without what is lost."""
    num_transitions: int
    """How many a memory has that loads it."""
    lost: int
    """How many more it had when it was written."""
    streams_cut_short: list[int]
    """Streams whose episodes end, since their newest frames are lost."""


def repaired_generation(
    examined: ExaminedGeneration, folder: Path, frames: LogView, steps: LogView
) -> RepairedGeneration:
    """Leave out what is lost, then verify and load what is left, from the blocks of it that are whole.

    Raises ``DamagedDataError`` where that cannot be loaded, ``IncompatibleError`` where there is too little memory for
    it. Packed frames stay in their files meanwhile; others are read into RAM, as when it is loaded.
    """
    cut_short = examined.streams_cut_short()
    arrays, manifest, settings = _repaired_state(examined), examined.manifest, examined.settings
    again = examine_generation(manifest, settings, arrays, frames, steps)
    missing = [*again.lost_steps, *again.lost_segments]
    if missing or again.contradictions:
        lacking = [f"block {number} of stream {stream} is not there" for stream, number in missing]
        raise DamagedDataError("; ".join([*again.contradictions, *lacking]))
    sampler = None if manifest.memory["sampler"]["kind"] in MADE else Uniform()
    parts = built(lambda **_: MemoryParts(settings, sampler), settings, folder)
    kept = KeptBlocks(frames, examined.whole_segments), KeptBlocks(steps, examined.whole_steps)
    StoredMemory(folder, manifest, arrays, *kept).fill(parts, in_files=True)
    num_transitions = len(parts.timeline)
    return RepairedGeneration(examined, arrays, num_transitions, manifest.num_transitions - num_transitions, cut_short)


def _repaired_state(examined: ExaminedGeneration) -> Arrays:
    """The arrays of its state file without what is lost.

    A stream whose newest observation cannot be made any more has its episode closed, since nothing can follow that.
    Where not even its newest frame is there, the stream goes on behind a blank one, which no transition shows. That may
    seal a block of steps; the log lacks it, so it stays in the state.
    """
    arrays = examined.arrays | held_runs(examined.sealed_numbers())
    timeline, held = examined.timeline, examined.held_frames()
    for stream in examined.streams_cut_short():
        newest = timeline.newest_positions[stream : stream + 1]
        if not held.holds(stream, newest, newest)[0]:
            for leaf in range(stream, examined.settings.num_frame_streams, examined.settings.num_envs):
                _add_blank_frame(arrays, leaf, examined.settings, examined.manifest.frames_per_segment)
            timeline.begin(np.array([stream], np.int32))
        timeline.is_open[stream] = False
        timeline.episode_starts[stream] = timeline.newest_positions[stream]
    return {**arrays, **timeline.state(stored=set(examined.whole_steps))}


def _add_blank_frame(arrays: Arrays, stream: int, settings: MemorySettings, frames_per_segment: int) -> None:
    """Let the stream of frames, of which no segment is open, go on in a new one."""
    next_position = int(arrays[NEXT_POSITIONS][stream])
    number = next_position // frames_per_segment
    frame = settings.frame.leaf_frames[stream // settings.num_envs]
    storage = make_storage(settings.storage, frame, 1, frames_per_segment=frames_per_segment)
    storage.begin_at(0, number)
    storage.append(np.zeros(1, np.int32), np.zeros((1, *frame.shape), frame.dtype))
    segment = np.frombuffer(storage.segment(0, number), np.uint8)
    sizes = arrays[OPEN_SIZES].copy()
    before: npt.NDArray[np.int64] = np.cumsum(sizes) - sizes
    arrays[OPEN_SEGMENTS] = np.insert(arrays[OPEN_SEGMENTS], int(before[stream]), segment)
    sizes[stream] = len(segment)
    positions = arrays[NEXT_POSITIONS].copy()
    positions[stream] += 1
    arrays[OPEN_SIZES], arrays[NEXT_POSITIONS] = sizes, positions
