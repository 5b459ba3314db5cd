"""Write a store: append new blocks to its logs, then commit them with a manifest.

``StoreWriter`` is the one writer of a folder. ``BlockCopier`` copies a memory's sealed blocks to a log while the memory
is in use.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import RLock

import numpy as np
import numpy.typing as npt

from framestow.closing import Closing
from framestow.errors import DamagedDataError, FramestowError, IncompatibleError
from framestow.replay.eviction import evict_unreferenced_frames
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.steps.step_store import StepStore
from framestow.replay.store.folder_contents import FolderContents
from framestow.replay.store.format import (
    FRAMES,
    KIND,
    STEPS,
    VERSION,
    Manifest,
    file_names,
    manifest_content,
    read_checked_manifest,
)
from framestow.replay.store.snapshot import Snapshot, state_name, take_snapshot, write_state
from framestow.storage.files.block_format import BlockKey, BlockSpan, pack_keys, unpack_keys
from framestow.storage.files.block_log import FILE_BYTES, BlockLogWriter
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import (
    Begun,
    begin_generation,
    end_generation,
    generations,
    remove_superseded,
    supersede_manifest,
    write_manifest,
)
from framestow.storage.files.writer_lock import LOCK, WriterLock

FEW_BLOCKS = 32  # may be copied while the memory waits
MAX_ROUNDS = 16  # a memory that seals blocks faster than the disk writes waits after these
PackedKeys = npt.NDArray[np.int64]  # of blocks, ascending (``pack_keys``)


class StoreWriter(Closing):
    """The one writer of a folder, which stays locked until ``close``.

    ``commit`` writes the data that the store lacks, in three phases. The memory waits only for copies of small pieces::

        1. sealed blocks   one by one: copy under the memory's lock, append without it, until few are missing
        2. snapshot        under the lock: copy the small state, and the few blocks that were sealed meanwhile
        3. commit          append those blocks, sync the logs, write state file and manifest, remove unneeded files

    A block that is evicted between 1 and 2 is written, but no manifest names it. After an interruption at any line, the
    next commit starts from the files on the disk and ignores its earlier state in RAM.

    A writer removes only files that it created, files that a dead writer announced, and files of a superseded
    generation. Before phase 1 it announces the numbers of its new files. After phase 3 it first renames the manifests
    of superseded generations, then removes the files that only they name, then these manifests and the announcement.

    Raises:
        DamagedDataError: a manifest of the folder is damaged or missing; the message names it.
        IncompatibleError: another process writes to the folder, or another version wrote a manifest.
    """

    def __init__(self, folder: Path, *, file_bytes: int = FILE_BYTES, files: FileSystem = DISK) -> None:
        files.make_folder(folder)
        self.folder = folder
        self._file_bytes, self._disk = file_bytes, files
        self._lock = WriterLock(folder / LOCK, f"memory {folder}", "close that one, or give another folder")
        self._base: Manifest | None = None  # generation that the logs continue from
        self._next_generation = 1  # number of the next commit
        self._attempt = ""  # name of the last commit that was started
        self._logs: tuple[BlockLogWriter, BlockLogWriter] | None = None  # of frames and of steps; None after a failure
        self.generations: dict[int, Manifest] = {}
        """Manifests by number: the newest one, and the older ones that it keeps."""
        self._superseded: dict[int, Manifest] = {}  # manifests whose files are to be removed
        self._strangers: list[Manifest] = []  # manifests of another memory, whose files stay
        self.left_over: dict[Path, int] = {}
        """Files with uncommitted data of a crash, and the bytes that were removed from each."""
        self.moved: list[BlockKey] = []
        """Segments of frames that are at a new offset in the files. ``OpenStore`` clears the list."""
        with ExitStack() as on_error:
            on_error.callback(self._lock.close)
            self._contents = self._read_generations()  # of the folder before ``begin``
            on_error.pop_all()

    def _read_generations(self) -> FolderContents:
        """Read the manifests of the folder, and return its contents."""
        contents = FolderContents(self.folder, self._disk)
        newest_number = contents.newest_generation
        self._next_generation = contents.free_generation
        numbers, self.generations, self._superseded = contents.manifests.generations, {}, {}
        self._strangers = []
        if newest_number is not None:
            newest = read_checked_manifest(self.folder, newest_number, self._disk)
            kept = [number for number in newest.kept if number in numbers]  # the others were pruned
            self.generations = {number: read_checked_manifest(self.folder, number, self._disk) for number in kept}
            self.generations[newest.generation] = newest
            for number in set(numbers) - set(self.generations):
                with suppress(DamagedDataError, IncompatibleError):
                    older = read_checked_manifest(self.folder, number, self._disk)
                    if older.commit in newest.follows:
                        self._superseded[number] = older
                    else:
                        self._strangers.append(older)
        for number in contents.manifests.superseded:
            with suppress(DamagedDataError, IncompatibleError):
                self._superseded[number] = read_checked_manifest(self.folder, number, self._disk, is_superseded=True)
        return contents

    @property
    def newest(self) -> Manifest | None:
        """Manifest of the newest generation, or ``None``."""
        return self.generations[max(self.generations)] if self.generations else None

    @property
    def file_bytes(self) -> int:
        """Bytes of the logs and of the newest state file."""
        state = 0 if self._base is None else int(self._base.state["bytes"])
        return state + sum(log.file_bytes for log in self._logs or ())

    @property
    def pinned(self) -> set[int]:
        """Generations that later commits keep by default."""
        if self._base is None:
            return set()
        return {*self._base.kept, *([self._base.generation] if self._base.is_pinned else [])}

    def with_commit(self, *commits: str) -> Manifest | None:
        """Return the newest generation that one of ``commits`` wrote, or ``None`` if it was removed."""
        made = [number for number, manifest in self.generations.items() if manifest.commit in commits]
        return self.generations[max(made)] if made else None

    def begin(self, base: Manifest | None) -> None:
        """Continue from generation ``base``, which has the memory's data of then; ``None``: write everything."""
        self._base = base
        for path in self._find_leftovers(self._contents):
            self.left_over[path] = self._disk.size(path)
            self._disk.remove(path)
        with ExitStack() as on_error:
            frames = self._open_log(FRAMES, base)
            on_error.callback(frames.close)
            self._logs = frames, self._open_log(STEPS, base)
            on_error.pop_all()

    def commit(
        self, parts: MemoryParts, kept: Collection[int], *, is_pinned: bool = False, is_closed: bool = False
    ) -> Manifest:
        """Write and sync a generation, and return its manifest. Of the older ones, keep the numbers in ``kept``.

        Raises:
            OSError: the disk refused. The newest generation is the previous one; it may be this one if only the last
                sync failed.
        """
        logs, self._logs = self._open_logs(), None  # set again after success
        with ExitStack() as on_error:
            on_error.callback(self._free_disk)
            for log in logs:
                on_error.callback(log.close)
            manifest = self._commit(logs, parts, set(kept), is_pinned, is_closed)
            on_error.pop_all()
        self._logs = logs
        return manifest

    def _free_disk(self) -> None:
        """Remove what a failed commit left, in case the disk is full."""
        with suppress(OSError, FramestowError):
            self._remove_unneeded(self._open_logs())

    def find(self, key: BlockKey) -> BlockSpan:
        """Return where a sealed segment is; raise ``KeyError`` if the store lacks it."""
        return self._open_logs()[0].find(key)

    def prune_before(self, generation: int) -> None:
        """Remove the generations before ``generation`` and the files that only they need.

        Raises:
            FileNotFoundError: there is no such generation.
        """
        logs = self._open_logs()
        self._check_exists(generation)
        self._supersede(number for number in self.generations if number < generation)
        self._remove_unneeded(logs)

    def keep_only(self, generation: int | None) -> None:
        """Continue from ``generation``, instead of ``begin``, and remove all others, newer ones too.

        ``None`` removes every generation.

        Raises:
            FileNotFoundError: there is no such generation.
        """
        if generation is not None:
            self._check_exists(generation)
        self._supersede(number for number in self.generations if number != generation)
        self.begin(None if generation is None else self.generations[generation])
        self._remove_unneeded(self._open_logs())

    def close(self) -> None:
        """Close the files and unlock the folder. Closing again does nothing."""
        for log in self._logs or ():
            log.close()
        self._logs = None
        self._lock.close()

    def _check_exists(self, generation: int) -> None:
        if generation not in self.generations:
            raise FileNotFoundError(
                f"{self.folder}: there is no generation {generation}, so nothing is removed; give one of "
                f"{sorted(self.generations)}"
            )

    def _supersede(self, numbers: Iterable[int]) -> None:
        """Keep these generations no longer."""
        dropped = set(numbers)
        self._superseded |= {number: self.generations[number] for number in dropped}
        self.generations = {number: one for number, one in self.generations.items() if number not in dropped}

    def _list_staying(self) -> list[Manifest]:
        """Return the manifests whose files stay."""
        return [*self.generations.values(), *self._strangers]

    def _find_leftovers(self, contents: FolderContents) -> set[Path]:
        """Return the files that dead writers announced and created, and that no manifest names."""
        return {path for begun in contents.manifests.begun for path in contents.files_of(begun, self._list_staying())}

    def _open_log(self, name: str, base: Manifest | None) -> BlockLogWriter:
        manifests = [*self._list_staying(), *self._superseded.values()]
        others = [getattr(manifest, name) for manifest in manifests if manifest is not base]
        if base is None:
            return BlockLogWriter.create(self.folder, name, others, file_bytes=self._file_bytes, files=self._disk)
        state = getattr(base, name)
        log = BlockLogWriter.open(self.folder, name, state, others, file_bytes=self._file_bytes, files=self._disk)
        self.left_over |= log.left_over
        return log

    def _open_logs(self) -> tuple[BlockLogWriter, BlockLogWriter]:
        """Return the logs. After a failure, reopen them as of the last commit that reached the disk."""
        if self._logs is None:
            self._contents = self._read_generations()
            self.begin(self.with_commit(self._attempt, self._base.commit if self._base else ""))
            assert self._logs is not None
            self.moved = list(unpack_keys(self._logs[0].packed_keys()))
        assert self._logs is not None
        return self._logs

    def _commit(
        self,
        logs: tuple[BlockLogWriter, BlockLogWriter],
        parts: MemoryParts,
        kept: set[int],
        is_pinned: bool,
        is_closed: bool,
    ) -> Manifest:
        frames, steps = logs
        generation, self._attempt = self._next_generation, secrets.token_hex(16)
        self._next_generation += 1  # a failed one is not used again: its rename may reach the disk
        begin_generation(self.folder, Begun(generation, (frames.next_file, steps.next_file)), self._disk)
        snapshot, new = update_logs(logs, parts)
        new += frames.compact()
        steps.compact()
        manifest = Manifest(
            generation=generation,
            commit=self._attempt,
            memory=snapshot.memory,
            frames_per_segment=parts.storage.frames_per_segment,
            num_transitions=snapshot.num_transitions,
            frames=frames.sync(),
            steps=steps.sync(),
            state={},
            kept=sorted(kept & set(self.generations)),
            is_pinned=is_pinned,
            is_closed=is_closed,
            follows=[one.commit for one in (*self.generations.values(), *self._superseded.values())],
        )
        manifest = write_state(self.folder, state_name(generation), manifest, snapshot.arrays, self._disk)
        content = manifest_content(manifest)
        write_manifest(self.folder, KIND, VERSION, content, generation=generation, files=self._disk)
        self._base = manifest
        self._supersede(self.generations.keys() - set(manifest.kept))
        self.generations[generation] = manifest
        self.moved += new
        self._remove_unneeded(logs)
        return manifest

    def _remove_unneeded(self, logs: tuple[BlockLogWriter, BlockLogWriter]) -> None:
        """Remove files that no kept generation needs; retry refused removals at the next commit.

        After a crash between two lines, the manifests and announcements that are left still name the files to remove.
        """
        manifests = self._list_staying()
        with suppress(OSError):
            there = set(generations(self.folder, self._disk)) if self._superseded else set()
            for number in there & set(self._superseded):
                supersede_manifest(self.folder, number, self._disk)
            self._disk.sync_folder(self.folder)  # before the files that these manifests name are removed
            needed = {name for manifest in manifests for name in file_names(manifest)}
            for state in {manifest.state["name"] for manifest in self._superseded.values()} - needed:
                self._disk.remove(self.folder / state)
            for name, log in zip((FRAMES, STEPS), logs, strict=True):
                log.remove_unneeded([getattr(manifest, name) for manifest in manifests])
            self._disk.sync_folder(self.folder)  # before nothing names the removed files any more
            contents = FolderContents(self.folder, self._disk)
            for number, manifest in list(self._superseded.items()):
                if not (file_names(manifest) - needed) & set(contents.names):
                    remove_superseded(self.folder, number, self._disk)
                    del self._superseded[number]
            if not self._find_leftovers(contents):
                for begun in contents.manifests.begun:
                    end_generation(self.folder, begun, self._disk)


