"""Repair a damaged store within its folder: write what is intact under a new id, and move the rest aside.

``repair_store`` verifies the store, and loads each generation without its damaged blocks, as ``on_damage="skip"`` does.
It writes each under its own number, oldest first, into logs of a new id: the commit, then its copy. The newest commit
lists the new id first, as for any writer. So a killed repair changes no generation but those that it has finished, and
can be repeated. If it removes the highest number, a commit above all has the content of the newest generation left,
since numbers are never used again. Files are moved aside last.
"""

from __future__ import annotations

import datetime
import errno
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from framestow.errors import DamagedDataError
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.samplers.notified_sampler import SAMPLERS
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.store.consistency import find_step_problems
from framestow.replay.store.format import (
    Commit,
    FolderContents,
    commit_path,
    pack_arrays,
)
from framestow.replay.store.snapshot import PackedKeys, sealed_segments, sealed_steps
from framestow.replay.store.verify import Progress, Verification, VerifiedGeneration, VerifiedStore
from framestow.replay.store.writer import StoreWriter
from framestow.storage.files.block_format import LOG, repair_hint, unpack_keys
from framestow.storage.files.block_log import BlockLogWriter
from framestow.storage.files.block_log_reader import BlockLogReader
from framestow.storage.files.file_system import DISK, FileSystem, write_durably
from framestow.storage.files.writer_lock import LOCK, LockedFiles, WriterLock

NO_REPAIR = "a repair cannot mend it; load an older save"


@dataclass(frozen=True)
class RepairResult:
    """Findings and actions of a repair."""

    found: Verification
    actions: list[str]
    """One sentence for each action; of a dry run, the actions that a repair would take."""
    moved_to: Path | None
    """Folder with the files that were taken out; ``None`` if nothing was changed."""
    copied_bytes: int = 0
    """Free disk that copying the intact data takes, at most; 0 if it stays where it is."""


