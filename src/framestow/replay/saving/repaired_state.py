"""What the state of a generation has to say when some of its blocks are lost."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from framestow.replay.memory_settings import MemorySettings
from framestow.replay.saving.array_file import Arrays
from framestow.replay.saving.examined_generation import ExaminedGeneration
from framestow.replay.saving.moment import NEXT_POSITIONS, OPEN_SEGMENTS, OPEN_SIZES, held_runs
from framestow.storage.storages import make_storage


def repaired_state(examined: ExaminedGeneration) -> Arrays:
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
            for leaf in range(stream, examined.settings.num_frame_streams, examined.settings.num_streams):
                _add_blank_frame(arrays, leaf, examined.settings, examined.manifest.frames_per_segment)
            timeline.begin(np.array([stream], np.int32))
        timeline.is_open[stream] = False
        timeline.episode_starts[stream] = timeline.newest_positions[stream]
    return {**arrays, **timeline.state(stored=set(examined.whole_steps))}


def _add_blank_frame(arrays: Arrays, stream: int, settings: MemorySettings, frames_per_segment: int) -> None:
    """Let the stream of frames, of which no segment is open, go on in a new one."""
    next_position = int(arrays[NEXT_POSITIONS][stream])
    number = next_position // frames_per_segment
    frame = settings.frame.leaf_frames[stream // settings.num_streams]
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
