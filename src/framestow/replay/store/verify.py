"""Verify a store: manifests, state files, every byte of the logs, and each generation by itself.

``verify_store`` returns a ``Verification``. ``VerifiedStore`` has all findings and the generations that can still be
read, which a repair keeps. ``VerifiedGeneration`` has the steps of one generation without those whose frames are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.interface import Closing
from framestow.process import free_memory
from framestow.replay.byte_amounts import format_bytes
from framestow.replay.episodes import EpisodeRuns
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.steps.step_store import SealedBlocks, SegmentSpans, StepKey
from framestow.replay.steps.step_stores import make_step_store
from framestow.replay.store.consistency import find_step_problems
from framestow.replay.store.format import (
    FRAMES,
    KIND,
    STEPS,
    Arrays,
    FolderContents,
    Manifest,
    convert_settings,
    manifest_in_state,
    named_files,
    read_checked_manifest,
    read_state,
    read_while_written,
)
from framestow.replay.store.loading_bytes import BLOCK_BYTES, steps_bytes
from framestow.replay.store.reader import BEFORE_ALL_POSITIONS, StoredMemory
from framestow.replay.store.snapshot import (
    NEXT_POSITIONS,
    OPEN_SIZES,
    frame_arrays,
    iterate_sealed_segments,
    open_segments,
)
from framestow.replay.store.verify_log import SegmentCheck, StepsCheck, VerifiedLog, segment_work_space
from framestow.storage.files.block_format import BlockKey, pack_keys
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import generations, manifest_path

MAX_TRACKS_REBUILT = 2**16  # without a state file, which has some bytes for each

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


@dataclass(frozen=True)
class Verification:
    """Result of a verification."""

    folder: Path
    generations: list[int]
    """Generations with an intact manifest."""
    num_bytes: int  # of all committed files
    num_blocks: int  # of both logs
    transitions: int
    """Transitions of the newest readable generation that can still be read; without a state file, those that a repair
    rebuilds from the logs."""
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
        IncompatibleError: another version wrote the store, or this machine has too little memory.
    """
    with VerifiedStore(folder, files, progress, announce) as store:
        verification = store.summarize()
    numbers = generations(folder, files)
    if not numbers or numbers == store.numbers_at_start:
        return verification
    # A concurrent writer removed files that its generations no longer need: that is not damage.
    if not verification.generations:
        return verify_store(folder, progress, files, announce)

    def list_needed(contents: FolderContents) -> set[str]:
        return named_files(read_checked_manifest(folder, number, files) for number in contents.manifests.generations)

    there = read_while_written(folder, list_needed, files) | set(files.names(folder))
    findings = [one for one in verification.findings if one.file.name in there]
    return replace(verification, findings=findings)


