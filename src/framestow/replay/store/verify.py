"""Verify a store: commits, every byte of the logs, the content of every block, and each generation by itself.

``verify_store`` returns a ``Verification``. ``VerifiedStore`` has all findings, and the generations that can still be
read, which a repair keeps. ``VerifiedLog`` covers all generations together. ``SegmentCheck`` and ``StepsCheck`` check
one block. ``VerifiedGeneration`` has the steps of one generation without those whose frames are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.interface import Closing
from framestow.process import free_memory
from framestow.replay.eviction.byte_amounts import format_bytes
from framestow.replay.reading.episodes import EpisodeSpans
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.settings.step_fields import ALL_FLAGS, slot_record
from framestow.replay.steps.step_store import StepKey
from framestow.replay.store.consistency import find_step_problems
from framestow.replay.store.format import (
    FRAMES,
    KIND,
    STEPS,
    Arrays,
    Commit,
    FolderContents,
    commit_path,
    convert_settings,
    read_while_written,
)
from framestow.replay.store.reader import (
    BLOCK_BYTES,
    PACKER_FRAMES,
    StoredMemory,
    steps_bytes,
)
from framestow.replay.store.snapshot import NEXT_POSITIONS, OPEN_SIZES, list_sealed_segments, open_segments
from framestow.storage.files.block_format import BlockKey, Damage, FileState, LogPlace, LogState, unpack_keys
from framestow.storage.files.block_log_reader import BlockLogReader
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.frame_storage import FrameStorage

BEFORE_ALL_POSITIONS = -(2**40)  # below every position that a store can have
Numbers = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]
"""Called with the number of bytes read so far and the total."""
# Returns the problem of a block with a correct checksum, or None.
BlockCheck = Callable[[BlockKey, bytes], "str | None"]


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
        """The message without the name of the file, the offset and the way out."""
        message = self.message.removeprefix(f"{self.file}: ").replace(f" at offset {self.offset}", "", 1)
        return message.rpartition("; ")[0] or message


@dataclass(frozen=True)
class Verification:
    """Result of a verification."""

    folder: Path
    generations: list[int]
    """Generations with a whole commit."""
    num_bytes: int  # of all committed files
    num_blocks: int  # of all logs
    transitions: int
    """Transitions of the newest readable generation that can still be read."""
    lost: int
    """Transitions of that generation that cannot be read any more."""
    findings: list[Finding]

    @property
    def is_intact(self) -> bool:
        """Whether everything is as framestow wrote it."""
        return not self.findings


def verify_store(
    folder: Path,
    progress: Progress = lambda _done, _all: None,
    files: FileSystem = DISK,
    announce: Callable[[int], None] = lambda _bytes: None,
) -> Verification:
    """Read every byte of a store, unpack every frame and compare every step; change nothing.

    While another process writes, this verifies the generations at the start. ``announce`` is called first, with the
    most bytes of memory that it takes: the steps, a block of a log, and 8 MiB of unpacked frames or one frame.

    Raises:
        FileNotFoundError: the folder contains no store.
        DamagedDataError: no commit is whole.
        IncompatibleError: another version wrote the store, or this machine has too little memory.
    """
    with VerifiedStore(folder, files, progress, announce) as store:
        verification, names = store.summarize(), store.names_at_start
    if files.names(folder) == names:
        return verification

    # A concurrent writer removed files that its generations no longer need: that is not damage.
    def list_needed(contents: FolderContents) -> set[str]:
        return {name for number in contents.existing for name in contents.read(number).whole().file_ends()}

    there = read_while_written(folder, list_needed, files) | set(files.names(folder))
    return replace(verification, findings=[one for one in verification.findings if one.file.name in there])


class VerifiedStore(Closing):
    """All findings of a store, and the generations that a repair can keep. Close it after use.

    ``commits`` are the whole ones of generations that stay, oldest first. ``generations`` are those of them whose state
    is consistent.
    """

    def __init__(
        self,
        folder: Path,
        files: FileSystem = DISK,
        progress: Progress = lambda _done, _all: None,
        announce: Callable[[int], None] = lambda _bytes: None,
    ) -> None:
        self.folder, self._disk, self._progress = folder, files, progress
        self.findings: list[Finding] = []
        self.generations: list[VerifiedGeneration] = []
        self.logs: dict[tuple[str, str], VerifiedLog] = {}  # by id of the store and name
        # Bytes of all committed files, and for ``progress`` the bytes done and to do. A log's bytes count twice.
        self.num_bytes = self._done = self._to_do = 0
        self.damaged: set[int] = set()
        """Numbers of commits that are damaged, as are their copies."""
        self.damaged_files: dict[Path, int] = {}
        """Damaged commits and copies whose other file is whole, and missing commits with a copy: each one's number."""
        with ExitStack() as on_error:
            on_error.callback(self.close)
            # All files are opened first: a concurrent writer may remove files, but open files stay readable.
            states = read_while_written(folder, self._open, files)
            self._verify(states, announce)
            on_error.pop_all()

    def _open(self, contents: FolderContents) -> dict[int, Arrays]:
        """Read all commits and open the logs; return the states of the generations."""
        self.close()
        self.names_at_start, self.findings, self.damaged, self.damaged_files = contents.names, [], set(), {}
        if contents.newest is None:
            raise FileNotFoundError(f"{self.folder}: no {KIND} was saved in this folder; give the folder of one")
        newest = contents.newest.whole()
        existing = [contents.read(number) for number in contents.existing]
        whole = [one.whole() for one in existing if not one.problem]
        self.commits = [one for one in whole if one.generation in contents.generations]
        self._find_damaged_commits(contents, newest)
        if not self.commits and not self.damaged:
            raise FileNotFoundError(f"{self.folder}: no {KIND} was saved in this folder; give the folder of one")
        for id_of_store in dict.fromkeys(one.id for one in whole if not one.is_empty):
            of_store = [one for one in whole if one.id == id_of_store]
            for name in (FRAMES, STEPS):
                of_log = {one.generation: getattr(one, name) for one in of_store}
                place = LogPlace(self.folder, name, id_of_store)
                self.logs[id_of_store, name] = VerifiedLog(place, of_log, self._disk)
        missing = [damage for log in self.logs.values() for damage in log.damages]
        if missing and contents.names != self._disk.names(self.folder):
            raise FileNotFoundError("a writer removed a file meanwhile")  # `read_while_written` reads again
        in_logs = sum(log.num_bytes for log in self.logs.values())
        self.num_bytes = in_logs + sum(one.state_bytes for one in self.commits)
        self._to_do = 2 * in_logs  # one pass over the bytes, one over the blocks
        states = {}
        for commit in list(self.commits):
            try:
                states[commit.generation] = contents.read(commit.generation).arrays()
            except DamagedDataError as error:
                self.findings.append(Finding(commit_path(self.folder, commit.generation), None, str(error), None))
                self.commits.remove(commit)
        return states

    def _find_damaged_commits(self, contents: FolderContents, newest: Commit) -> None:
        for number in contents.numbers:
            is_lost = bool(contents.read(number).problem)
            if is_lost:
                self.damaged.add(number)
            for is_copy in (False, True) if number in contents.copies else (False,):
                found = contents.read_file(number, is_copy=is_copy)
                if found.problem:
                    cost = None if is_lost and number > newest.generation else 0
                    self.findings.append(Finding(found.path, None, f"{found.path}: {found.problem}", cost))
                    if not is_lost:
                        self.damaged_files[found.path] = number
        if newest.generation == contents.numbers[-1]:
            for number in set(newest.kept) - set(contents.numbers):
                path = commit_path(self.folder, number)
                self.findings.append(Finding(path, None, f"{path}: the file is missing", 0))

    def summarize(self) -> Verification:
        """Return the findings, and the transitions of the newest generation that can be read."""
        newest = self.generations[-1] if self.generations else None
        return Verification(
            folder=self.folder,
            generations=[commit.generation for commit in self.commits],
            num_bytes=self.num_bytes,
            num_blocks=sum(log.num_blocks for log in self.logs.values()),
            transitions=len(newest.steps) if newest else 0,
            lost=newest.lost if newest else 0,
            findings=self.findings + [one for log in self.logs.values() for one in _findings_of(log, newest)],
        )

    def close(self) -> None:
        """Close the files."""
        for log in self.logs.values():
            log.close()
        self.logs.clear()

    def _verify(self, states: dict[int, Arrays], announce: Callable[[int], None]) -> None:
        settings = {one.id: convert_settings(self.folder, one, MemorySettings.from_state) for one in self.commits}
        num_bytes, free = self._work_space(settings, states), free_memory()
        announce(num_bytes)
        if num_bytes > free:
            raise IncompatibleError(
                f"{self.folder}: verifying it takes {format_bytes(num_bytes)} of memory, and {format_bytes(free)} are "
                "free; verify it on a larger machine"
            )
        lengths = {one.id: one.frames_per_segment for one in self.commits}
        for (store, name), log in self.logs.items():
            if store in settings:
                of_frames = name == FRAMES
                check = SegmentCheck(settings[store], lengths[store]) if of_frames else StepsCheck(settings[store])
                log.verify(check, self._advance)
        for commit in self.commits:
            self._verify_generation(commit, states[commit.generation])
        self._progress(self._to_do, self._to_do)

    def _work_space(self, settings: dict[str, MemorySettings], states: dict[int, Arrays]) -> int:
        """Return the most bytes of memory that verifying takes, from the sizes in the files and the settings."""
        num_bytes = 3 * max((log.largest_block for log in self.logs.values()), default=0)
        num_bytes += BLOCK_BYTES * sum(log.num_blocks for log in self.logs.values())
        num_bytes += max(map(segment_work_space, settings.values()), default=0)
        for commit in self.commits:
            arrays = states[commit.generation]
            num_bytes += 3 * sum(array.nbytes for array in arrays.values())
            num_bytes += 2 * steps_bytes(settings[commit.id], arrays)
        return num_bytes

    def _advance(self, num_bytes: int) -> None:
        self._done += num_bytes
        self._progress(self._done, self._to_do)

    def _verify_generation(self, commit: Commit, arrays: Arrays) -> None:
        frames, steps = (self.logs[commit.id, name].blocks[commit.generation] for name in (FRAMES, STEPS))
        stored = StoredMemory(self.folder, commit, arrays, frames, steps)
        path = commit_path(self.folder, commit.generation)
        try:
            stored.check()
            generation = VerifiedGeneration(stored)
        except DamagedDataError as error:
            self.findings.append(Finding(path, None, str(error), None))
            return
        self.generations.append(generation)
        problems = [*generation.problems, *self._find_unexplained(generation)]
        self.findings += [Finding(path, None, f"{path}: {problem}", None) for problem in problems]

    def _find_unexplained(self, generation: VerifiedGeneration) -> Iterator[str]:
        """Yield blocks that a generation needs and its log lacks, although no known damage explains it."""
        for name, lost in ((FRAMES, generation.lost_segments), (STEPS, generation.lost_steps)):
            for key in lost:
                if not self.logs[generation.stored.commit.id, name].explains_loss(key):
                    yield f"block {key.number} of track {key.track} is missing in the log of {name}"


