"""Repairs a store: keeps what is whole, and says what is lost."""

from __future__ import annotations

import datetime
import itertools
import re
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
from framestow.replay.store.blocks import ExaminedLog, KeptBlocks, LogView
from framestow.replay.store.examination import ExaminedGeneration, ExaminedStore, Progress, examine_generation
from framestow.replay.store.format import FRAMES, KIND, STEPS, VERSION, Manifest, file_names, manifest_content
from framestow.replay.store.reader import StoredMemory
from framestow.replay.store.session import built
from framestow.replay.store.snapshot import (
    NEXT_POSITIONS,
    OPEN_SEGMENTS,
    OPEN_SIZES,
    Arrays,
    held_runs,
    state_name,
    write_state,
)
from framestow.replay.store.verify import Verification, verification_of
from framestow.storage.files.block_format import INDEX, LOG, BlockKey, BlockPlace, LogState, file_name
from framestow.storage.files.block_log import BlockLogWriter
from framestow.storage.files.file_system import DISK, FileSystem, durable_file
from framestow.storage.files.manifest import generations, manifest_path, next_generation, write_manifest
from framestow.storage.files.writer_lock import LOCK, WriterLock
from framestow.storage.storages import make_storage


class RepairedLog:
    """What becomes of one log.

    ``replaced`` are the log files that no generation is to name any more; ``indices`` those of other files that have to
    be written anew.
    """

    def __init__(self, folder: Path, log: ExaminedLog, files: FileSystem = DISK) -> None:
        self._folder, self._log, self._disk = folder, log, files
        self.replaced = {*log.damaged_files, *log.missing}
        damaged_indices = {damage.file for damage in log.damages if damage.file.suffix == f".{INDEX}"}
        self.indices = sorted(path for path in damaged_indices if path.with_suffix(f".{LOG}") not in self.replaced)
        self._copies: list[_Copies] = []

    def keep(self, generation: int, state: LogState, keys: Iterable[BlockKey]) -> bool:
        """See to it that whole blocks of a generation stay; tell whether its manifest has to name other files then.

        Call it for older generations first.
        """
        named = {self._folder / name for name in _file_names(self._log.name, state)}
        view = self._log.view(state)
        try:
            places = {key: place for key in keys if (place := view.whole_place(key)) is not None}
        finally:
            view.close()
        moving = {key: place for key, place in places.items() if place.file in self.replaced or place.file not in named}
        if moving:
            copies = next((one for one in self._copies if one.fit(places)), None)
            if copies is None:
                self._copies.append(copies := _Copies())
            copies.add(generation, moving)
        return bool(moving or named & self.replaced)

    def copy_blocks(self) -> None:
        """Copy what has to move into new files; they are on the disk when this returns."""
        for copies in self._copies:
            with BlockLogWriter.create(self._folder, self._log.name, files=self._disk) as writer:
                for generation, moving in copies.moving.items():
                    for key, place in sorted(moving.items(), key=lambda item: (item[1].file, item[1].offset)):
                        with self._disk.open_to_read(place.file) as file:
                            writer.append(key, file.read_at(place.offset, place.size))
                    copies.states[generation] = writer.sync()

    def state(self, generation: int, former: LogState) -> LogState:
        """What the manifest of a generation that said ``former`` has to say of the log now."""
        names = _file_names(self._log.name, former)
        kept = [
            file for file, name in zip(former["files"], names, strict=True) if self._folder / name not in self.replaced
        ]
        copied = next((one.states[generation] for one in self._copies if generation in one.states), None)
        next_files = [state["next_file"] for one in self._copies for state in one.states.values()]
        return LogState(
            files=kept + (copied["files"] if copied else []), next_file=max([former["next_file"], *next_files])
        )

    def write_indices(self) -> None:
        """Write the damaged and lost indices anew."""
        if self.indices:
            self._log.repair_indices()

    def told(self) -> Iterator[str]:
        """What is going to be done, in sentences."""
        for path in sorted(self.replaced):
            places = {place for copies in self._copies for place in copies.places.values()}
            num_moving = sum(place.file == path for place in places)
            num_lost = len({damage.key for damage in self._log.damages if damage.file == path and damage.key})
            if path in self._log.missing:
                yield f"{path.name} is gone, and named no more"
            else:
                moving = "1 whole block is" if num_moving == 1 else f"{num_moving:,} whole blocks are"
                left_out = "1 is" if num_lost == 1 else f"{num_lost:,} are"
                yield f"{path.name}: {moving} copied into a new file, {left_out} left out"
        for path in self.indices:
            yield f"{path.name} is written anew from its log"