class VerifiedStore(Closing):
    """All findings of a store, and the generations that a repair can keep. Close it after use.

    ``manifests`` are the intact manifests of generations that stay, oldest first. ``generations`` are those of them
    with an intact state file.
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
        self.recovered: list[int] = []
        """Generations whose damaged manifests were rebuilt from their state files."""
        self.manifests = self._read_manifests()
        self.generations: list[VerifiedGeneration] = []
        self.logs: dict[str, VerifiedLog] = {}  # by name
        # Bytes of all committed files, and for ``progress`` the bytes done and to do. A log's bytes count twice.
        self.num_bytes = self._done = self._to_do = 0
        if self.manifests:
            with ExitStack() as on_error:
                on_error.callback(self.close)
                self._verify(announce)
                on_error.pop_all()

    def _verify(self, announce: Callable[[int], None]) -> None:
        # Open all files first: a concurrent writer may remove files, but open files stay readable.
        states = list(map(self._read_state, self.manifests))
        for name in (FRAMES, STEPS):
            of_log = {manifest.generation: getattr(manifest, name) for manifest in self.manifests}
            self.logs[name] = VerifiedLog(self.folder, name, of_log, self._disk)
        num_bytes, free = self._work_space(states), free_memory()
        announce(num_bytes)
        if num_bytes > free:
            raise IncompatibleError(
                f"{self.folder}: verifying it takes {format_bytes(num_bytes)} of memory, and {format_bytes(free)} are "
                "free; verify it on a larger machine"
            )
        self._verify_logs()
        for manifest, arrays in zip(self.manifests, states, strict=True):
            if arrays is not None:
                self._verify_generation(manifest, arrays)
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

    def summarize(self) -> Verification:
        """Return the findings, and the transitions of the newest generation that can be read or rebuilt."""
        newest = self.generations[-1] if self.generations else self._rebuild_newest()
        return Verification(
            folder=self.folder,
            generations=[manifest.generation for manifest in self.manifests],
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
            manifest = self._read_manifest(number)
            if manifest and (newest is None or manifest.is_pinned or number in newest.kept):
                newest = newest or manifest
                kept.append(manifest)
        return kept[::-1]

    def _read_manifest(self, number: int) -> Manifest | None:
        """Return the manifest of a generation, rebuilt from its state file if damaged; ``None`` if both are lost."""
        try:
            return read_checked_manifest(self.folder, number, self._disk)
        except (DamagedDataError, FileNotFoundError) as error:
            recovered = manifest_in_state(self.folder, number, self._disk)
            cost = None if recovered is None else 0
            self.findings.append(Finding(manifest_path(self.folder, number), None, str(error), cost))
            self.recovered += [number] if recovered else []
            return recovered

    def _read_state(self, manifest: Manifest) -> Arrays | None:
        """Return the arrays of a state file; ``None`` if it is damaged, which becomes a finding."""
        try:
            return read_state(self.folder, manifest, self._disk)
        except DamagedDataError as error:
            self.findings.append(Finding(self.folder / manifest.state["name"], None, str(error), None))
            return None

    def _work_space(self, states: list[Arrays | None]) -> int:
        """Return the most bytes of memory that verifying takes, from the sizes in the files and the settings."""
        settings = convert_settings(self.folder, self.manifests[-1], MemorySettings.from_state)
        num_bytes = segment_work_space(settings) + 3 * max(log.largest_block for log in self.logs.values())
        num_bytes += BLOCK_BYTES * sum(log.num_blocks for log in self.logs.values())
        for arrays in filter(None, states):
            num_bytes += 3 * sum(array.nbytes for array in arrays.values()) + 2 * steps_bytes(settings, arrays)
        return num_bytes

    def _verify_logs(self) -> None:
        newest = self.manifests[-1]
        settings = convert_settings(self.folder, newest, MemorySettings.from_state)
        in_logs = sum(log.num_bytes for log in self.logs.values())
        self.num_bytes = in_logs + sum(manifest.state["bytes"] for manifest in self.manifests)
        self._to_do = 2 * in_logs  # one pass over the bytes, one over the blocks
        self.logs[FRAMES].verify(SegmentCheck(settings, newest.frames_per_segment), self._advance)
        self.logs[STEPS].verify(StepsCheck(settings), self._advance)

    def _advance(self, num_bytes: int) -> None:
        self._done += num_bytes
        self._progress(self._done, self._to_do)

    def _verify_generation(self, manifest: Manifest, arrays: Arrays) -> None:
        stored = self._stored(manifest, arrays)
        try:
            stored.check_arrays()
            stored.check_settings()
            self._add_generation(VerifiedGeneration(stored))
        except DamagedDataError as error:
            self.findings.append(Finding(self.folder / manifest.state["name"], None, str(error), None))

    def _stored(self, manifest: Manifest, arrays: Arrays) -> StoredMemory:
        frames, steps = (self.logs[name].blocks[manifest.generation] for name in (FRAMES, STEPS))
        num_frame_blocks = sum(file["blocks"] for file in manifest.frames["files"])  # intact or not
        return StoredMemory(self.folder, manifest, arrays, frames, steps, num_frame_blocks)

    def _add_generation(self, generation: VerifiedGeneration) -> None:
        self.generations.append(generation)
        path = self.folder / generation.stored.manifest.state["name"]
        problems = [*generation.problems, *self._find_unexplained(generation)]
        self.findings += [Finding(path, None, f"{path}: {problem}", None) for problem in problems]

    def _find_unexplained(self, generation: VerifiedGeneration) -> Iterator[str]:
        """Yield blocks that a generation needs and its log lacks, although no known damage explains it."""
        for name, lost in ((FRAMES, generation.lost_segments), (STEPS, generation.lost_steps)):
            for key in lost:
                if not self.logs[name].explains_loss(key):
                    yield f"block {key.number} of track {key.track} is missing in the log of {name}"

    def _rebuild_newest(self) -> VerifiedGeneration | None:
        """Return what ``salvage`` would add; ``None`` if it would raise."""
        try:
            return self._rebuild(self.manifests[-1]) if self.manifests else None
        except DamagedDataError:
            return None

    def _rebuild(self, manifest: Manifest) -> VerifiedGeneration:
        """Return a generation whose state is rebuilt from the logs.

        Lost with the state are open segments, steps of incomplete blocks and open episodes. Missing segments that steps
        may reference are named too; ``VerifiedGeneration`` removes those steps.
        """
        settings = convert_settings(self.folder, manifest, MemorySettings.from_state)
        tracks, steps = settings.tracks, self.logs[STEPS].blocks[manifest.generation]
        if len(tracks.all) > MAX_TRACKS_REBUILT:
            raise DamagedDataError(
                f"its settings have {len(tracks.all):,} tracks of frames: at most {MAX_TRACKS_REBUILT:,} are rebuilt "
                "without a state file; load an older save"
            )
        found, whole = set(self.logs[FRAMES].blocks[manifest.generation]), set[StepKey]()
        spans = SegmentSpans(settings.num_envs, manifest.frames_per_segment)
        for track, number in found:
            env_id = tracks.env_of(track)
            spans.add(env_id, number, number)
            if all((other, number) in found for other in tracks.of_env(env_id)):
                whole.add((env_id, number))
        step_store = make_step_store(settings, manifest.frames_per_segment)
        blocks = SealedBlocks(list(steps), lambda key: steps.read(BlockKey(*key)))
        arrays = step_store.rebuild_state(spans, whole, blocks)
        firsts = np.where(spans.firsts < 0, spans.nexts, spans.firsts)
        bounds = [(firsts[env_id], spans.nexts[env_id]) for env_id in map(tracks.env_of, tracks.all)]
        keys = [pack_keys(track, np.arange(*of_env)) for track, of_env in enumerate(bounds)]
        positions = np.tile(spans.nexts * manifest.frames_per_segment, tracks.num_arrays)
        arrays |= frame_arrays(positions, [b""] * len(tracks.all), np.concatenate(keys))
        return VerifiedGeneration(self._stored(manifest, arrays))


def _findings_of(log: VerifiedLog, newest: VerifiedGeneration | None) -> list[Finding]:
    """Return the damage of a log, each with the transitions of the newest generation that it costs."""
    costs: dict[BlockKey, int] = {}
    if newest is not None:
        costs = newest.lost_segments if log.name == FRAMES else newest.lost_steps
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
            self._remove_lost_segments()
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
        return self.stored.manifest.num_transitions - len(self.steps)

    def list_envs_cut_short(self) -> list[int]:
        """Return the environments whose newest observation lacks a frame."""
        frames, newest = StoredFrames(self), self.steps.newest_positions
        firsts = np.maximum(self.steps.run_starts, newest - self.stored.settings.stack + 1)
        return [
            env_id
            for env_id in np.flatnonzero(newest >= 0).tolist()
            if not frames.contain(env_id, firsts[env_id : env_id + 1], newest[env_id : env_id + 1])[0]
        ]

    def _read_steps(self, key: StepKey) -> bytes | None:
        block = BlockKey(*key)
        try:
            return self.stored.steps.read(block)
        except KeyError:
            self.lost_steps[block] = self.steps.num_sampleable_in(key, self.stored.arrays)
            return None

    def _remove_lost_segments(self) -> None:
        length, env_of = self.stored.manifest.frames_per_segment, self.stored.settings.tracks.env_of
        firsts = self.stored.arrays[NEXT_POSITIONS] // length
        for key in iterate_sealed_segments(self.stored.arrays):
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
        """Yield the problems of the open segments, which the state file contains."""
        length = self.stored.manifest.frames_per_segment
        check = SegmentCheck(self.stored.settings, length)
        for track, (stop, segment) in enumerate(open_segments(self.stored.arrays)):
            key = BlockKey(track, stop // length)
            positions = range(key.number * length, stop)
            if segment.size and (problem := check.problem(key, segment.tobytes(), positions)):
                yield f"the open segment of track {track}: {problem}"

    def _find_missing_frames(self) -> Iterator[str]:
        """Yield the transitions whose frames are missing."""
        runs, frames = EpisodeRuns.of(self.steps).runs, StoredFrames(self)
        for env_id in range(self.steps.num_envs):
            of_env = runs[runs["env_id"] == env_id]
            firsts = of_env["first"] - of_env["history"]
            lasts = of_env["first"] + of_env["length"]
            for run in np.flatnonzero(~frames.contain(env_id, firsts, lasts)):
                needed = f"{firsts[run]} to {lasts[run]}"
                yield f"environment {env_id}: transitions need frames {needed}, and some are missing"


class StoredFrames:
    """Index of the frames of a generation that can be read."""

    def __init__(self, generation: VerifiedGeneration) -> None:
        arrays, settings = generation.stored.arrays, generation.stored.settings
        self._length, self._tracks = generation.stored.manifest.frames_per_segment, settings.tracks
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
