"""Repair a damaged store: keep the intact blocks, and report the loss.

``repair_store`` verifies the store, plans the repair, and carries it out in an order that a crash cannot harm: new
files first, then the manifests, then removal of the old files.
"""

from __future__ import annotations

import datetime
import itertools
import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.samplers.notified_sampler import SAMPLERS
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.store.folder_contents import STORE_FILE
from framestow.replay.store.format import FRAMES, KIND, STEPS, VERSION, Manifest, file_names, manifest_content
from framestow.replay.store.reader import StoredMemory
from framestow.replay.store.snapshot import (
    NEXT_POSITIONS,
    OPEN_SEGMENTS,
    OPEN_SIZES,
    Arrays,
    segment_runs,
    state_name,
    write_state,
)
from framestow.replay.store.verified_log import BlockSubset, LogView, VerifiedLog
from framestow.replay.store.verified_store import Progress, VerifiedGeneration, VerifiedStore, verify_generation
from framestow.replay.store.verify import Verification, verification_of
from framestow.storage.files.block_format import INDEX, LOG, BlockKey, BlockSpan, LogState, file_name, pack_keys
from framestow.storage.files.block_log import BlockLogWriter
from framestow.storage.files.file_system import DISK, FileSystem, durable_file
from framestow.storage.files.manifest import ManifestNames, generations, manifest_path, write_manifest
from framestow.storage.files.writer_lock import LOCK, WriterLock
from framestow.storage.frame_storage import FrameStorage


@dataclass(frozen=True)
class RepairResult:
    """Findings and actions of a repair."""

    found: Verification
    actions: list[str]
    """One sentence for each action; of a dry run, the actions that a repair would take."""
    moved_to: Path | None
    """Folder with the files that were taken out; ``None`` if nothing was changed."""


def repair_store(
    folder: Path,
    *,
    dry_run: bool = False,
    files: FileSystem = DISK,
    progress: Progress = lambda _done, _all: None,
) -> RepairResult:
    """Keep the intact data of a damaged store: drop damaged blocks, rewrite lost indices, drop unreadable generations.

    Generations that stay keep their numbers, so checkpoints can still refer to them. The repair copies intact blocks of
    damaged files into new files, then replaces each manifest atomically. A crash leaves a store that can be repaired
    again. Files that are taken out are moved into ``damaged-<time>/``. With ``dry_run`` nothing is changed and no lock
    is taken.

    Raises:
        IncompatibleError: another process writes there, or another version wrote the store.
        FileNotFoundError: the folder contains no store.
        DamagedDataError: nothing can be kept.
    """
    with ExitStack() as stack:
        if not dry_run:
            stack.enter_context(WriterLock(folder / LOCK, f"memory {folder}", "stop that one, then repair"))
        store = stack.enter_context(VerifiedStore(folder, files, progress))
        found = verification_of(store)
        if found.is_intact:
            return RepairResult(found, [], None)
        plan = _RepairPlan(store, files)
        actions = list(plan.actions())
        if dry_run:
            return RepairResult(found, actions, None)
        plan.carry_out()
        return RepairResult(found, actions, plan.moved_to)


