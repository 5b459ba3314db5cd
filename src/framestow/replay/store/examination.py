"""A store gone through from end to end: manifests, states, every byte of the logs, and each generation by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.step_fields import slot_record
from framestow.replay.store.blocks import ExaminedLog, HeldFrames, LogView, SegmentCheck, StepsCheck, contradictions
from framestow.replay.store.format import FRAMES, KIND, STEPS, Manifest, checked_manifest, checked_settings
from framestow.replay.store.snapshot import (
    HELD_RUNS,
    NEXT_POSITIONS,
    OPEN_SEGMENTS,
    OPEN_SIZES,
    RUN_COUNTS,
    Arrays,
    generations_by_state,
    held_runs,
    manifest_in_state,
    unpack_arrays,
)
from framestow.replay.timelines.ring_timeline import STEPS_PER_BLOCK
from framestow.replay.timelines.timeline import EPISODE_KEYS, Timeline, slots_to_arrays
from framestow.replay.timelines.timelines import make_timeline
from framestow.storage.files.block_format import BlockKey
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import generations, manifest_path, read_checked

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
        for name in EPISODE_KEYS:  # the steps tell them when it is loaded
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
            **slots_to_arrays(np.concatenate([np.zeros(0, self._record), *in_state])),
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


Progress = Callable[[int, int], None]
"""Is told how many bytes were gone through, and of how many."""


class Finding(NamedTuple):
    """Something that is not as it was written."""

    file: Path
    offset: int | None
    """Where in the file; None where it is about the whole of it."""
    message: str
    transitions: int | None
    """How many transitions of the newest readable generation it costs; None where that cannot be said of it alone."""

    @property
    def what(self) -> str:
        """The message without the name of the file and the way out."""
        told = self.message.removeprefix(f"{self.file}: ")
        return told.rpartition("; ")[0] or told


class ExaminedStore:
    """Everything that verification tells and repair goes by. Close it in the end.

    ``manifests`` are the whole ones that stay, oldest first; ``generations`` those of them whose state is whole too.
    """

    def __init__(self, folder: Path, files: FileSystem = DISK, progress: Progress = lambda _done, _all: None) -> None:
        self.folder, self._disk, self._progress = folder, files, progress
        self.findings: list[Finding] = []
        self.recovered: list[int] = []
        """Generations whose manifests are damaged, and told by their state files."""
        self.manifests = self._kept_manifests()
        self.generations: list[ExaminedGeneration] = []
        self.logs: dict[str, ExaminedLog] = {}
        self._views: dict[int, dict[str, LogView]] = {}
        self.num_bytes = self._done = self._to_do = 0
        if self.manifests:
            # All is opened before the long reading: a writer may remove what it needs no more, not what is open.
            self._states = {manifest.generation: self._state(manifest) for manifest in self.manifests}
            for name in (FRAMES, STEPS):
                states = [getattr(manifest, name) for manifest in self.manifests]
                self.logs[name] = ExaminedLog(folder, name, states, files)
            self._views = {manifest.generation: self._opened_views(manifest) for manifest in self.manifests}
            self._examine_logs()
            for manifest in self.manifests:
                self._examine_generation(manifest)
            self._progress(self._to_do, self._to_do)

    def salvage(self) -> None:
        """Where no generation can be read, make the newest one anew by its manifest and the logs.

        Raises ``DamagedDataError`` where there is no manifest either: then nothing tells what the memory was.
        """
        if not self.manifests:
            raise DamagedDataError(
                f"{self.folder}: every manifest and every state file is damaged or gone, so nothing tells what the "
                "memory was; take an older save"
            )
        self._examine_generation(self.manifests[-1], has_state=False)
        if self.newest is None:
            raise DamagedDataError(self.findings[-1].message)

    def views(self, generation: int) -> tuple[LogView, LogView]:
        """What that generation has of the logs of frames and of steps."""
        views = self._views[generation]
        return views[FRAMES], views[STEPS]

    @property
    def newest(self) -> ExaminedGeneration | None:
        """The newest generation that can be read."""
        return self.generations[-1] if self.generations else None

    def close(self) -> None:
        """Close the files."""
        for log in self.logs.values():
            log.close()
        for views in self._views.values():
            for view in views.values():
                view.close()

    def __enter__(self) -> ExaminedStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _kept_manifests(self) -> list[Manifest]:
        """The newest whole manifest, and the older ones that stay beside it; others are what a crash left."""
        self.there = generations(self.folder, self._disk)
        there = self.there or generations_by_state(self.folder, self._disk)
        if not there:
            raise FileNotFoundError(f"{self.folder}: no {KIND} was saved in this folder; give the folder of one")
        newest: Manifest | None = None
        kept: list[Manifest] = []
        for number in reversed(there):
            if newest is not None and newest.generation == there[-1] and number not in newest.kept:
                continue
            manifest = self._manifest(number)
            if manifest and (newest is None or manifest.is_pinned or number in newest.kept):
                newest = newest or manifest
                kept.append(manifest)
        return kept[::-1]

    def _manifest(self, number: int) -> Manifest | None:
        """The manifest of a generation, by its state file where it is damaged; None where both are."""
        try:
            return checked_manifest(self.folder, number, self._disk)
        except (DamagedDataError, FileNotFoundError) as error:
            recovered = manifest_in_state(self.folder, number, self._disk)
            cost = None if recovered is None else 0
            self.findings.append(Finding(manifest_path(self.folder, number), None, str(error), cost))
            self.recovered += [number] if recovered else []
            return recovered

    def _opened_views(self, manifest: Manifest) -> dict[str, LogView]:
        return {name: log.view(getattr(manifest, name)) for name, log in self.logs.items()}

    def _examine_logs(self) -> None:
        newest = self.manifests[-1]
        settings = checked_settings(newest.memory, str(manifest_path(self.folder, newest.generation)))
        in_logs = sum(file["bytes"] for log in self.logs.values() for file in log.union["files"])
        self.num_bytes = in_logs + sum(manifest.state["bytes"] for manifest in self.manifests)
        self._to_do = 2 * in_logs  # once for its bytes, once for what they mean
        self.logs[FRAMES].examine(SegmentCheck(settings, newest.frames_per_segment), self._advance)
        self.logs[STEPS].examine(StepsCheck(settings), self._advance)

    def _examine_generation(self, manifest: Manifest, *, has_state: bool = True) -> None:
        views = self._views[manifest.generation]
        path = self.folder / manifest.state["name"]
        try:
            settings = checked_settings(manifest.memory, str(manifest_path(self.folder, manifest.generation)))
            if has_state:
                arrays = self._arrays(manifest)
            else:
                rebuilt = RebuiltState(settings, manifest.frames_per_segment)
                arrays = rebuilt.arrays(views[FRAMES].whole_keys(), views[STEPS])
            generation = examine_generation(manifest, settings, arrays, views[FRAMES], views[STEPS])
        except DamagedDataError as error:
            self.findings.append(Finding(path, None, str(error), None))
        else:
            self.generations.append(generation)
            told = [*generation.contradictions, *self._unexplained(generation)]
            self.findings += [Finding(path, None, f"{path}: {what}", None) for what in told]

    def _unexplained(self, generation: ExaminedGeneration) -> Iterator[str]:
        """Blocks that a generation needs and that are not there, although its log has no damage that tells why."""
        for name, lost in ((FRAMES, generation.lost_segments), (STEPS, generation.lost_steps)):
            for key in lost:
                if not self.logs[name].explains(key):
                    yield f"block {key.number} of stream {key.stream} is in none of the files of its {name}"

    def _state(self, manifest: Manifest) -> bytes | DamagedDataError:
        """The content of its state file, or why that cannot be had."""
        try:
            return read_checked(self.folder, manifest.state, self._disk)
        except DamagedDataError as error:
            return error

    def _arrays(self, manifest: Manifest) -> Arrays:
        state = self._states[manifest.generation]
        if isinstance(state, DamagedDataError):
            raise state
        return unpack_arrays(state, str(self.folder / manifest.state["name"]))

    def _advance(self, num_bytes: int) -> None:
        self._done += num_bytes
        self._progress(self._done, self._to_do)
