"""``StoreWriter``: the one writer of a folder. It appends new blocks to the logs and commits them with a manifest."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from framestow.errors import DamagedDataError, FramestowError, IncompatibleError
from framestow.interface import Closing
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.store.format import (
    FRAMES,
    STEPS,
    FolderContents,
    Manifest,
    named_files,
    read_checked_manifest,
    state_name,
    write_state,
    write_store_manifest,
)
from framestow.replay.store.snapshot import update_logs
from framestow.storage.files.block_format import BlockKey, BlockSpan, unpack_keys
from framestow.storage.files.block_log import FILE_BYTES, BlockLogWriter
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import (
    Begun,
    begin_generation,
    end_generation,
    generations,
    remove_superseded,
    supersede_manifest,
)
from framestow.storage.files.writer_lock import LOCK, WriterLock


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
        for path in map(self.folder.joinpath, sorted(self._contents.list_leftovers(self._list_staying()))):
            self.left_over[path] = self._disk.size(path)
            self._disk.remove(path)
        others = [one for one in (*self._list_staying(), *self._superseded.values()) if one is not base]
        with ExitStack() as on_error:
            logs = []
            for name in (FRAMES, STEPS):
                state = None if base is None else getattr(base, name)
                of_others = [getattr(other, name) for other in others]
                log = BlockLogWriter.open(
                    self.folder, name, state, of_others, file_bytes=self._file_bytes, files=self._disk
                )
                on_error.callback(log.close)
                logs.append(log)
                self.left_over |= log.left_over
            self._logs = logs[0], logs[1]
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

    def _open_logs(self) -> tuple[BlockLogWriter, BlockLogWriter]:
        """Return the logs. After a failure, reopen them as of the last commit that reached the disk."""
        if self._logs is None:
            self._contents = self._read_generations()
            self.begin(self.with_commit(self._attempt, self._base.commit if self._base else ""))
            assert self._logs is not None
            self.moved = list(unpack_keys(self._logs[0].table.rows().keys))
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
        write_store_manifest(self.folder, manifest, self._disk)
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
            needed = named_files(manifests)
            for state in {manifest.state["name"] for manifest in self._superseded.values()} - needed:
                self._disk.remove(self.folder / state)
            for name, log in zip((FRAMES, STEPS), logs, strict=True):
                log.remove_unneeded([getattr(manifest, name) for manifest in manifests])
            self._disk.sync_folder(self.folder)  # before nothing names the removed files any more
            contents = FolderContents(self.folder, self._disk)
            for number, manifest in list(self._superseded.items()):
                if not (manifest.file_ends().keys() - needed) & set(contents.names):
                    remove_superseded(self.folder, number, self._disk)
                    del self._superseded[number]
            if not contents.list_leftovers(manifests):
                for begun in contents.manifests.begun:
                    end_generation(self.folder, begun, self._disk)