class _RepairPlan:
    """The plan of a repair, and its execution."""

    def __init__(self, store: VerifiedStore, files: FileSystem) -> None:
        self._store, self._disk, self._folder = store, files, store.folder
        self._unloadable: dict[int, str] = {}
        """Readable generations whose intact data cannot be loaded, and why."""
        self._generations = self._loadable()
        # Whether no state file is intact, so that the newest generation is rebuilt from the logs.
        self._is_rebuilt = not self._generations
        if self._is_rebuilt:
            store.salvage()
            self._generations = self._loadable()
        if not self._generations:
            reasons = "; ".join(f"generation {number}: {why}" for number, why in self._unloadable.items())
            raise DamagedDataError(
                f"{self._folder}: no generation can be loaded from the intact data ({reasons}), and nothing was "
                "changed; load an older save"
            )
        # All names in the folder before the repair.
        self._names = files.names(store.folder)
        # Folder that the replaced files are moved to.
        self.moved_to = _new_path(store.folder / f"damaged-{datetime.datetime.now():%Y%m%d-%H%M%S}", self._names)
        self._logs = {name: RepairedLog(store.folder, log, files) for name, log in store.logs.items()}
        # Generations whose manifests must name other files than before.
        self._changed = [one for one in self._generations if self._keep_blocks(one.verified)]
        kept = {one.verified.manifest.generation for one in self._generations}
        numbers = generations(self._folder, files)
        # Numbers of the generations that the repaired store has no more. ``carry_out`` moves their manifests away.
        self._dropped = [number for number in numbers if number not in kept]
        # Whether a dropped generation is newer than all that stay: then the newest that stays gets a number above it.
        self._needs_new_number = bool(self._dropped) and max(self._dropped) > max(kept)

    def actions(self) -> Iterator[str]:
        """Yield the planned actions as sentences."""
        for log in self._logs.values():
            yield from log.actions()
        for number in self._dropped:
            why = "its manifest or its state cannot be read"
            if number in self._unloadable:
                why = f"its intact data cannot be loaded ({self._unloadable[number]})"
            yield f"generation {number} is dropped: {why}"
        for number in self._store.recovered:
            yield f"{manifest_path(self._folder, number).name} is rewritten from its state file"
        if self._is_rebuilt:
            yield "no state file is intact: complete segments and blocks of steps are kept from the logs"
        for generation in self._generations:
            number = generation.verified.manifest.generation
            yield f"generation {number} keeps {generation.num_transitions:,} transitions and loses {generation.lost:,}"
            if generation.envs_cut_short:
                numbers = ", ".join(map(str, generation.envs_cut_short))
                yield f"generation {number}: the newest frames of tracks {numbers} are lost, so their episodes end"

    def carry_out(self) -> None:
        """Carry out the plan; after a crash each manifest is either unchanged or repaired."""
        self._disk.make_folder(self.moved_to)
        for log in self._logs.values():
            log.copy_blocks()
            for index in log.indices:
                self._preserve(index)
            log.write_indices()
        manifests = [self._write_repaired(generation) for generation in self._generations]
        if self._needs_new_number:
            manifests = self._renumber(manifests)
        for number in self._dropped:
            self._move(manifest_path(self._folder, number))
        self._disk.sync_folder(self._folder)  # removes manifests before the files that they name
        named = {name for manifest in manifests for name in file_names(manifest)}
        for name in self._names:
            if STORE_FILE.fullmatch(name) and name not in named:
                self._move(self._folder / name)
        self._disk.sync_folder(self.moved_to)
        self._disk.sync_folder(self._folder)

    def _loadable(self) -> list[RepairedGeneration]:
        """Return the repaired generations that can be loaded; note why others cannot."""
        loadable = []
        for verified in self._store.generations:
            number = verified.manifest.generation
            try:
                loadable.append(repair_generation(verified, self._folder, *self._store.views(number)))
            except DamagedDataError as error:
                self._unloadable[number] = str(error)
        return loadable

    def _keep_blocks(self, generation: VerifiedGeneration) -> bool:
        """Plan to keep the intact blocks of a generation; return whether its manifest must be rewritten."""
        manifest = generation.manifest
        has_moved = [
            self._logs[FRAMES].keep(manifest.generation, manifest.frames, generation.intact_segments),
            self._logs[STEPS].keep(manifest.generation, manifest.steps, generation.intact_steps),
        ]
        return self._is_rebuilt or any(has_moved) or bool(generation.lost_steps or generation.lost_segments)

    def _write_repaired(self, generation: RepairedGeneration) -> Manifest:
        """Write the manifest of a generation if it changes; return the current one."""
        manifest = generation.verified.manifest
        number = manifest.generation
        if generation not in self._changed:
            if number in self._store.recovered:
                self._preserve(manifest_path(self._folder, number))
                self._write(manifest)
            return manifest
        repaired = manifest._replace(
            commit=secrets.token_hex(16),  # a memory of the old commit must not continue from the repaired one
            num_transitions=generation.num_transitions,
            frames=self._logs[FRAMES].state(number, manifest.frames),
            steps=self._logs[STEPS].state(number, manifest.steps),
            kept=[number for number in manifest.kept if number not in self._dropped],
        )
        name = state_name(number, is_repaired=manifest.state["name"] == state_name(number))
        repaired = write_state(self._folder, name, repaired, generation.arrays, self._disk)
        self._preserve(manifest_path(self._folder, number))
        self._write(repaired)
        return repaired

    def _renumber(self, manifests: list[Manifest]) -> list[Manifest]:
        """Give the newest generation a number above all dropped ones, so that no reader confuses them."""
        number = ManifestNames.read(self._folder, self._disk).next_generation
        pinned = [manifest for manifest in manifests if manifest.is_pinned]
        self._dropped += [manifest.generation for manifest in manifests if not manifest.is_pinned]
        kept = [manifest.generation for manifest in pinned]
        newest = manifests[-1]._replace(generation=number, commit=secrets.token_hex(16), kept=kept, is_pinned=False)
        self._write(newest)
        return [*pinned, newest]

    def _write(self, manifest: Manifest) -> None:
        number, content = manifest.generation, manifest_content(manifest)
        write_manifest(self._folder, KIND, VERSION, content, generation=number, files=self._disk)

    def _move(self, path: Path) -> None:
        self._disk.replace(path, self.moved_to / path.name)

    def _preserve(self, path: Path) -> None:
        """Copy a file that is about to be replaced."""
        if path.name in self._names:
            with durable_file(self.moved_to / path.name, self._disk) as copy:
                copy.append(self._disk.read(path))


