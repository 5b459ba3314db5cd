"""Repair a damaged store: open what is intact, write it beside the damaged files, and swap the two.

``repair_store`` verifies the store, loads each generation without its damaged blocks as ``on_damage="skip"`` does, and
writes it to new files. The order of the disk operations keeps every crash harmless: new files first, then the
manifests, then the damaged files are moved aside.
"""

from __future__ import annotations

import datetime
import itertools
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from framestow.errors import DamagedDataError
from framestow.interface import Closing
from framestow.replay.byte_amounts import format_bytes
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.samplers.notified_sampler import SAMPLERS
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.steps.step_store import restore_env_arrays
from framestow.replay.store.consistency import find_step_problems
from framestow.replay.store.format import (
    FRAMES,
    STEPS,
    STORE_FILE,
    Manifest,
    named_files,
    state_name,
    write_state,
    write_store_manifest,
)
from framestow.replay.store.snapshot import sealed_segments, sealed_steps, update_logs
from framestow.replay.store.verify import (
    Progress,
    Verification,
    VerifiedGeneration,
    VerifiedStore,
)
from framestow.storage.files.block_format import LOG, BlockKey, BlockSpan, repair_hint, unpack_keys
from framestow.storage.files.block_log import BlockLogWriter
from framestow.storage.files.file_system import DISK, FileSystem, write_durably
from framestow.storage.files.manifest import ManifestNames, generations, manifest_path
from framestow.storage.files.writer_lock import LOCK, WriterLock

