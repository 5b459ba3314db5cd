"""Verify a whole store: manifests, state files, every byte of the logs, and each generation by itself.

``VerifiedStore`` lists all findings and the generations that can still be loaded. ``VerifiedGeneration`` has the steps
of one generation without those whose frames are lost. ``RebuiltState`` replaces a lost state file from the logs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.closing import Closing
from framestow.errors import DamagedDataError
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.step_fields import TAKEN, slot_record
from framestow.replay.steps.ring_steps import STEPS_PER_BLOCK
from framestow.replay.steps.step_store import EPISODE_KEYS, StepStore, slots_to_arrays
from framestow.replay.steps.step_stores import make_step_store
from framestow.replay.store.folder_contents import FolderContents, manifest_in_state
from framestow.replay.store.format import FRAMES, KIND, STEPS, Manifest, read_checked_manifest, read_settings
from framestow.replay.store.snapshot import (
    NEXT_POSITIONS,
    OPEN_SEGMENTS,
    OPEN_SIZES,
    Arrays,
    iterate_sealed_segments,
    segment_runs,
    unpack_arrays,
)
from framestow.replay.store.verified_log import (
    LogView,
    SegmentCheck,
    StepsCheck,
    StoredFrames,
    VerifiedLog,
    step_problems,
)
from framestow.storage.files.block_format import BlockKey, pack_keys, repair_hint
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import manifest_path, read_checked

Numbers = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]
"""Called with the number of bytes read so far and the total."""


class Finding(NamedTuple):
    """One place where a store differs from what framestow wrote."""

    file: Path
    offset: int | None
    """Offset in the file; ``None`` if the finding concerns the whole file."""
    message: str
    transitions: int | None
    """Transitions of the newest readable generation that it costs; ``None`` if unknown for it alone."""

    @property
    def what(self) -> str:
        """The message without the name of the file and the way out."""
        message = self.message.removeprefix(f"{self.file}: ")
        return message.rpartition("; ")[0] or message


class VerifiedStore(Closing):
    """All findings of a store, and the generations that a repair can keep. Close it after use.

    ``manifests`` are the intact manifests of generations that stay, oldest first. ``generations`` are those of them
    with an intact state file.
    """

    def __init__(self, folder: Path, files: FileSystem = DISK, progress: Progress = lambda _done, _all: None) -> None:
        self.folder, self._disk, self._progress = folder, files, progress
        self.findings: list[Finding] = []
        self.recovered: list[int] = []
        """Generations whose damaged manifests were rebuilt from their state files."""
        self.manifests = self._read_manifests()
        self.generations: list[VerifiedGeneration] = []
        self.logs: dict[str, VerifiedLog] = {}  # by name, with the blocks that any generation names
        # By generation and name of the log, the blocks that this generation names.
        self._views: dict[int, dict[str, LogView]] = {}
        # Bytes of all committed files, and for ``progress`` the bytes done and to do. A log's bytes count twice.
        self.num_bytes = self._done = self._to_do = 0
        if self.manifests:
            # Open all files first: a concurrent writer may remove files, but open files stay readable.
            self._states = {manifest.generation: self._state(manifest) for manifest in self.manifests}
            for name in (FRAMES, STEPS):
                states = [getattr(manifest, name) for manifest in self.manifests]
                self.logs[name] = VerifiedLog(folder, name, states, files)
            self._views = {manifest.generation: self._open_views(manifest) for manifest in self.manifests}
            self._verify_logs()
            for manifest in self.manifests:
                self._verify_generation(manifest)
            self._progress(self._to_do, self._to_do)

    def salvage(self) -> None:
        """Rebuild the newest generation from its manifest and the logs, if no generation can be read.

        Raises:
            DamagedDataError: every manifest is lost too, so that the settings of the memory are unknown.
        """
        if not self.manifests:
            raise DamagedDataError(
                f"{self.folder}: every manifest and every state file is damaged or missing, so the settings of the "
                "memory are unknown; load an older save"
            )
        try:
            self._add_generation(self._rebuild(self.manifests[-1]))
        except DamagedDataError as error:
            raise DamagedDataError(
                f"{self.folder}: no generation can be rebuilt from the logs ({error}); load an older save"
            ) from error

    def rebuild(self) -> VerifiedGeneration | None:
        """Return what ``salvage`` would add; ``None`` if it would raise."""
        if not self.manifests:
            return None
        try:
            return self._rebuild(self.manifests[-1])
        except DamagedDataError:
            return None

    def views(self, generation: int) -> tuple[LogView, LogView]:
        """Return the views of a generation on the logs of frames and of steps."""
        views = self._views[generation]
        return views[FRAMES], views[STEPS]

    @property
    def newest(self) -> VerifiedGeneration | None:
        """The newest generation that can be read, or ``None``."""
        return self.generations[-1] if self.generations else None

    def close(self) -> None:
        """Close the files."""
        for log in self.logs.values():
            log.close()
        for views in self._views.values():
            for view in views.values():
                view.close()

    def _read_manifests(self) -> list[Manifest]:
        """Return the newest intact manifest and the older ones that it keeps. Ignore leftovers of a crash."""
        contents = FolderContents(self.folder, self._disk)
        self.numbers_at_start = contents.manifests.generations
        numbers = sorted({*self.numbers_at_start, *contents.list_lost()})
        numbers = numbers or contents.list_states()
        if not numbers:
            unnamed = contents.list_unnamed()
            if not unnamed:
                raise FileNotFoundError(f"{self.folder}: no {KIND} was saved in this folder; give the folder of one")
            path = self.folder / unnamed[0]
            message = f"{path}: no manifest and no state file says what memory it is of; load an older save"
            self.findings.append(Finding(path, None, message, None))
        newest: Manifest | None = None
        kept: list[Manifest] = []
        for number in reversed(numbers):
            if newest is not None and newest.generation == numbers[-1] and number not in newest.kept:
                continue
            manifest = self._manifest(number)
            if manifest and (newest is None or manifest.is_pinned or number in newest.kept):
                newest = newest or manifest
                kept.append(manifest)
        return kept[::-1]

    def _manifest(self, number: int) -> Manifest | None:
        """Return the manifest of a generation, rebuilt from its state file if damaged; ``None`` if both are lost."""
        try:
            return read_checked_manifest(self.folder, number, self._disk)
        except (DamagedDataError, FileNotFoundError) as error:
            recovered = manifest_in_state(self.folder, number, self._disk)
            cost = None if recovered is None else 0
            self.findings.append(Finding(manifest_path(self.folder, number), None, str(error), cost))
            self.recovered += [number] if recovered else []
            return recovered

    def _open_views(self, manifest: Manifest) -> dict[str, LogView]:
        return {name: log.view(getattr(manifest, name)) for name, log in self.logs.items()}

    def _verify_logs(self) -> None:
        newest = self.manifests[-1]
        settings = self._settings(newest)
        in_logs = sum(file["bytes"] for log in self.logs.values() for file in log.union["files"])
        self.num_bytes = in_logs + sum(manifest.state["bytes"] for manifest in self.manifests)
        self._to_do = 2 * in_logs  # one pass over the bytes, one over the blocks
        self.logs[FRAMES].verify(SegmentCheck(settings, newest.frames_per_segment), self._advance)
        self.logs[STEPS].verify(StepsCheck(settings), self._advance)

    def _verify_generation(self, manifest: Manifest) -> None:
        try:
            arrays = self._arrays(manifest)
            generation = verify_generation(manifest, self._settings(manifest), arrays, *self.views(manifest.generation))
        except DamagedDataError as error:
            self.findings.append(Finding(self.folder / manifest.state["name"], None, str(error), None))
        else:
            self._add_generation(generation)

    def _rebuild(self, manifest: Manifest) -> VerifiedGeneration:
        """Return a generation whose state is rebuilt from the logs."""
        settings, (frames, steps) = self._settings(manifest), self.views(manifest.generation)
        arrays = RebuiltState(settings, manifest.frames_per_segment).arrays(frames.intact_keys(), steps)
        return verify_generation(manifest, settings, arrays, frames, steps)

    def _add_generation(self, generation: VerifiedGeneration) -> None:
        self.generations.append(generation)
        path = self.folder / generation.manifest.state["name"]
        problems = [*generation.problems, *self._find_unexplained(generation)]
        self.findings += [Finding(path, None, f"{path}: {problem}", None) for problem in problems]

    def _settings(self, manifest: Manifest) -> MemorySettings:
        return read_settings(manifest.memory, str(manifest_path(self.folder, manifest.generation)))

    def _find_unexplained(self, generation: VerifiedGeneration) -> Iterator[str]:
        """Yield blocks that a generation needs and its log lacks, although no known damage explains it."""
        for name, lost in ((FRAMES, generation.lost_segments), (STEPS, generation.lost_steps)):
            for key in lost:
                if not self.logs[name].explains_loss(key):
                    yield f"block {key.number} of track {key.track} is missing in the log of {name}"

    def _state(self, manifest: Manifest) -> bytes | DamagedDataError:
        """Return the content of a state file, or the error of reading it."""
        try:
            return read_checked(self.folder, manifest.state, self._disk, way_out=repair_hint(self.folder))
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


@dataclass
class VerifiedGeneration:
    """The transitions of one generation that can still be read, and its intact blocks.

    A lost transition is counted once, however many of its frames are lost. Lost blocks of steps are counted before lost
    frames.
    """

    manifest: Manifest
    settings: MemorySettings
    stored_steps: StepStore
    """Its steps; the transitions with lost frames are not sampleable."""
    arrays: Arrays
    """Arrays of its state file."""
    intact_steps: list[BlockKey] = field(default_factory=list)  # blocks of steps that can be read
    intact_segments: list[BlockKey] = field(default_factory=list)  # sealed segments that can be read
    lost_steps: dict[BlockKey, int] = field(default_factory=dict)
    """Damaged or missing blocks of steps, each with the number of transitions that it costs."""
    lost_segments: dict[BlockKey, int] = field(default_factory=dict)
    """Damaged or missing segments, each with the number of transitions that it costs."""
    problems: list[str] = field(default_factory=list)
    """Inconsistencies although every checksum is right."""

    @property
    def lost(self) -> int:
        """Number of transitions that were sampleable when it was written and are not now."""
        return self.manifest.num_transitions - len(self.stored_steps)

    def envs_cut_short(self) -> list[int]:
        """Return the tracks whose newest observation lacks a frame."""
        stored_steps, frames, stack = self.stored_steps, self.index_frames(), self.settings.stack
        cut = []
        for track, newest in enumerate(stored_steps.newest_positions.tolist()):
            first = max(int(stored_steps.run_starts[track]), newest - stack + 1)
            if newest >= 0 and not frames.contain(track, np.array([first]), np.array([newest]))[0]:
                cut.append(track)
        return cut

    def list_sealed_numbers(self) -> list[Numbers]:
        """Return for each track of frames the numbers of its intact sealed segments."""
        numbers: list[list[int]] = [[] for _ in range(self.settings.num_tracks)]
        for track, number in self.intact_segments:
            numbers[track].append(number)
        return [np.array(of_track, np.int64) for of_track in numbers]

    def index_frames(self) -> StoredFrames:
        """Return an index of the frames that are stored."""
        return StoredFrames(
            self.manifest.frames_per_segment,
            self.list_sealed_numbers(),
            self.arrays[NEXT_POSITIONS],
            self.arrays[OPEN_SIZES] > 0,
            self.settings.num_envs,
        )


def verify_generation(
    manifest: Manifest, settings: MemorySettings, arrays: Arrays, frames: LogView, steps: LogView
) -> VerifiedGeneration:
    """Check a generation against the intact blocks; make transitions with lost frames unsampleable.

    Raises:
        DamagedDataError: the state is inconsistent in itself.
    """
    stored_steps = make_step_store(settings, manifest.frames_per_segment)
    verified = VerifiedGeneration(manifest, settings, stored_steps, arrays)
    try:
        stored_steps.restore(arrays, lambda key: _read_steps(verified, steps, BlockKey(*key)))
        _remove_lost_segments(verified, frames)
        verified.problems += _open_segment_problems(verified)
        verified.problems += step_problems(stored_steps, verified.index_frames(), settings.stack)
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise DamagedDataError(f"its content is inconsistent ({error})") from error
    return verified


def first_positions(arrays: Arrays, frames_per_segment: int) -> list[int]:
    """Return for each track of frames the position of its first stored frame."""
    firsts = arrays[NEXT_POSITIONS] // frames_per_segment
    for key in iterate_sealed_segments(arrays):
        firsts[key.track] = min(firsts[key.track], key.number)
    return [int(first) for first in firsts * frames_per_segment]


def _read_steps(verified: VerifiedGeneration, steps: LogView, key: BlockKey) -> bytes | None:
    block = steps.read(key)
    if block is None:
        verified.lost_steps[key] = _num_sampleable(verified.arrays, key, verified.manifest.frames_per_segment)
    else:
        verified.intact_steps.append(key)
    return block


def _num_sampleable(arrays: Arrays, key: BlockKey, frames_per_segment: int) -> int:
    """Return how many steps of a sealed block were sampleable, according to the state of the step store."""
    if "blocks.numbers" in arrays:  # random retention
        row = (arrays["blocks.env_ids"] == key.track) & (arrays["blocks.segments"] == key.number)
        count, length = int(arrays["blocks.num_steps"][row].sum()), frames_per_segment
        first = int(arrays["blocks.numbers"][row].sum()) * length
    else:
        count = length = STEPS_PER_BLOCK
        first = key.number * length
    lost = np.searchsorted(arrays["steps.lost"], [first, first + length])
    return count - int(lost[1] - lost[0])


BEFORE_ALL_POSITIONS = -(2**40)  # below every position that a store can have


def _remove_lost_segments(verified: VerifiedGeneration, frames: LogView) -> None:
    length, num_envs = verified.manifest.frames_per_segment, verified.settings.num_envs
    for key in iterate_sealed_segments(verified.arrays):
        if frames.find_intact(key):
            verified.intact_segments.append(key)
        else:
            first = key.number * length
            verified.lost_segments[key] = verified.stored_steps.lose(key.track % num_envs, first, first + length)
    for track, first in enumerate(first_positions(verified.arrays, length)):
        # Only a damaged state has steps before the first frame.
        verified.stored_steps.lose(track % num_envs, BEFORE_ALL_POSITIONS, first)


def _open_segment_problems(verified: VerifiedGeneration) -> Iterator[str]:
    """Yield the problems of the open segments, which the state file contains."""
    length = verified.manifest.frames_per_segment
    check = SegmentCheck(verified.settings, length)
    arrays, start = verified.arrays, 0
    for track, (size, stop) in enumerate(
        zip(arrays[OPEN_SIZES].tolist(), arrays[NEXT_POSITIONS].tolist(), strict=True)
    ):
        key = BlockKey(track, stop // length)
        segment = arrays[OPEN_SEGMENTS][start : start + size].tobytes()
        start += size
        problem = check.problem(key, segment, range(key.number * length, stop)) if size else None
        if problem:
            yield f"the open segment of track {track}: {problem}"


POSITION_RANGE = 2**32  # slots store the low 32 bits of a position
MAX_DISTANCE = 2**30  # frames between the newest and the oldest position of a track
Slots = npt.NDArray[Any]  # of slot_record


class RebuiltState:
    """Builds the arrays of a state file from the blocks of the logs.

    Lost with the state: open segments, steps of incomplete blocks and open episodes. So every track continues with a
    new segment after its newest step or frame, and all episodes are closed. Missing segments that steps may reference
    are named too; ``verify_generation`` removes those steps.
    """

    def __init__(self, settings: MemorySettings, frames_per_segment: int) -> None:
        self._settings, self._length = settings, frames_per_segment
        self._record = slot_record(settings.num_envs, settings.action, settings.extras)
        self._firsts = np.full(settings.num_envs, -1, np.int64)  # number of the first segment of each track
        self._nexts = np.zeros(settings.num_envs, np.int64)  # number after the last segment

    def arrays(self, segments: Iterable[BlockKey], steps: LogView) -> Arrays:
        """Return the state arrays for these segments and the intact blocks of steps."""
        intact = self._intact_in_all_arrays(segments)
        empty = make_step_store(self._settings, self._length).state()
        for name in EPISODE_KEYS:  # loading computes these from the steps
            del empty[name]
        is_random = self._settings.retention == "random"
        step_arrays = self._block_arrays(intact, steps) if is_random else self._ring_arrays(steps)
        num_tracks, num_arrays = self._settings.num_tracks, len(self._settings.frame.frame_specs)
        firsts = np.where(self._firsts < 0, self._nexts, self._firsts)
        spans = np.tile(np.stack([firsts, self._nexts], axis=1), (num_arrays, 1)).tolist()
        keys = [pack_keys(track, np.arange(first, after)) for track, (first, after) in enumerate(spans)]
        newest = self._nexts * self._length - 1
        env_arrays: Arrays = {
            "steps.newest_positions": newest,
            "steps.episode_starts": np.maximum(newest, 0),
            "steps.run_starts": np.maximum(newest, 0),
        }
        frame_arrays: Arrays = {
            NEXT_POSITIONS: np.tile(self._nexts * self._length, num_arrays),
            OPEN_SIZES: np.zeros(num_tracks, np.int64),
            OPEN_SEGMENTS: np.empty(0, np.uint8),
        }
        return empty | step_arrays | env_arrays | frame_arrays | segment_runs(np.concatenate(keys), num_tracks)

    def _intact_in_all_arrays(self, segments: Iterable[BlockKey]) -> set[BlockKey]:
        """Register every segment; return those that no array lacks, keyed by track of steps."""
        stored = set(segments)
        num_envs, num_all = self._settings.num_envs, self._settings.num_tracks
        for track, number in stored:
            self._cover(track % num_envs, number, number)
        return {
            key
            for key in stored
            if key.track < num_envs
            and all(BlockKey(array, key.number) in stored for array in range(key.track, num_all, num_envs))
        }

    def _ring_arrays(self, steps: LogView) -> Arrays:
        """First in, first out, with one order over all tracks: keep the newest blocks that fit the capacity."""
        numbers = [key.number for key in steps.intact_keys()]
        if not numbers:
            return {}
        stop = (max(numbers) + 1) * STEPS_PER_BLOCK
        first = max(min(numbers), -(-(stop - self._settings.capacity) // STEPS_PER_BLOCK))
        for number in numbers:
            if number >= first:
                self._cover_steps(np.frombuffer(steps.read(BlockKey(0, number)) or b"", self._record))
        return {
            "steps.span": np.array([first * STEPS_PER_BLOCK, stop]),
            "steps.blocks": np.array([first, stop // STEPS_PER_BLOCK]),
        }

    def _block_arrays(self, intact: set[BlockKey], steps: LogView) -> Arrays:
        """Random retention, with a block of steps for each segment: keep the newest blocks that fit the capacity.

        The logs do not say whether a block had been evicted. The blocks get new numbers. A block that later steps may
        reference, such as the newest of each track, is stored in the state itself.
        """
        with_steps = {key for key in steps.intact_keys() if key in intact}
        for key in with_steps:
            if self._slots_of(key, steps)["flags"][-1] & TAKEN:  # its next frame is the first of the next segment
                self._cover(key.track, key.number, key.number + 1)
        newest = {BlockKey(track, after - 1) for track, after in enumerate(self._nexts.tolist()) if after}
        chosen: list[tuple[BlockKey, Slots]] = []
        free = self._settings.capacity
        empty = np.zeros(self._length, self._record)
        for key in sorted(with_steps | newest, key=lambda key: (key.number, key.track), reverse=True):
            slots = self._slots_of(key, steps) if key in with_steps else empty  # its steps are lost
            free -= int((slots["flags"] & TAKEN > 0).sum())
            if free >= 0 or key in newest:
                chosen.append((key, slots))
        chosen.reverse()
        tracks, segments = (np.array([key[part] for key, _ in chosen], np.int64) for part in (0, 1))
        is_sealed = (segments + 1) * self._length <= self._nexts[tracks] * self._length - self._settings.stack
        in_state = [slots for (_, slots), sealed in zip(chosen, is_sealed, strict=True) if not sealed]
        return {
            "blocks.numbers": np.arange(len(chosen)),
            "blocks.env_ids": tracks,
            "blocks.segments": segments,
            "blocks.num_steps": np.array([(slots["flags"] & TAKEN > 0).sum() for _, slots in chosen], np.int64),
            "blocks.are_sealed": is_sealed,
            "blocks.next_number": np.array([len(chosen)]),
            **slots_to_arrays(np.concatenate([np.zeros(0, self._record), *in_state])),
        }

    def _slots_of(self, key: BlockKey, steps: LogView) -> Slots:
        """Return the slots of an intact block."""
        return np.frombuffer(steps.read(key) or b"", self._record)

    def _cover_steps(self, slots: Slots) -> None:
        for track in np.unique(slots["env_id"]).tolist():
            low_bits = slots["position"][slots["env_id"] == track].astype(np.int64)
            next_position = int(self._nexts[track]) * self._length
            positions = low_bits + (next_position - low_bits + POSITION_RANGE // 2) // POSITION_RANGE * POSITION_RANGE
            # The slot of a lost step has a position farther back.
            positions = positions[abs(positions - next_position) < MAX_DISTANCE]
            if positions.size:
                first, last = int(positions.min()), int(positions.max()) + 1
                self._cover(track, max(0, first) // self._length, last // self._length)

    def _cover(self, track: int, first: int, last: int) -> None:
        known = int(self._firsts[track])
        self._firsts[track] = first if known < 0 else min(known, first)
        self._nexts[track] = max(int(self._nexts[track]), last + 1)