def _new_path(path: Path, names: list[str]) -> Path:
    """Return ``path``, with a number appended if that name exists."""
    return next(
        candidate
        for count in itertools.count(1)
        if (candidate := path if count == 1 else path.with_name(f"{path.name}-{count}")).name not in names
    )


class RepairedLog:
    """The plan for one log.

    ``replaced`` are the log files that no generation may name any more. ``indices`` are indices of other files that
    must be rewritten.
    """

    def __init__(self, folder: Path, log: VerifiedLog, files: FileSystem = DISK) -> None:
        self._folder, self._log, self._disk = folder, log, files
        self.replaced = {*log.damaged_files, *log.missing}
        damaged_indices = {damage.file for damage in log.damages if damage.file.suffix == f".{INDEX}"}
        self.indices = sorted(path for path in damaged_indices if path.with_suffix(f".{LOG}") not in self.replaced)
        # Series of new files. Generations share one if no block of it would mislead them (``_CopiedBlocks``).
        self._copies: list[_CopiedBlocks] = []

    def keep(self, generation: int, state: LogState, keys: Iterable[BlockKey]) -> bool:
        """Plan to keep intact blocks of a generation; return whether its manifest must name other files.

        Call it for older generations first.
        """
        named = {self._folder / name for name in _file_names(self._log.name, state)}
        view = self._log.view(state)
        try:
            spans = {key: span for key in keys if (span := view.find_intact(key)) is not None}
        finally:
            view.close()
        moving = {key: span for key, span in spans.items() if span.file in self.replaced or span.file not in named}
        if moving:
            copies = next((one for one in self._copies if one.can_share(spans)), None)
            if copies is None:
                self._copies.append(copies := _CopiedBlocks())
            copies.add(generation, moving)
        return bool(moving or named & self.replaced)

    def copy_blocks(self) -> None:
        """Copy the blocks of replaced files into new files, and sync those."""
        for copies in self._copies:
            with BlockLogWriter.create(self._folder, self._log.name, files=self._disk) as writer:
                for generation, moving in copies.moving.items():
                    for key, span in sorted(moving.items(), key=lambda item: (item[1].file, item[1].offset)):
                        with self._disk.open_to_read(span.file) as file:
                            writer.append(key, file.read_at(span.offset, span.size))
                    copies.states[generation] = writer.sync()

    def state(self, generation: int, before: LogState) -> LogState:
        """Return the new log state of a generation whose manifest had the state ``before``."""
        names = _file_names(self._log.name, before)
        kept = [
            file for file, name in zip(before["files"], names, strict=True) if self._folder / name not in self.replaced
        ]
        copied = next((one.states[generation] for one in self._copies if generation in one.states), None)
        next_files = [state["next_file"] for one in self._copies for state in one.states.values()]
        return LogState(
            files=kept + (copied["files"] if copied else []), next_file=max([before["next_file"], *next_files])
        )

    def write_indices(self) -> None:
        """Rewrite the damaged and lost indices."""
        if self.indices:
            self._log.repair_indices()

    def actions(self) -> Iterator[str]:
        """Yield the planned actions as sentences."""
        for path in sorted(self.replaced):
            spans = {span for copies in self._copies for span in copies.spans.values()}
            num_moving = sum(span.file == path for span in spans)
            num_lost = len({damage.key for damage in self._log.damages if damage.file == path and damage.key})
            if path in self._log.missing:
                yield f"{path.name} is missing, and no generation names it any more"
            else:
                moving = "1 intact block is" if num_moving == 1 else f"{num_moving:,} intact blocks are"
                left_out = "1 is" if num_lost == 1 else f"{num_lost:,} are"
                yield f"{path.name}: {moving} copied into a new file, {left_out} dropped"
        for path in self.indices:
            yield f"{path.name} is rewritten from its log"


