"""Repairs a store: keeps what is whole, and says what is lost."""

from __future__ import annotations

import datetime
import itertools
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from framestow.errors import DamagedDataError
from framestow.replay.saving.examination import ExaminedStore, Progress
from framestow.replay.saving.examined_generation import ExaminedGeneration
from framestow.replay.saving.repaired_log import RepairedLog
from framestow.replay.saving.repaired_state import RepairedGeneration, repaired_generation
from framestow.replay.saving.state_file import state_name, write_state
from framestow.replay.saving.store_format import (
    FRAMES,
    KIND,
    STEPS,
    VERSION,
    Manifest,
    file_names,
    manifest_content,
)
from framestow.replay.saving.verification import Verification, verification_of
from framestow.storage.files.block_format import INDEX, LOG
from framestow.storage.files.file_system import DISK, FileSystem, durable_file
from framestow.storage.files.manifest import generations, manifest_path, next_generation, write_manifest
from framestow.storage.files.writer_lock import LOCK, WriterLock

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