def _findings_of(log: VerifiedLog, newest: VerifiedGeneration | None) -> list[Finding]:
    """Return the damage of a log, each with the transitions of the newest generation that it costs."""
    costs: dict[BlockKey, int] = {}
    if newest is not None and newest.stored.commit.id == log.place.id:
        costs = newest.lost_segments if log.place.name == FRAMES else newest.lost_steps
    known = {damage.key for damage in log.damages}
    unassigned = sum(cost for key, cost in costs.items() if key not in known)
    num_without_block = sum(damage.key is None and not damage.is_in_index for damage in log.damages)
    findings = []
    cost: int | None
    for damage in log.damages:
        if damage.is_in_index:
            cost = 0
        elif damage.key is not None:
            cost = costs.get(damage.key, 0)
        else:  # these bytes contain a block of unknown key
            cost = unassigned if num_without_block == 1 else None
        findings.append(Finding(damage.file, damage.offset, damage.message, cost))
    return findings


class VerifiedLog(Closing):
    """The files of one log that any commit names, each up to its last committed byte. Close it after use."""

    def __init__(self, place: LogPlace, states: Mapping[int, LogState], files: FileSystem = DISK) -> None:
        """Open the files, which a concurrent writer may then remove; ``states`` are those of all commits."""
        self.place = place
        largest: dict[int, FileState] = {}
        for file in (file for state in states.values() for file in state["files"]):
            largest[file["number"]] = max(file, largest.get(file["number"], file), key=lambda one: one["bytes"])
        self.num_bytes = sum(file["bytes"] for file in largest.values())
        """Bytes of the files that the commits name."""
        union = LogState(files=[largest[number] for number in sorted(largest)], next_file=1)
        self._reader = BlockLogReader.open(place, union, files, skips_damage=True)
        self.damages = list(self._reader.unusable)
        """All damage, once ``verify`` was called."""
        self.blocks = {
            generation: BlockLogReader.open(place, state, files, skips_damage=True)
            for generation, state in states.items()
        }
        """By commit, the blocks that it names; after ``verify`` the intact ones."""

    def verify(self, check: BlockCheck, progress: Callable[[int], None]) -> None:
        """Verify every byte, then check every intact block with ``check``; take the damaged ones out of ``blocks``."""
        self.damages = list(self._reader.damages(progress))
        bad = {(damage.file, damage.offset): damage.key for damage in self.damages if damage.key is not None}
        for key in self._reader:
            file, offset, size, _ = self._reader.find(key)
            if (file, offset) not in bad:
                problem = check(key, self._reader.read(key, self._reader.version(key)))
                if problem:
                    message = f"{file}: block {key.number} of track {key.track} at offset {offset}: {problem}"
                    self.damages.append(Damage(file, offset, key, message))
                    bad[file, offset] = key
            progress(size)
        for blocks in self.blocks.values():
            for place, key in bad.items():
                if key in blocks and blocks.find(key)[:2] == place:
                    is_copied = self._reader.find(key)[:2] not in bad and blocks.take(key, self._reader)
                    if not is_copied:
                        blocks.remove(key)

    @property
    def num_blocks(self) -> int:
        """Number of blocks, without copies of the same key."""
        return len(self._reader)

    @property
    def largest_block(self) -> int:
        """Bytes of the largest block, as it is stored."""
        return max((self._reader.find(key).size for key in self._reader), default=0)

    @property
    def unusable(self) -> set[Path]:
        """Log files that are missing, or not those that the commits name."""
        return {damage.file for damage in self._reader.unusable}

    @property
    def damaged_files(self) -> list[Path]:
        """Log files with a damaged byte, and those that cannot be used."""
        return sorted({damage.file for damage in self.damages if not damage.is_in_index})

    @property
    def damaged_indices(self) -> list[Path]:
        """Indices that differ from their log."""
        return sorted({damage.file for damage in self.damages if damage.is_in_index})

    def explains_loss(self, key: BlockKey) -> bool:
        """Whether known damage explains a missing block: its own, or bytes whose blocks are unknown."""
        return any(damage.key == key or (damage.key is None and not damage.is_in_index) for damage in self.damages)

    def repair_indices(self) -> list[Path]:
        """Rewrite damaged and lost indices; return them. Only the writer may call it."""
        return self._reader.repair_indices()

    def close(self) -> None:
        """Close the files. Closing again does nothing."""
        for reader in (self._reader, *self.blocks.values()):
            reader.close()