class _CopiedBlocks:
    """Blocks to be copied into one series of new files; ``moving`` has the new ones of each generation.

    A generation must not name blocks that were written after it: a memory that resumes from it would take them for its
    own of the same number. Neither may it name a block of the same number with other content.
    """

    def __init__(self) -> None:
        # Where each block of the series is now, before it is copied.
        self.spans: dict[BlockKey, BlockSpan] = {}
        # By generation, the blocks that no older generation of the series has, and where each is now.
        self.moving: dict[int, dict[BlockKey, BlockSpan]] = {}
        self.states: dict[int, LogState] = {}
        """State of the new log for each generation; set once the blocks are copied."""

    def can_share(self, spans: dict[BlockKey, BlockSpan]) -> bool:
        """Return whether a generation with blocks at ``spans`` may name all of these blocks too."""
        newest: dict[int, int] = {}
        for key in spans:
            newest[key.track] = max(key.number, newest.get(key.track, -1))
        return all(
            spans[key] == span if key in spans else key.number < newest.get(key.track, -1)
            for key, span in self.spans.items()
        )

    def add(self, generation: int, moving: dict[BlockKey, BlockSpan]) -> None:
        """Plan to copy blocks for a generation, except those planned already."""
        self.moving[generation] = {key: span for key, span in moving.items() if key not in self.spans}
        self.spans |= moving


def _file_names(name: str, state: LogState) -> list[str]:
    return [file_name(name, file["number"], LOG) for file in state["files"]]


class RepairedGeneration(NamedTuple):
    """A generation as it will be after the repair."""

    verified: VerifiedGeneration
    arrays: Arrays
    """Arrays of its state file, without lost data."""
    num_transitions: int
    """Transitions of a memory that loads it."""
    lost: int
    """Transitions that it has lost since it was written."""
    envs_cut_short: list[int]
    """Tracks whose open episodes end, because their newest frames are lost."""


