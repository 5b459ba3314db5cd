"""One generation of a store gone through: what it refers to, what of that is whole, and what can still be drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.saving.array_file import Arrays
from framestow.replay.saving.block_checks import SegmentCheck
from framestow.replay.saving.examined_log import LogView
from framestow.replay.saving.moment import HELD_RUNS, NEXT_POSITIONS, OPEN_SEGMENTS, OPEN_SIZES, RUN_COUNTS
from framestow.replay.saving.step_contradictions import HeldFrames, contradictions
from framestow.replay.saving.store_format import Manifest
from framestow.replay.timelines.ring_timeline import STEPS_PER_BLOCK
from framestow.replay.timelines.timeline import Timeline
from framestow.replay.timelines.timelines import make_timeline
from framestow.storage.files.block_format import BlockKey

Numbers = npt.NDArray[np.int64]


LONG_AGO = -(2**40)  # a position before all


@dataclass
class ExaminedGeneration:
    """What can still be drawn of one generation, and what of its blocks is whole.

    A transition costs one however many of its frames are lost; whatever is found first is what costs it, blocks of
    steps before frames.
    """

    manifest: Manifest
    settings: MemorySettings
    timeline: Timeline
    """Its steps, with those taken out of the draw that cannot be read any more."""
    arrays: Arrays
    """What its state file holds."""
    whole_steps: list[BlockKey] = field(default_factory=list)
    whole_segments: list[BlockKey] = field(default_factory=list)
    lost_steps: dict[BlockKey, int] = field(default_factory=dict)
    """Blocks of steps that cannot be read, each with the transitions that it costs."""
    lost_segments: dict[BlockKey, int] = field(default_factory=dict)
    """Segments that cannot be read, likewise."""
    contradictions: list[str] = field(default_factory=list)
    """What cannot be although every byte is as it was written."""

    @property
    def lost(self) -> int:
        """How many transitions could be drawn when it was written and cannot now."""
        return self.manifest.num_transitions - len(self.timeline)

    def streams_cut_short(self) -> list[int]:
        """Streams whose newest observation cannot be made again, since frames of it are lost."""
        timeline, held, depth = self.timeline, self.held_frames(), self.settings.stack
        cut = []
        for stream, newest in enumerate(timeline.newest_positions.tolist()):
            first = max(int(timeline.episode_starts[stream]), newest - depth + 1)
            if newest >= 0 and not held.holds(stream, np.array([first]), np.array([newest]))[0]:
                cut.append(stream)
        return cut

    def sealed_numbers(self) -> list[Numbers]:
        """By stream of frames, the numbers of the sealed segments that are whole."""
        numbers: list[list[int]] = [[] for _ in range(self.settings.num_frame_streams)]
        for stream, number in self.whole_segments:
            numbers[stream].append(number)
        return [np.array(of_stream, np.int64) for of_stream in numbers]

    def held_frames(self) -> HeldFrames:
        """Which frames are there."""
        return HeldFrames(
            self.manifest.frames_per_segment,
            self.sealed_numbers(),
            self.arrays[NEXT_POSITIONS],
            self.arrays[OPEN_SIZES] > 0,
            self.settings.num_envs,
        )


def examine_generation(
    manifest: Manifest, settings: MemorySettings, arrays: Arrays, frames: LogView, steps: LogView
) -> ExaminedGeneration:
    """Take out of the draw what cannot be read any more, and look whether all else fits together.

    Raises ``DamagedDataError`` for a state that cannot have been written so.
    """
    timeline = make_timeline(settings, manifest.frames_per_segment)
    examined = ExaminedGeneration(manifest, settings, timeline, arrays)
    try:
        timeline.restore(arrays, lambda key: _read_steps(examined, steps, BlockKey(*key)))
        _lose_segments(examined, frames)
        examined.contradictions += _contradictions_of_open_segments(examined)
        examined.contradictions += contradictions(timeline, examined.held_frames(), settings.stack)
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise DamagedDataError(f"what it holds does not fit together ({error})") from error
    return examined


def segments_of(arrays: Arrays) -> Iterator[BlockKey]:
    """The sealed segments that a generation holds, by stream of frames and number."""
    streams = np.repeat(np.arange(len(arrays[RUN_COUNTS])), arrays[RUN_COUNTS])
    for stream, (first, last) in zip(streams.tolist(), arrays[HELD_RUNS].tolist(), strict=True):
        yield from (BlockKey(stream, number) for number in range(first, last + 1))


def first_positions(arrays: Arrays, frames_per_segment: int) -> list[int]:
    """Of each stream of frames, the position of the first one that is held."""
    firsts = arrays[NEXT_POSITIONS] // frames_per_segment
    for key in segments_of(arrays):
        firsts[key.stream] = min(firsts[key.stream], key.number)
    return [int(first) for first in firsts * frames_per_segment]


def _read_steps(examined: ExaminedGeneration, steps: LogView, key: BlockKey) -> bytes | None:
    block = steps.read(key)
    if block is None:
        examined.lost_steps[key] = _drawable_steps(examined.arrays, key, examined.manifest.frames_per_segment)
    else:
        examined.whole_steps.append(key)
    return block


def _drawable_steps(arrays: Arrays, key: BlockKey, frames_per_segment: int) -> int:
    """How many steps of a sealed block could be drawn, as the state has it that the timeline gave."""
    if "blocks.numbers" in arrays:  # random retention
        row = (arrays["blocks.streams"] == key.stream) & (arrays["blocks.segments"] == key.number)
        count, length = int(arrays["blocks.num_steps"][row].sum()), frames_per_segment
        first = int(arrays["blocks.numbers"][row].sum()) * length
    else:
        count = length = STEPS_PER_BLOCK
        first = key.number * length
    lost = np.searchsorted(arrays["timeline.lost"], [first, first + length])
    return count - int(lost[1] - lost[0])


def _lose_segments(examined: ExaminedGeneration, frames: LogView) -> None:
    length, num_streams = examined.manifest.frames_per_segment, examined.settings.num_envs
    for key in segments_of(examined.arrays):
        if frames.whole_place(key):
            examined.whole_segments.append(key)
        else:
            first = key.number * length
            examined.lost_segments[key] = examined.timeline.lose(key.stream % num_streams, first, first + length)
    for stream, first in enumerate(first_positions(examined.arrays, length)):
        examined.timeline.lose(stream % num_streams, LONG_AGO, first)  # nothing in a state that was written


def _contradictions_of_open_segments(examined: ExaminedGeneration) -> Iterator[str]:
    """What is wrong with the segments that were being filled, which lie in the state."""
    length = examined.manifest.frames_per_segment
    check = SegmentCheck(examined.settings, length)
    arrays, start = examined.arrays, 0
    for stream, (size, stop) in enumerate(
        zip(arrays[OPEN_SIZES].tolist(), arrays[NEXT_POSITIONS].tolist(), strict=True)
    ):
        key = BlockKey(stream, stop // length)
        segment = arrays[OPEN_SEGMENTS][start : start + size].tobytes()
        start += size
        contradiction = check.contradiction(key, segment, range(key.number * length, stop)) if size else None
        if contradiction:
            yield f"the open segment of stream {stream}: {contradiction}"