def repair_store(
    folder: Path,
    *,
    dry_run: bool = False,
    files: FileSystem = DISK,
    progress: Progress = lambda _done, _all: None,
) -> RepairResult:
    """Keep the intact data of a damaged store: without damaged blocks or unreadable generations, with new indices.

    Generations that stay keep their numbers, so checkpoints can still refer to them. If blocks are damaged, the repair
    writes all generations to new files, so it needs as much free disk as the store has bytes. A crash leaves a store
    that can be repaired again. Files that are taken out are moved into ``damaged-<time>/``. With ``dry_run`` nothing is
    changed and no lock is taken.

    Raises:
        IncompatibleError: another process writes there, or another version wrote the store.
        FileNotFoundError: the folder contains no store.
        DamagedDataError: nothing can be kept.
    """
    with ExitStack() as stack:
        stack.enter_context(_naming_another_way_out(folder))
        lock = None
        if not dry_run:
            lock = stack.enter_context(WriterLock(folder / LOCK, f"memory {folder}", "stop that one, then repair"))
            files = LockedFiles(files, lock)
        store = stack.enter_context(VerifiedStore(folder, files, progress))
        found = store.summarize()
        if found.is_intact:
            return RepairResult(found, [], None)
        repair = _Repair(store, files)
        actions = list(repair.actions())
        if lock is None:
            return RepairResult(found, actions, None, repair.copied_bytes)
        repair.carry_out(lock)
        return RepairResult(found, actions, repair.moved_to, repair.copied_bytes)


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
        if not self._generations:
            reasons = "; ".join(f"generation {number}: {why}" for number, why in self._unloadable.items())
            raise DamagedDataError(
                f"{self._folder}: no generation can be loaded from the intact data ({reasons}), and nothing was "
                "changed; load an older save"
            )
        # All names in the folder before the repair.
        self._names = files.names(store.folder)
        self._preserved: set[str] = set()  # names that `moved_to` has, or gets
        # Folder that the replaced files are moved to.
        self.moved_to = _new_path(store.folder / f"damaged-{datetime.datetime.now():%Y%m%d-%H%M%S}", self._names)
        self._damaged_files = [path for log in store.logs.values() for path in log.damaged_files]
        self._indices = [
            path
            for log in store.logs.values()
            for path in log.damaged_indices
            if path.with_suffix(f".{LOG}") not in self._damaged_files
        ]
        # Whether the generations are written to new files; otherwise only indices and commits are rewritten.
        self._is_copied = bool(self._damaged_files) or any(
            one.verified.lost_steps or one.verified.lost_segments for one in self._generations
        )
        # Generations that the repaired store has no more.
        self._removed = sorted({*store.damaged, *self._unloadable})

    @property
    def copied_bytes(self) -> int:
        """As of ``RepairResult``."""
        return self._store.num_bytes if self._is_copied else 0

    def actions(self) -> Iterator[str]:
        """Yield the planned actions as sentences."""
        for log in self._store.logs.values():
            for path in log.damaged_files:
                num_lost = len({damage.key for damage in log.damages if damage.file == path and damage.key})
                blocks = "1 block is" if num_lost == 1 else f"{num_lost:,} blocks are"
                if path in log.unusable:
                    yield f"{path.name} cannot be used, and no generation names it any more"
                else:
                    yield f"{path.name}: {blocks} left out, and no generation names the file any more"
        for path in self._indices:
            yield f"{path.name} is rewritten from its log"
        for path in self._store.damaged_files:
            yield f"{path.name} is rewritten: of a commit and its copy, the other file is whole"
        for number in self._removed:
            why = "its commit is damaged"
            if number in self._unloadable:
                why = f"its intact data cannot be loaded ({self._unloadable[number]})"
            yield f"generation {number} is removed: {why}"
        if self._is_copied:
            yield "the intact data is copied into new files"
        for one in self._generations:
            yield f"generation {one.number} keeps {one.num_transitions:,} transitions and loses {one.num_lost:,}"
            if one.envs_cut_short:
                numbers = ", ".join(map(str, one.envs_cut_short))
                yield f"generation {one.number}: environments {numbers} lose their newest frames; their episodes end"

    def carry_out(self, lock: WriterLock) -> None:
        """Write the new files, then move aside what no generation needs; after a crash this can be repeated."""
        self._disk.make_folder(self.moved_to)
        if not self._is_copied:
            for index in self._indices:
                self._preserve(index)
            for log in self._store.logs.values():
                log.repair_indices()
        if self._is_copied or self._store.findings:  # of the logs, or of commits
            for path in self._store.damaged_files:
                self._preserve(path)
            damaged = self._store.damaged
            with StoreWriter(self._folder, files=self._disk, lock=lock, ignored=damaged) as writer:
                if writer.newest is not None:  # it lists the ids of the new logs, and what is kept
                    self._preserve_commit(writer.newest.generation)
                if self._is_copied:
                    self._write_generations(writer)
                else:
                    for number in sorted({*self._store.damaged_files.values()} & writer.generations.keys()):
                        writer.rewrite(writer.generations[number], writer.state_of(number), with_copy=True)
                lock.check()  # what is read next is of the folder that was verified
                newest = self._write_newest(writer)
                lock.check()
                self._move_unneeded(newest)
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
                self._unloadable[verified.stored.commit.generation] = why
        return loadable

    def _write_generations(self, writer: StoreWriter) -> None:
        """Write each generation under its own number into logs of a new id, or of several."""
        store = ""  # the id of the generation before
        for one in self._generations:
            parts, _ = load_intact(one.verified)
            if one.commit.id != store or not _may_share(writer, one.verified, parts):
                writer.continue_from(None)
            store = one.commit.id
            commit, snapshot = writer.append(writer.open_logs(), parts)
            # The sampler stays as it was saved: it may be one that is not installed here.
            arrays = {name: array for name, array in snapshot.arrays.items() if not name.startswith("sampler.")}
            arrays |= {name: array for name, array in one.verified.stored.arrays.items() if name.startswith("sampler.")}
            self._preserve_commit(one.number)
            writer.rewrite(
                commit._replace(
                    generation=one.number,
                    memory=one.commit.memory,
                    kept=[number for number in one.commit.kept if number not in self._removed],
                    is_pinned=one.commit.is_pinned,
                    is_closed=one.commit.is_closed,
                ),
                pack_arrays(arrays),
                with_copy=True,
            )

    def _write_newest(self, writer: StoreWriter) -> Commit:
        """Let the newest commit keep the generations that are left, and no other; return it."""
        *older, number = (one.number for one in self._generations)
        if number < max(FolderContents(self._folder, self._disk).numbers):
            return writer.write_again(number, kept=[*older, number])
        commit = writer.generations[number]
        if commit.kept != older:
            commit = writer.rewrite(commit._replace(kept=older), writer.state_of(number), with_copy=True)
        return commit

    def _move_unneeded(self, newest: Commit) -> None:
        """Move the commits that do not exist any more, and all files of the store that no other one names."""
        contents = FolderContents(self._folder, self._disk)
        stay = {newest.generation, *newest.kept}
        commits = [
            path.name
            for number in contents.numbers
            if number not in stay
            for is_copy in (True, False)
            if (path := commit_path(self._folder, number, is_copy=is_copy)).name in contents.names
        ]
        left_over = contents.left_over(newest.ids, [contents.read(number).whole() for number in sorted(stay)])
        for name in [*commits, *left_over]:
            self._disk.replace(self._folder / name, self.moved_to / name)

    def _preserve_commit(self, number: int) -> None:
        for is_copy in (False, True):
            self._preserve(commit_path(self._folder, number, is_copy=is_copy))

    def _preserve(self, path: Path) -> None:
        """Copy a file that is about to be replaced, once. Move what is no file, far too large, or unreadable."""
        if path.name in self._names and path.name not in self._preserved:
            self._preserved.add(path.name)
            try:
                content = self._disk.read(path)
            except OSError as error:
                if not isinstance(error, DamagedDataError) and error.errno != errno.EIO:
                    raise
                self._disk.replace(path, self.moved_to / path.name)
            else:
                write_durably(self.moved_to / path.name, content, self._disk)