def file_bytes(settings: MemorySettings) -> int:
    """Return the maximum size of a log file: a small part of ``max_bytes``, since files are removed as a whole."""
    return FILE_BYTES if settings.max_bytes is None else max(2**20, min(FILE_BYTES, settings.max_bytes // 16))


def update_logs(logs: tuple[BlockLogWriter, BlockLogWriter], parts: MemoryParts) -> tuple[Snapshot, list[BlockKey]]:
    """Append a memory's new blocks to the logs; return a snapshot, and the segments of frames that were appended."""
    storage, steps = parts.storage, parts.steps
    frames = BlockCopier(logs[0], parts.lock, partial(sealed_segments, parts), storage.segment)
    blocks = BlockCopier(logs[1], parts.lock, partial(sealed_steps, steps), lambda *key: steps.step_block(key))
    copiers = frames, blocks
    for copier in copiers:
        copier.append_sealed()
    with parts.lock:
        evict_unreferenced_frames(storage, steps)
        parts.check_segments()
        for copier in copiers:
            copier.copy_rest()
        snapshot = take_snapshot(parts, frames.stored)
    for copier in copiers:
        copier.append_rest()
    return snapshot, frames.appended


def sealed_segments(parts: MemoryParts) -> PackedKeys:
    """Return the packed keys of the sealed segments of frames, ascending."""
    numbers = list(map(parts.storage.sealed_segments, range(parts.settings.num_tracks)))
    return pack_keys(np.repeat(np.arange(len(numbers)), list(map(len, numbers))), np.concatenate(numbers))


def sealed_steps(steps: StepStore) -> PackedKeys:
    """Return the packed keys of the sealed blocks of steps, ascending."""
    tracks, numbers = np.array(steps.list_sealed_steps(), np.int64).reshape(-1, 2).T
    return np.sort(pack_keys(tracks, numbers))


class BlockCopier:
    """Copies the sealed blocks of a memory that a log lacks, in three calls; ``appended`` lists them.

    ``list_keys`` returns the packed keys of the stored blocks, which never change and are sealed in ascending order in
    each track. ``copy`` returns the bytes of a block; it raises ``IndexError`` if the block was evicted.

    ``append_sealed`` locks the memory for one block at a time. ``copy_rest``, with the lock held, copies the few blocks
    that were sealed meanwhile. ``append_rest`` needs no lock.
    """

    def __init__(
        self,
        log: BlockLogWriter,
        lock: RLock,
        list_keys: Callable[[], PackedKeys],
        copy: Callable[[int, int], bytes],
    ) -> None:
        self._log, self._lock, self._list_keys, self._copy = log, lock, list_keys, copy
        self._known = log.packed_keys()  # blocks that the log has, or that were listed before
        self._rest: list[tuple[BlockKey, bytes]] = []  # blocks copied under the lock, to be appended without it
        self.stored = self._known[:0]  # all blocks that the memory had at the snapshot
        self.appended: list[BlockKey] = []  # what this save wrote, in the order of the log

    def append_sealed(self) -> None:
        """Append the stored blocks until at most ``FEW_BLOCKS`` are missing."""
        for _ in range(MAX_ROUNDS):
            with self._lock:
                stored = self._list_keys()
            missing = self._find_missing(stored)
            for key in unpack_keys(missing):
                with self._lock:
                    try:
                        block = self._copy(*key)
                    except IndexError:
                        continue  # evicted meanwhile
                self._log.append(key, block)
                self.appended.append(key)
            if len(missing) <= FEW_BLOCKS:
                return

    def copy_rest(self) -> None:
        """Copy the blocks sealed since. The caller holds the memory's lock."""
        self.stored = self._list_keys()
        self._rest = [(key, self._copy(*key)) for key in unpack_keys(self._find_missing(self.stored))]

    def append_rest(self) -> None:
        """Append the copied blocks, and drop evicted blocks from the log."""
        for key, block in self._rest:
            self._log.append(key, block)
            self.appended.append(key)
        self._log.drop(unpack_keys(np.setdiff1d(self._log.packed_keys(), self.stored, assume_unique=True)))

    def _find_missing(self, stored: PackedKeys) -> PackedKeys:
        """Return those of ``stored`` that are neither in the log nor listed before."""
        missing = np.setdiff1d(stored, self._known, assume_unique=True)
        self._known = stored if missing.size else self._known
        return missing