class _Copies:
    """Blocks that are copied into one row of new files, by generation those that it names beside those before it.

    So a generation names, as where no repair was, no block of what came after it: whoever goes on from it would take
    that for its own of the same number. Nor a block of the same number that other steps led to.
    """

    def __init__(self) -> None:
        self.places: dict[BlockKey, BlockPlace] = {}
        self.moving: dict[int, dict[BlockKey, BlockPlace]] = {}
        self.states: dict[int, LogState] = {}
        """Of the new log, once it is written."""

    def fit(self, places: dict[BlockKey, BlockPlace]) -> bool:
        """Whether a generation whose blocks lie at ``places`` may name all of these too."""
        newest: dict[int, int] = {}
        for key in places:
            newest[key.stream] = max(key.number, newest.get(key.stream, -1))
        return all(
            places[key] == place if key in places else key.number < newest.get(key.stream, -1)
            for key, place in self.places.items()
        )

    def add(self, generation: int, moving: dict[BlockKey, BlockPlace]) -> None:
        """Copy these for a generation, but for those that are copied already."""
        self.moving[generation] = {key: place for key, place in moving.items() if key not in self.places}
        self.places |= moving


def _file_names(name: str, state: LogState) -> list[str]:
    return [file_name(name, file["number"], LOG) for file in state["files"]]


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
    sampler = None if manifest.memory["sampler"]["kind"] in SAMPLERS else Uniform()
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


_OF_A_STORE = re.compile(rf"({FRAMES}|{STEPS})\.\d+\.({LOG}|{INDEX})|state\.\d+(\.repaired)?\.npz")


@dataclass(frozen=True)
class Repair:
    """What was wrong, and what was done about it."""

    found: Verification
    actions: list[str]
    """A sentence each; what would be done, where nothing was to be changed."""
    moved_to: Path | None
    """Folder of what was taken out; None where nothing was."""


def repair_store(
    folder: Path,
    *,
    dry_run: bool = False,
    files: FileSystem = DISK,
    progress: Progress = lambda _done, _all: None,
) -> Repair:
    """Leave out damaged blocks, write lost indices anew, give up generations that cannot be read.

    Every generation that stays keeps its number, so what refers to it (a checkpoint) goes on doing so. Whole blocks of
    a damaged file are copied into a new one, then each manifest is replaced in one step: whatever breaks a repair off
    leaves a store that is as damaged as before or less, and can be repaired again. What is taken out is moved into
    ``damaged-<time>/`` in the folder. With ``dry_run`` nothing is changed and no lock taken.

    Raises ``IncompatibleError`` where another process writes there or the store is of another version,
    ``FileNotFoundError`` where there is none, and ``DamagedDataError`` where nothing can be kept.
    """
    with ExitStack() as stack:
        if not dry_run:
            stack.enter_context(WriterLock(folder / LOCK, f"memory {folder}", "stop that one, then repair"))
        store = stack.enter_context(ExaminedStore(folder, files, progress))
        found = verification_of(store)
        if found.is_whole:
            return Repair(found, [], None)
        repairing = _Repairing(store, files)
        actions = list(repairing.told())
        if dry_run:
            return Repair(found, actions, None)
        repairing.carry_out()
        return Repair(found, actions, repairing.moved_to)