NO_REPAIR = "a repair cannot mend it; load an older save"


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

    Generations that stay keep their numbers, so checkpoints can still refer to them. If blocks are damaged, the repair
    writes all generations to new files, so it needs as much free disk as the store has bytes. Then it replaces each
    manifest atomically. A crash leaves a store that can be repaired again. Files that are taken out are moved into
    ``damaged-<time>/``. With ``dry_run`` nothing is changed and no lock is taken.

    Raises:
        IncompatibleError: another process writes there, or another version wrote the store.
        FileNotFoundError: the folder contains no store.
        DamagedDataError: nothing can be kept.
    """
    with ExitStack() as stack:
        stack.enter_context(_naming_another_way_out(folder))
        if not dry_run:
            stack.enter_context(WriterLock(folder / LOCK, f"memory {folder}", "stop that one, then repair"))
        store = stack.enter_context(VerifiedStore(folder, files, progress))
        found = store.summarize()
        if found.is_intact:
            return RepairResult(found, [], None)
        repair = _Repair(store, files)
        actions = list(repair.actions())
        if dry_run:
            return RepairResult(found, actions, None)
        repair.carry_out()
        return RepairResult(found, actions, repair.moved_to)


@contextmanager
def _naming_another_way_out(folder: Path) -> Iterator[None]:
    """Let errors name an older save, where they would name a repair."""
    try:
        yield
    except DamagedDataError as error:
        if repair_hint(folder) not in str(error):
            raise
        text = str(error).replace(repair_hint(folder), NO_REPAIR)
        raise DamagedDataError(text) from error


class _Repair:
    """What a repair does, and its execution."""

    def __init__(self, store: VerifiedStore, files: FileSystem) -> None:
        self._store, self._disk, self._folder = store, files, store.folder
        # Generations that cannot be loaded from their intact data, and why.
        self._unloadable: dict[int, str] = {}
        self._generations = self._list_loadable()
        # Whether no state file is intact, so that the newest generation is rebuilt from the logs.
        self._is_rebuilt = not self._generations
        if self._is_rebuilt:
            store.salvage()
            self._generations = self._list_loadable()
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
        self._damaged_files = [path for log in store.logs.values() for path in log.damaged_files]
        self._indices = [
            path
            for log in store.logs.values()
            for path in log.damaged_indices
            if path.with_suffix(f".{LOG}") not in self._damaged_files
        ]
        # Whether the generations are written to new files; otherwise only indices and manifests are rewritten.
        self._is_copied = bool(
            self._is_rebuilt
            or self._damaged_files
            or any(one.verified.lost_steps or one.verified.lost_segments for one in self._generations)
        )
        kept = {one.number for one in self._generations}
        numbers = generations(self._folder, files)
        # Numbers of the generations that the repaired store has no more. ``carry_out`` moves their manifests away.
        self._dropped = [number for number in numbers if number not in kept]
        # Whether a dropped generation is newer than all that stay: then the newest that stays gets a number above it.
        self._needs_new_number = bool(self._dropped) and max(self._dropped) > max(kept)

    def actions(self) -> Iterator[str]:
        """Yield the planned actions as sentences."""
        for log in self._store.logs.values():
            for path in log.damaged_files:
                num_lost = len({damage.key for damage in log.damages if damage.file == path and damage.key})
                left_out = "1 block is" if num_lost == 1 else f"{num_lost:,} blocks are"
                if path in log.missing:
                    why = "no file" if path.name in self._names else "missing"
                    yield f"{path.name} is {why}, and no generation names it any more"
                else:
                    yield f"{path.name}: {left_out} dropped, and no generation names the file any more"
        for path in self._indices:
            yield f"{path.name} is rewritten from its log"
        for number in self._dropped:
            why = "its manifest or its state cannot be read"
            if number in self._unloadable:
                why = f"its intact data cannot be loaded ({self._unloadable[number]})"
            yield f"generation {number} is dropped: {why}"
        for number in self._store.recovered:
            yield f"{manifest_path(self._folder, number).name} is rewritten from its state file"
        if self._is_rebuilt:
            yield "no state file is intact: complete segments and blocks of steps are kept from the logs"
        if self._is_copied:
            size = format_bytes(self._store.num_bytes)
            yield f"the intact data is copied into new files: this needs up to {size} of free disk"
        for one in self._generations:
            yield f"generation {one.number} keeps {one.num_transitions:,} transitions and loses {one.num_lost:,}"
            if one.envs_cut_short:
                numbers = ", ".join(map(str, one.envs_cut_short))
                yield f"generation {one.number}: environments {numbers} lose their newest frames; their episodes end"

    def carry_out(self) -> None:
        """Write the new files, then swap; after a crash each manifest is either unchanged or repaired."""
        repaired = self._write_copies() if self._is_copied else [one.manifest for one in self._generations]
        self._disk.make_folder(self.moved_to)
        if not self._is_copied:
            for index in self._indices:
                self._preserve(index)
            for log in self._store.logs.values():
                log.repair_indices()
        for before, manifest in zip(self._generations, repaired, strict=True):
            if manifest is not before.manifest or before.number in self._store.recovered:
                self._preserve(manifest_path(self._folder, before.number))
                write_store_manifest(self._folder, manifest, self._disk)
        if self._needs_new_number:
            repaired = self._renumber(repaired)
        for number in self._dropped:
            self._move(manifest_path(self._folder, number))
        self._disk.sync_folder(self._folder)  # removes manifests before the files that they name
        named = named_files(repaired)
        for name in self._names:
            if STORE_FILE.fullmatch(name) and name not in named:
                self._move(self._folder / name)
        self._disk.sync_folder(self.moved_to)
        self._disk.sync_folder(self._folder)

    def _list_loadable(self) -> list[RepairedGeneration]:
        """Return the generations that can be loaded from their intact data; record why others cannot."""
        loadable = []
        for verified in self._store.generations:
            try:
                parts, cut_short = load_intact(verified)
                loadable.append(RepairedGeneration(verified, len(parts.steps), cut_short))
            except DamagedDataError as error:
                why = str(error).removesuffix(f"; {repair_hint(self._folder)}")
                self._unloadable[verified.stored.manifest.generation] = why
        return loadable

    def _write_copies(self) -> list[Manifest]:
        """Write each generation to new files; return their manifests. After an error, remove the new files."""
        with ExitStack() as on_error:
            on_error.callback(self._remove_new_files)
            with _NewLogs(self._folder, self._disk) as logs:
                repaired = [self._write_copy(one, logs) for one in self._generations]
            on_error.pop_all()
        return repaired

    def _write_copy(self, generation: RepairedGeneration, logs: _NewLogs) -> Manifest:
        before, stored = generation.manifest, generation.verified.stored
        parts, _ = load_intact(generation.verified)
        frames, steps = logs.of(generation.verified, parts)
        snapshot, _ = update_logs((frames, steps), parts)
        logs.record_written()
        manifest = before._replace(
            commit=secrets.token_hex(16),  # a memory of the old commit must not continue from the repaired one
            num_transitions=snapshot.num_transitions,
            frames=frames.sync(),
            steps=steps.sync(),
            kept=[number for number in before.kept if number not in self._dropped],
        )
        # The sampler stays as it was saved: it may be one that is not installed here.
        of_sampler = {name: array for name, array in stored.arrays.items() if name.startswith("sampler.")}
        arrays = {name: array for name, array in snapshot.arrays.items() if not name.startswith("sampler.")}
        name = state_name(before.generation, is_repaired=before.state["name"] == state_name(before.generation))
        return write_state(self._folder, name, manifest, arrays | of_sampler, self._disk)

    def _remove_new_files(self) -> None:
        with suppress(OSError):
            for name in set(filter(STORE_FILE.fullmatch, self._disk.names(self._folder))) - set(self._names):
                self._disk.remove(self._folder / name)

    def _renumber(self, manifests: list[Manifest]) -> list[Manifest]:
        """Give the newest generation a number above all dropped ones, so that no reader confuses them."""
        number = ManifestNames.read(self._folder, self._disk).next_generation
        pinned = [manifest for manifest in manifests if manifest.is_pinned]
        self._dropped += [manifest.generation for manifest in manifests if not manifest.is_pinned]
        kept = [manifest.generation for manifest in pinned]
        newest = manifests[-1]._replace(generation=number, commit=secrets.token_hex(16), kept=kept, is_pinned=False)
        write_store_manifest(self._folder, newest, self._disk)
        return [*pinned, newest]

    def _move(self, path: Path) -> None:
        self._disk.replace(path, self.moved_to / path.name)

    def _preserve(self, path: Path) -> None:
        """Copy a file that is about to be replaced. Move what is no file, such as a link, or far too large for one."""
        if path.name in self._names:
            try:
                content = self._disk.read(path)
            except DamagedDataError:
                self._move(path)
            else:
                write_durably(self.moved_to / path.name, content, self._disk)


def _new_path(path: Path, names: list[str]) -> Path:
    """Return ``path``, with a number appended if that name exists."""
    return next(
        candidate
        for count in itertools.count(1)
        if (candidate := path if count == 1 else path.with_name(f"{path.name}-{count}")).name not in names
    )


@dataclass(frozen=True)
class RepairedGeneration:
    """A generation that can be loaded from its intact data."""

    verified: VerifiedGeneration
    num_transitions: int
    """Transitions of a memory that loads it."""
    envs_cut_short: list[int]
    """Environments whose open episodes end, because their newest frames are lost."""

    @property
    def manifest(self) -> Manifest:
        """The manifest before the repair."""
        return self.verified.stored.manifest

    @property
    def number(self) -> int:
        """Its number."""
        return self.manifest.generation

    @property
    def num_lost(self) -> int:
        """Transitions that it has lost since it was written."""
        return self.manifest.num_transitions - self.num_transitions


def load_intact(verified: VerifiedGeneration) -> tuple[MemoryParts, list[int]]:
    """Return a memory with the intact data of a generation, and the environments whose newest frames are lost.

    An environment whose newest observation lacks a frame has its episode closed, since no step can follow. It
    continues after a blank frame, which no transition shows. Packed frames stay in their files. Other frames are read
    into RAM, as in a load.

    Raises:
        DamagedDataError: the intact data cannot be loaded.
        IncompatibleError: this machine has too little memory to load it.
    """
    stored, settings = verified.stored, verified.stored.settings
    sampler = None if stored.manifest.memory["sampler"]["kind"] in SAMPLERS else Uniform()
    parts = stored.build(lambda **_: MemoryParts(settings, sampler, on_damage="skip"), in_files=True)
    parts.damage.are_logged = False  # the repair reports them
    stored.fill(parts, in_files=True)
    cut_short = verified.list_envs_cut_short()
    if cut_short:
        env_ids = np.array(cut_short, np.int32)
        blank = [np.zeros((len(env_ids), *frame.shape), frame.dtype) for frame in settings.frame.frame_specs]
        parts.storage.append(env_ids, blank[0] if len(blank) == 1 else tuple(blank))
        parts.steps.begin(env_ids)
        is_open = parts.steps.is_open
        is_open[env_ids] = False
        restore_env_arrays(parts.steps, {"steps.is_open": is_open})
    problems = [*find_step_problems(parts.steps, settings), *verified.open_segment_problems]
    try:
        parts.check_segments()
    except AssertionError as error:  # no memory can have written this
        problems.append(str(error))
    if problems:
        raise DamagedDataError("; ".join(problems))
    return parts, cut_short


class _NewLogs(Closing):
    """The logs of the repaired store. Generations share a series of files unless its blocks would mislead one of them.

    A generation must not name blocks that were written after it: a memory that resumes from it would take them for its
    own of the same number. Neither may it name a block of the same number with other content.
    """

    def __init__(self, folder: Path, files: FileSystem) -> None:
        self._folder, self._disk = folder, files
        self._logs: list[BlockLogWriter] = []  # of frames and of steps
        # By log, the blocks of the series, and where each was in the damaged store; None if nowhere.
        self._written: list[dict[BlockKey, BlockSpan | None]] = []
        self._current: list[dict[BlockKey, BlockSpan | None]] = []  # of the generation that is being written

    def of(self, verified: VerifiedGeneration, parts: MemoryParts) -> tuple[BlockLogWriter, BlockLogWriter]:
        """Return the logs that a generation may share, or new ones."""
        sealed = sealed_segments(parts), sealed_steps(parts.steps)
        blocks = verified.stored.frames, verified.stored.steps
        self._current = [
            {key: of_log.find(key) if key in of_log else None for key in unpack_keys(keys)}
            for keys, of_log in zip(sealed, blocks, strict=True)
        ]
        if not self._logs or not all(map(_may_share, self._written, self._current)):
            self.close()
            self._logs = [BlockLogWriter.open(self._folder, name, None, files=self._disk) for name in (FRAMES, STEPS)]
            self._written = [{}, {}]
        frames, steps = self._logs
        return frames, steps

    def record_written(self) -> None:
        """Count the blocks of the last generation to the series."""
        for written, current in zip(self._written, self._current, strict=True):
            written.update(current)

    def close(self) -> None:
        """Close the files."""
        for log in self._logs:
            log.close()


def _may_share(written: dict[BlockKey, BlockSpan | None], current: dict[BlockKey, BlockSpan | None]) -> bool:
    """Return whether a generation with the ``current`` blocks may name all written ones too."""
    newest: dict[int, int] = {}
    for key in current:
        newest[key.track] = max(key.number, newest.get(key.track, -1))
    return all(
        span is not None and current[key] == span if key in current else key.number < newest.get(key.track, -1)
        for key, span in written.items()
    )