def repair_generation(
    verified: VerifiedGeneration, folder: Path, frames: LogView, steps: LogView
) -> RepairedGeneration:
    """Remove lost data from a generation, then verify and load the result from its intact blocks.

    Packed frames stay in their files meanwhile. Other frames are read into RAM, as in a load.

    Raises:
        DamagedDataError: the result cannot be loaded.
        IncompatibleError: this machine has too little memory to load it.
    """
    cut_short = verified.envs_cut_short()
    arrays, manifest, settings = _repair_state(verified), verified.manifest, verified.settings
    check = verify_generation(manifest, settings, arrays, frames, steps)
    missing = [*check.lost_steps, *check.lost_segments]
    if missing or check.problems:
        lacking = [f"block {number} of track {track} is missing" for track, number in missing]
        raise DamagedDataError("; ".join([*check.problems, *lacking]))
    sampler = None if manifest.memory["sampler"]["kind"] in SAMPLERS else Uniform()
    kept = BlockSubset(frames, verified.intact_segments), BlockSubset(steps, verified.intact_steps)
    stored = StoredMemory(folder, manifest, arrays, *kept)
    parts = stored.build(lambda **_: MemoryParts(settings, sampler))
    stored.fill(parts, in_files=True)
    num_transitions = len(parts.steps)
    return RepairedGeneration(verified, arrays, num_transitions, manifest.num_transitions - num_transitions, cut_short)


def _repair_state(verified: VerifiedGeneration) -> Arrays:
    """Return the arrays of a state file without lost data.

    An environment whose newest observation lacks a frame has its episode closed, since no step can follow. If its
    newest frame is lost, the environment continues after a blank frame, which no transition shows. Closing may complete
    a block of steps. The log lacks that block, so the state stores it.
    """
    tracks, numbers = np.array(verified.intact_segments, np.int64).reshape(-1, 2).T
    arrays = verified.arrays | segment_runs(pack_keys(tracks, numbers), verified.settings.num_tracks)
    steps, frames = verified.stored_steps, verified.index_frames()
    for env_id in verified.envs_cut_short():
        newest = steps.newest_positions[env_id : env_id + 1]
        if not frames.contain(env_id, newest, newest)[0]:
            for track in range(env_id, verified.settings.num_tracks, verified.settings.num_envs):
                _add_blank_frame(arrays, track, verified.settings, verified.manifest.frames_per_segment)
            steps.begin(np.array([env_id], np.int32))
        steps.is_open[env_id] = False
        steps.episode_starts[env_id] = steps.run_starts[env_id] = steps.newest_positions[env_id]
    return {**arrays, **steps.state(stored=set(verified.intact_steps))}


def _add_blank_frame(arrays: Arrays, track: int, settings: MemorySettings, frames_per_segment: int) -> None:
    """Open a new segment with one blank frame in a track of frames without an open segment."""
    next_position = int(arrays[NEXT_POSITIONS][track])
    number = next_position // frames_per_segment
    frame = settings.frame.frame_specs[track // settings.num_envs]
    depth = settings.layout.depths[track // settings.num_envs]
    storage = FrameStorage(frame, 1, frames_per_segment=frames_per_segment, depths=[depth])
    storage.begin_at(0, number)
    storage.append(np.zeros(1, np.int32), np.zeros((1, *frame.shape), frame.dtype))
    segment = np.frombuffer(storage.segment(0, number), np.uint8)
    sizes = arrays[OPEN_SIZES].copy()
    before: npt.NDArray[np.int64] = np.cumsum(sizes) - sizes
    arrays[OPEN_SEGMENTS] = np.insert(arrays[OPEN_SEGMENTS], int(before[track]), segment)
    sizes[track] = len(segment)
    positions = arrays[NEXT_POSITIONS].copy()
    positions[track] += 1
    arrays[OPEN_SIZES], arrays[NEXT_POSITIONS] = sizes, positions