UNPACKED_BYTES = 8 * 2**20  # of frames, unpacked at a time


def segment_work_space(settings: MemorySettings) -> int:
    """Return the bytes of memory that ``SegmentCheck`` takes besides the segment."""
    num_frames = max(1, UNPACKED_BYTES // settings.frame.nbytes)
    largest = max(frame.nbytes for frame in settings.frame.frame_specs)
    return num_frames * settings.frame.nbytes + PACKER_FRAMES * largest


class SegmentCheck:
    """Unpack every frame of a segment, of any storage; return the first problem."""

    def __init__(self, settings: MemorySettings, frames_per_segment: int) -> None:
        self._settings, self._frames_per_segment = settings, frames_per_segment
        frames_at_once = max(1, min(UNPACKED_BYTES // settings.frame.nbytes, frames_per_segment))
        # A buffer for each array of an observation, reused for every segment: ``(1, frames_at_once, *frame)``.
        self._unpacked = [frame.empty(1, frames_at_once) for frame in settings.frame.frame_specs]

    def __call__(self, key: BlockKey, segment: bytes) -> str | None:
        """Check a sealed segment; return its problem, or ``None``."""
        first = key.number * self._frames_per_segment
        return self.problem(key, segment, range(first, first + self._frames_per_segment))

    def problem(self, key: BlockKey, segment: bytes, positions: range) -> str | None:
        """Return the problem of a segment that must have the frames ``positions``, or ``None``."""
        settings = self._settings
        if key.track not in settings.tracks.all:
            return f"the memory has {len(settings.tracks.all)} tracks of frames"
        array = settings.tracks.array_of(key.track)
        frame, unpacked = settings.frame.frame_specs[array], self._unpacked[array]
        # A new storage for each segment: a segment must not depend on others.
        depths = [settings.layout.depths[array]]
        storage = FrameStorage(frame, 1, frames_per_segment=self._frames_per_segment, depths=depths)
        try:
            storage.restore(0, key.number, segment)
            if (found := storage.stored_positions(0)) != positions:
                return f"it has frames {found.start} to {found.stop - 1}, not {positions.start} to {positions.stop - 1}"
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
    """Check the fields of each step of a block; return the first problem."""

    def __init__(self, settings: MemorySettings) -> None:
        self._settings = settings
        self._record = slot_record(settings.num_envs, settings.action, settings.extras)

    def __call__(self, _key: BlockKey, block: bytes) -> str | None:
        """Check a block of steps; return its problem, or ``None``."""
        settings = self._settings
        if len(block) % self._record.itemsize:
            return f"its {len(block)} bytes are not a multiple of {self._record.itemsize}, the bytes of a step"
        steps = np.frombuffer(block, self._record)
        for name, is_wrong in {
            "env_id": steps["env_id"] >= settings.num_envs,
            "reward": ~np.isfinite(steps["reward"]),
            "history": steps["history"] >= settings.stack,
            "flags": steps["flags"] > ALL_FLAGS,
            "action": settings.action.are_outside(steps["action"]).reshape(len(steps), -1).any(1),
        }.items():
            if is_wrong.any():
                row = int(np.flatnonzero(is_wrong)[0])
                return f"step {row} has the invalid {name} {steps[name][row]}"
        return None


class VerifiedGeneration:
    """The transitions of one generation that can still be read, and its intact segments.

    A lost transition is counted once, however many of its frames are lost. Lost blocks of steps are counted before lost
    frames.
    """

    def __init__(self, stored: StoredMemory) -> None:
        """Check the state in ``stored`` against its blocks, which are the intact ones.

        Raises:
            DamagedDataError: the state is inconsistent in itself.
        """
        self.stored = stored
        self.steps = stored.make_step_store()
        """Its steps; the transitions with lost frames are not sampleable."""
        self.intact_segments: list[BlockKey] = []  # sealed ones
        self.lost_steps: dict[BlockKey, int] = {}
        """Damaged or missing blocks of steps, each with the number of transitions that it costs."""
        self.lost_segments: dict[BlockKey, int] = {}
        """Damaged or missing segments, each with the number of transitions that it costs."""
        try:
            self.steps.restore(stored.arrays, self._read_steps)
            self._lose_steps_without_frames()
            self.open_segment_problems = list(self._find_open_segment_problems())
            self.problems = [
                *self.open_segment_problems,
                *find_step_problems(self.steps, stored.settings),
                *self._find_missing_frames(),
            ]
            """Inconsistencies although every checksum is right."""
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise DamagedDataError(f"its content is inconsistent ({error})") from error

    @property
    def lost(self) -> int:
        """Number of transitions that were sampleable when it was written and are not now."""
        return self.stored.commit.num_transitions - len(self.steps)

    def list_envs_cut_short(self) -> list[int]:
        """Return the environments whose newest observation lacks a frame."""
        frames, newest = StoredFrames(self), self.steps.newest_positions
        firsts = np.maximum(self.steps.stretch_starts, newest - self.stored.settings.stack + 1)
        return [
            env_id
            for env_id in np.flatnonzero(newest >= 0).tolist()
            if not frames.contain(env_id, firsts[env_id : env_id + 1], newest[env_id : env_id + 1])[0]
        ]

    def _read_steps(self, key: StepKey) -> bytes | None:
        try:
            return self.stored.read_block(self.steps, key)
        except (KeyError, DamagedDataError):
            self.lost_steps[BlockKey(*key)] = self.steps.num_sampleable_in(key, self.stored.arrays)
            return None

    def _lose_steps_without_frames(self) -> None:
        length, env_of = self.stored.commit.frames_per_segment, self.stored.settings.tracks.env_of
        firsts = self.stored.arrays[NEXT_POSITIONS] // length
        for key in unpack_keys(list_sealed_segments(self.stored.arrays)):
            firsts[key.track] = min(firsts[key.track], key.number)
            if key in self.stored.frames:
                self.intact_segments.append(key)
            else:
                first = key.number * length
                self.lost_segments[key] = self.steps.lose(env_of(key.track), first, first + length)
        for track, first in enumerate((firsts * length).tolist()):
            # Only a damaged state has steps before the first frame.
            self.steps.lose(env_of(track), BEFORE_ALL_POSITIONS, first)

    def _find_open_segment_problems(self) -> Iterator[str]:
        """Yield the problems of the open segments, which the state contains."""
        length = self.stored.commit.frames_per_segment
        check = SegmentCheck(self.stored.settings, length)
        for track, (stop, segment) in enumerate(open_segments(self.stored.arrays)):
            key = BlockKey(track, stop // length)
            positions = range(key.number * length, stop)
            if segment.size and (problem := check.problem(key, segment.tobytes(), positions)):
                yield f"the open segment of track {track}: {problem}"

    def _find_missing_frames(self) -> Iterator[str]:
        """Yield the transitions whose frames are missing."""
        spans, frames = EpisodeSpans.of(self.steps).spans, StoredFrames(self)
        for env_id in range(self.steps.num_envs):
            of_env = spans[spans["env_id"] == env_id]
            firsts = of_env["first"] - of_env["history"]
            lasts = of_env["first"] + of_env["length"]
            for span in np.flatnonzero(~frames.contain(env_id, firsts, lasts)):
                needed = f"{firsts[span]} to {lasts[span]}"
                yield f"environment {env_id}: transitions need frames {needed}, and some are missing"


class StoredFrames:
    """Index of the frames of a generation that can be read."""

    def __init__(self, generation: VerifiedGeneration) -> None:
        arrays, settings = generation.stored.arrays, generation.stored.settings
        self._length, self._tracks = generation.stored.commit.frames_per_segment, settings.tracks
        # By track, the position that its next frame gets: frames from there on are not stored.
        self._next_positions = arrays[NEXT_POSITIONS]
        # By track, the numbers of its segments, sealed and open, ascending.
        tracks, numbers = np.array(generation.intact_segments, np.int64).reshape(-1, 2).T
        sealed = np.split(numbers, np.searchsorted(tracks, settings.tracks.all[1:]))
        is_open, open_numbers = arrays[OPEN_SIZES] > 0, self._next_positions // self._length
        self._numbers = [
            np.append(of_track, open_numbers[t]) if is_open[t] else of_track for t, of_track in enumerate(sealed)
        ]

    def contain(self, env_id: int, firsts: Numbers, lasts: Numbers) -> npt.NDArray[np.bool_]:
        """Return for each span of frames, ``firsts`` to ``lasts`` inclusive, whether all of it is stored.

        All arrays of the environment must have the frames.
        """
        first_numbers, last_numbers = firsts // self._length, lasts // self._length
        has_all: npt.NDArray[np.bool_] = firsts >= 0
        for track in self._tracks.of_env(env_id):
            numbers = self._numbers[track]
            found = np.searchsorted(numbers, last_numbers, "right") - np.searchsorted(numbers, first_numbers, "left")
            has_all = has_all & (lasts < self._next_positions[track]) & (found == last_numbers - first_numbers + 1)
        return has_all
