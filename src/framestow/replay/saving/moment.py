"""What a memory is at one moment: copied under its lock, in a time that does not depend on how much it holds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.replay.memory_parts import MemoryParts
from framestow.replay.saving.array_file import Arrays

OPEN_SEGMENTS, OPEN_SIZES = "frames.open_segments", "frames.open_sizes"
NEXT_POSITIONS, HELD_RUNS, RUN_COUNTS = "frames.next_positions", "frames.held_runs", "frames.run_counts"


class Moment(NamedTuple):
    """Everything of a memory but its sealed segments of frames and its sealed blocks of steps."""

    memory: dict[str, Any]
    """What ``MemoryParts.state`` gave."""
    arrays: Arrays
    """Those of the timeline, those of the sampler, whose names begin with ``sampler.``, and of the storage::

        frames.next_positions   one a stream of frames (``MemorySettings.num_frame_streams``)
        frames.open_sizes       bytes of each one's open segment
        frames.open_segments    those, one behind the other
    """
    num_transitions: int


def take_moment(parts: MemoryParts) -> Moment:
    """Copy what is small; hold ``parts.lock``."""
    storage, streams = parts.storage, range(parts.settings.num_frame_streams)
    open_segments = [_open_segment(parts, stream) for stream in streams]
    arrays: Arrays = {name: np.array(array) for name, array in parts.timeline.state().items()}
    arrays[NEXT_POSITIONS] = np.array([storage.held(stream).stop for stream in streams], np.int64)
    arrays[OPEN_SIZES] = np.array([len(segment) for segment in open_segments], np.int64)
    arrays[OPEN_SEGMENTS] = np.frombuffer(b"".join(open_segments), np.uint8)
    memory, sampler_arrays = parts.state()
    return Moment(memory, arrays | sampler_arrays, len(parts.timeline))


def _open_segment(parts: MemoryParts, stream: int) -> bytes:
    """The packed frames of the segment of ``stream`` that is being filled; none where it has none yet."""
    number, held = parts.storage.open_segment(stream), parts.storage.held(stream)
    has_frames = held.stop > number * parts.storage.frames_per_segment
    return parts.storage.segment(stream, number) if has_frames else b""


def held_runs(numbers: list[npt.NDArray[np.int64]]) -> Arrays:
    """Which sealed segments each stream holds: runs of consecutive numbers, as arrays of the state file.

    >>> arrays = held_runs([np.array([3, 4, 5, 9]), np.array([], np.int64)])
    >>> arrays["frames.held_runs"].tolist(), arrays["frames.run_counts"].tolist()
    ([[3, 5], [9, 9]], [2, 0])
    """
    runs = [_runs_of(of_stream) for of_stream in numbers]
    return {HELD_RUNS: np.concatenate(runs), RUN_COUNTS: np.array([len(of_stream) for of_stream in runs], np.int64)}


def _runs_of(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if not len(numbers):
        return np.empty((0, 2), np.int64)
    borders = np.flatnonzero(np.diff(numbers) != 1)
    return np.stack([numbers[np.append(0, borders + 1)], numbers[np.append(borders, len(numbers) - 1)]], axis=1)