def _may_share(writer: StoreWriter, verified: VerifiedGeneration, parts: MemoryParts) -> bool:
    """Return whether a generation has the blocks of the same keys that the logs have from those before it.

    One whose newest frames were lost may have a blank frame where a later one has the true one.
    """

    def are_equal(log: BlockLogWriter, blocks: BlockLogReader, keys: PackedKeys) -> bool:
        return all(
            key in blocks and (blocks.version(key), blocks.find(key).checksum) == (row.version, row.checksum)
            for key in unpack_keys(keys)
            if (row := log.table.get(key)) is not None
        )

    frames, steps = writer.open_logs()
    of_frames, of_steps = verified.stored.frames, verified.stored.steps
    return are_equal(frames, of_frames, sealed_segments(parts)) and are_equal(
        steps, of_steps, sealed_steps(parts.steps)
    )


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
    def commit(self) -> Commit:
        """The commit before the repair."""
        return self.verified.stored.commit

    @property
    def number(self) -> int:
        """Its number."""
        return self.commit.generation

    @property
    def num_lost(self) -> int:
        """Transitions that it has lost since it was written."""
        return self.commit.num_transitions - self.num_transitions


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
    sampler = None if stored.commit.memory["sampler"]["kind"] in SAMPLERS else Uniform()
    parts = stored.build(lambda **_: MemoryParts(settings, sampler, on_damage="skip"), in_files=True)
    parts.damage.are_logged = False  # the repair reports them
    stored.fill(parts, in_files=True)
    cut_short = verified.list_envs_cut_short()
    if cut_short:
        env_ids = np.array(cut_short, np.int32)
        blank = [np.zeros((len(env_ids), *array.observed_shape), array.frame.dtype) for array in settings.layout.arrays]
        parts.core.plan_begin(tuple(blank), env_ids, are_whole=True)
        parts.core.apply()
        for env_id in cut_short:
            parts.core.close_episode(env_id)
    problems = [*find_step_problems(parts.steps, settings), *verified.open_segment_problems]
    try:
        parts.check_segments()
    except AssertionError as error:  # no memory can have written this
        problems.append(str(error))
    if problems:
        raise DamagedDataError("; ".join(problems))
    return parts, cut_short