class _Repairing:
    """A repair under way: first everything that is new, then the manifests, then what only the former ones named."""

    def __init__(self, store: ExaminedStore, files: FileSystem) -> None:
        self._store, self._disk, self._folder = store, files, store.folder
        self._unloadable: dict[int, str] = {}
        """Generations that could be read, but whose whole blocks make no memory, and why."""
        self._generations = self._loadable()
        self._is_rebuilt = not self._generations
        if self._is_rebuilt:
            store.salvage()
            self._generations = self._loadable()
        if not self._generations:
            reasons = "; ".join(f"generation {number}: {why}" for number, why in self._unloadable.items())
            raise DamagedDataError(
                f"{self._folder}: what is whole makes no memory that can be loaded ({reasons}), so nothing is changed; "
                "take an older save"
            )
        self._there = files.names(store.folder)
        self.moved_to = _unused(store.folder / f"damaged-{datetime.datetime.now():%Y%m%d-%H%M%S}", self._there)
        self._logs = {name: RepairedLog(store.folder, log, files) for name, log in store.logs.items()}
        self._changed = [one for one in self._generations if self._changes(one.examined)]
        kept = {one.examined.manifest.generation for one in self._generations}
        numbers = generations(self._folder, files)
        self._given_up = [number for number in numbers if number not in kept]
        self._is_succeeded = bool(self._given_up) and max(self._given_up) > max(kept)

    def told(self) -> Iterator[str]:
        """What is going to be done, in sentences."""
        for log in self._logs.values():
            yield from log.told()
        for number in self._given_up:
            why = "its manifest or its state cannot be read"
            if number in self._unloadable:
                why = f"what is whole of it cannot be loaded ({self._unloadable[number]})"
            yield f"generation {number} is given up: {why}"
        for number in self._store.recovered:
            yield f"{manifest_path(self._folder, number).name} is written anew from its state file"
        if self._is_rebuilt:
            yield "no state file is whole: what its logs hold in whole segments and blocks of steps is kept"
        for generation in self._generations:
            number = generation.examined.manifest.generation
            yield f"generation {number} keeps {generation.num_transitions:,} transitions and loses {generation.lost:,}"
            if generation.streams_cut_short:
                numbers = ", ".join(map(str, generation.streams_cut_short))
                yield f"generation {number}: the newest frames of streams {numbers} are lost, so their episodes end"

    def carry_out(self) -> None:
        """Do it; whatever breaks this off leaves each manifest as it was, or repaired."""
        self._disk.make_folder(self.moved_to)
        for log in self._logs.values():
            log.copy_blocks()
            for index in log.indices:
                self._preserve(index)
            log.write_indices()
        manifests = [self._written(generation) for generation in self._generations]
        if self._is_succeeded:
            manifests = self._succeeded(manifests)
        for number in self._given_up:
            self._move(manifest_path(self._folder, number))
        self._disk.sync_folder(self._folder)  # manifests go before what they name
        named = {name for manifest in manifests for name in file_names(manifest)}
        for name in self._there:
            if _OF_A_STORE.fullmatch(name) and name not in named:
                self._move(self._folder / name)
        self._disk.sync_folder(self.moved_to)
        self._disk.sync_folder(self._folder)

    def _loadable(self) -> list[RepairedGeneration]:
        """What becomes of the generations that can be read, without those that could not be loaded then."""
        loadable = []
        for examined in self._store.generations:
            number = examined.manifest.generation
            try:
                loadable.append(repaired_generation(examined, self._folder, *self._store.views(number)))
            except DamagedDataError as error:
                self._unloadable[number] = str(error)
        return loadable

    def _changes(self, generation: ExaminedGeneration) -> bool:
        """See to it that its whole blocks stay; tell whether its manifest has to be written anew."""
        manifest = generation.manifest
        has_moved = [
            self._logs[FRAMES].keep(manifest.generation, manifest.frames, generation.whole_segments),
            self._logs[STEPS].keep(manifest.generation, manifest.steps, generation.whole_steps),
        ]
        return self._is_rebuilt or any(has_moved) or bool(generation.lost_steps or generation.lost_segments)

    def _written(self, generation: RepairedGeneration) -> Manifest:
        """Replace its manifest where it changes; give the one that is there now."""
        manifest = generation.examined.manifest
        number = manifest.generation
        if generation not in self._changed:
            if number in self._store.recovered:
                self._preserve(manifest_path(self._folder, number))
                self._write(manifest)
            return manifest
        repaired = manifest._replace(
            commit=secrets.token_hex(16),  # a memory that saved the former one does not go on from this
            num_transitions=generation.num_transitions,
            frames=self._logs[FRAMES].state(number, manifest.frames),
            steps=self._logs[STEPS].state(number, manifest.steps),
            kept=[number for number in manifest.kept if number not in self._given_up],
        )
        name = state_name(number, is_repaired=manifest.state["name"] == state_name(number))
        repaired = write_state(self._folder, name, repaired, generation.arrays, self._disk)
        self._preserve(manifest_path(self._folder, number))
        self._write(repaired)
        return repaired

    def _succeeded(self, manifests: list[Manifest]) -> list[Manifest]:
        """Let the newest one go on under a number above those that are given up, which nobody may take for them."""
        number = next_generation(self._folder, self._disk)
        pinned = [manifest for manifest in manifests if manifest.is_pinned]
        self._given_up += [manifest.generation for manifest in manifests if not manifest.is_pinned]
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
        """Copy a file that is replaced in one step."""
        if path.name in self._there:
            with durable_file(self.moved_to / path.name, self._disk) as copy:
                copy.append(self._disk.read(path))


def _unused(path: Path, names: list[str]) -> Path:
    """``path``, or where there is one of that name, with a number behind it."""
    return next(
        candidate
        for count in itertools.count(1)
        if (candidate := path if count == 1 else path.with_name(f"{path.name}-{count}")).name not in names
    )
