"""``StoreWriter``: the one writer of a folder. It appends new blocks to the logs and names them in a commit."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from framestow.errors import FramestowError, IncompatibleError
from framestow.interface import Closing
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.store.format import (
    FRAMES,
    STEPS,
    Commit,
    FolderContents,
    StoredCommit,
    check_is_there,
    commit_path,
    empty_commit,
    find_twin,
    id_of,
    new_name,
    pack_arrays,
    write_commit,
)
from framestow.replay.store.snapshot import Snapshot, update_logs
from framestow.storage.files.block_format import BlockKey, BlockSpan, LogPlace, unpack_keys
from framestow.storage.files.block_log import FILE_BYTES, BlockLogWriter
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.writer_lock import LOCK, LockedFiles, WriterLock


class StoreWriter(Closing):
    """The one writer of a folder, which stays locked until ``close``.

    ``commit`` writes the data that the store lacks, in three phases. The memory waits only for copies of small pieces::

        1. sealed blocks   one by one: copy under the memory's lock, append without it, until few are missing
        2. snapshot        under the lock: copy the small state, and the few blocks that were sealed meanwhile
        3. commit          append those blocks, sync the logs, write the commit, remove unneeded files

    A block that is evicted between 1 and 2 is written, but no commit names it. After an interruption at any line, the
    next commit starts from the files on the disk and ignores its earlier state in RAM.

    A writer that continues no generation begins a new id. Before its first file, a commit lists the id: it repeats the
    newest commit of the folder, or says that nothing was saved yet. So a killed save changes nothing, and the next
    writer knows its files. Removed are only files of a listed id that no existing commit names.

    The folder stays the locked one: each call that writes or removes first compares the lock with its file, and the
    newest commit, or the one to be removed, with the one that it wrote or read.

    Raises:
        DamagedDataError: a commit of the folder is damaged, or its logs have none; the message names it.
        IncompatibleError: another process writes to the folder, or another version wrote a commit. Or the folder was
            moved, removed or replaced meanwhile; then nothing is written or removed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        file_bytes: int = FILE_BYTES,
        files: FileSystem = DISK,
        lock: WriterLock | None = None,
        ignored: Collection[int] = (),
    ) -> None:
        """Lock the folder, unless a repair has its ``lock`` already and ignores the damaged commits ``ignored``."""
        files.make_folder(folder)
        self.folder = folder
        self._file_bytes, self._ignored = file_bytes, ignored
        self._lock = lock or WriterLock(
            folder / LOCK, f"memory {folder}", "close that one (a buffer by its memory.close()), or give another folder"
        )
        self._disk = LockedFiles(files, self._lock)
        self._commits: dict[int, Commit] = {}  # all commits in the folder, by number
        self._last: Commit | None = None  # the newest one, which may be empty
        self._base: Commit | None = None  # generation that the logs continue from
        self._id, self._is_listed = "", False  # of the files that it writes, and whether a commit lists it
        self._written: set[str] = set()  # names of the memory's newest commits, finished or not
        self._logs: tuple[BlockLogWriter, BlockLogWriter] | None = None  # of frames and of steps; None after a failure
        self.moved: list[BlockKey] = []
        """Segments of frames that are at a new offset in the files. ``OpenStore`` clears the list."""
        with ExitStack() as on_error:
            on_error.callback(self._lock.close)
            self._read_commits()
            on_error.pop_all()

    def _read_commits(self) -> None:
        """Read the commits of the folder; each must be whole."""
        self._lock.check()
        contents = FolderContents(self.folder, self._disk)
        self._last = contents.newest.whole() if contents.newest else None  # raises for files without a whole commit
        self._commits = {
            number: contents.read(number).whole() for number in contents.numbers if number not in self._ignored
        }

    @property
    def generations(self) -> dict[int, Commit]:
        """Commits by number: the newest one, and the older ones that it keeps."""
        if self._last is None or self._last.is_empty:
            return {}
        numbers = [*self._last.kept, self._last.generation]
        return {number: self._commits[number] for number in numbers if number in self._commits}

    @property
    def newest(self) -> Commit | None:
        """The newest generation, or ``None``."""
        return None if self._last is None or self._last.is_empty else self._last

    @property
    def file_bytes(self) -> int:
        """Bytes of the logs, of the newest commit and of the one before it."""
        logs = sum(log.file_bytes for log in self._logs or ())
        if self._last is None:
            return logs
        before = self._commits.get(self._last.before)
        return logs + self._last.state_bytes + (before.state_bytes if before else 0)

    @property
    def pinned(self) -> set[int]:
        """Generations that later commits keep by default."""
        base = self._base or self.newest  # a memory that writes everything again keeps what the folder keeps
        if base is None:
            return set()
        missing = set(base.kept) - self.generations.keys()
        # A memory that went back keeps where it began, and one that stands for a missing generation is kept as that.
        stays = base.is_pinned or base is not self._last or base.repeats in missing
        return {*base.kept, *([base.generation] if stays else [])}

    @property
    def earlier(self) -> set[int]:
        """Generations that a save beside earlier ones keeps: those that its memory continues, or all of another's."""
        stay = {number for number, one in self.generations.items() if one.repeats not in self.generations}
        return stay if self._base is None else {number for number in stay if number <= self._base.generation}

    def with_commit(self, *names: str) -> Commit | None:
        """Return the newest generation that one of the commits ``names`` wrote, or ``None`` if it was removed."""
        made = [number for number, commit in self.generations.items() if commit.name in names]
        return self._commits[max(made)] if made else None

    def begin(self, base: Commit | None) -> None:
        """Continue from generation ``base``, which has the memory's data of then; ``None``: write everything."""
        for log in self._logs or ():
            log.close()
        self._logs, self._base = None, base
        self._id, self._is_listed = (new_name(), False) if base is None else (base.id, True)
        with ExitStack() as on_error:
            logs = []
            for name in (FRAMES, STEPS):
                state = None if base is None else getattr(base, name)
                place = LogPlace(self.folder, name, self._id)
                log = BlockLogWriter.open(place, state, file_bytes=self._file_bytes, files=self._disk)
                on_error.callback(log.close)
                logs.append(log)
            self._logs = logs[0], logs[1]
            on_error.pop_all()

    def commit(
        self,
        parts: MemoryParts,
        kept: Collection[int],
        *,
        is_pinned: bool = False,
        is_closed: bool = False,
        times: int = 1,
    ) -> Commit:
        """Write and sync a generation, and return its commit. Of the older ones, keep the numbers in ``kept``.

        ``times=2`` writes two commits of the same content. Then a damaged one costs nothing, and no file of the
        generation before stays. The folder has at most three commits at a time, beside ``kept``: a budget counts them.

        Raises:
            OSError: the disk refused. The newest generation is the previous one; it may be this one if only the second
                commit or the last sync failed.
        """
        with self._changing() as logs:
            stay = sorted(set(kept) & self.generations.keys())
            commit, snapshot = self.append(logs, parts)
            state, second = pack_arrays(snapshot.arrays), new_name()
            self._written = {commit.name, second}  # without the one that lists the id: it may be another memory's
            commit = commit._replace(
                before=0 if self._base is None else self._base.generation,
                repeated_by=times - 1,
                kept=stay,
                is_pinned=is_pinned,
                is_closed=is_closed,
            )
            commit = self.write(commit, state)
            if times > 1:
                first, number = commit.generation, commit.repeated_by
                again = commit._replace(generation=number, name=second, before=first, repeats=first, repeated_by=0)
                if commit.before:
                    self._remove_unneeded(logs)  # the other one of the pair before
                self._last = commit = self.rewrite(again, state)
            self._base = commit
            self._remove_unneeded(logs)
        return commit

    def find(self, key: BlockKey) -> BlockSpan:
        """Return where a sealed segment is; raise ``KeyError`` if the store lacks it."""
        return self.open_logs()[0].find(key)

    def prune_before(self, generation: int) -> tuple[Commit, Commit]:
        """Remove the generations before ``generation`` and the files that only they need.

        Returns the newest commit until now, and the new one with the same content.

        Raises:
            FileNotFoundError: there is no such generation.
        """
        self.open_logs()  # after a failure, this reads the commits again
        generation, before = self._find(generation), self._last
        assert before is not None, "the generation exists"
        kept = [number for number in self.generations if number >= generation]
        with self._changing() as logs:
            commit, state = self.repeat(before.generation, kept=kept)
            if self._base is before:
                self._written.add(commit.name)
            commit = self.write(commit, state)
            if self._base is before:
                self._base = commit
            self._remove_unneeded(logs)
        if self._base is not None and self._base.generation not in self.generations:
            self.begin(None)  # the memory went back to what is removed now
        return before, commit

    def keep_only(self, generation: int | None) -> None:
        """Go back to ``generation``, instead of ``begin``, and remove all others, newer ones too.

        ``None`` removes every generation.

        Raises:
            FileNotFoundError: there is no such generation.
        """
        if generation is not None:
            found = self._find(generation)
            if list(self.generations) != [generation]:
                self.write(*self.repeat(found, kept=[found]))
        elif self._last is not None:
            self.write(empty_commit(self._list_ids(self._last.id)), b"")
        self._remove_unneeded()

    # What a repair calls too

    def open_logs(self) -> tuple[BlockLogWriter, BlockLogWriter]:
        """Return the logs. After a failure, reopen them as of the last commit that reached the disk."""
        if self._logs is None:
            self._read_commits()
            self.begin(self.with_commit(*self._written, self._base.name if self._base else ""))
            assert self._logs is not None
            self.moved = list(unpack_keys(self._logs[0].table.rows().keys))
        assert self._logs is not None
        return self._logs

    def append(self, logs: tuple[BlockLogWriter, BlockLogWriter], parts: MemoryParts) -> tuple[Commit, Snapshot]:
        """Append and sync the blocks that the logs lack; return a commit that names them, and its snapshot."""
        if not self._is_listed:
            self._list_own_id()
        frames, steps = logs
        snapshot, moved = update_logs(logs, parts)
        self.moved += moved + frames.compact()
        steps.compact()
        commit = empty_commit(self._list_ids(self._id))._replace(
            memory=snapshot.memory,
            frames_per_segment=parts.storage.frames_per_segment,
            num_transitions=snapshot.num_transitions,
            frames=frames.sync(),
            steps=steps.sync(),
        )
        return commit, snapshot

    def repeat(self, number: int, own_id: str = "", **changes: Any) -> tuple[Commit, bytes]:
        """Return a commit with the content of another one, and its state."""
        stored = StoredCommit.read(self.folder, number, self._disk)
        commit = stored.whole()
        ids = self._list_ids(*dict.fromkeys([commit.id, own_id or commit.id]))
        again = commit._replace(name=new_name(), ids=ids, before=number, repeats=number, repeated_by=0, is_pinned=False)
        return again._replace(**changes), stored.state

    def write(self, commit: Commit, state: bytes) -> Commit:
        """Write a commit under a number above all others; remove nothing."""
        number = FolderContents(self.folder, self._disk).next_number
        number += any(one.repeated_by == number for one in self._commits.values())
        repeated_by = number + 1 if commit.repeated_by else 0
        self._last = self.rewrite(commit._replace(generation=number, repeated_by=repeated_by), state)
        return self._last

    def rewrite(self, commit: Commit, state: bytes) -> Commit:
        """Write a commit under its own number, also in place of another one."""
        commit = write_commit(self.folder, commit, state, self._disk)
        if commit.generation not in FolderContents(self.folder, self._disk).numbers:
            raise IncompatibleError(
                f"{commit_path(self.folder, commit.generation)}: it was written and is not in its folder now; give "
                "another folder"
            )
        self._commits[commit.generation] = commit
        return commit

    def close(self) -> None:
        """Close the files and unlock the folder. Closing again does nothing."""
        for log in self._logs or ():
            log.close()
        self._logs = None
        self._lock.close()

    def _find(self, generation: int) -> int:
        """Return the number of a generation; if its commit is missing, that of one with the same content."""
        if generation in self.generations:
            return generation
        twin = find_twin(generation, self.generations.values())
        if twin is None or generation in self._commits:
            raise FileNotFoundError(
                f"{self.folder}: there is no generation {generation}, so nothing is removed; give one of "
                f"{sorted(self.generations)}"
            )
        return twin.generation

    @contextmanager
    def _changing(self) -> Iterator[tuple[BlockLogWriter, BlockLogWriter]]:
        """Give the logs. After a failure, close them and remove what it left, in case the disk is full."""
        self._check_folder()
        logs, self._logs = self.open_logs(), None  # set again after success
        with ExitStack() as on_error:
            on_error.callback(self._free_disk)
            for log in logs:
                on_error.callback(log.close)
            yield logs
            on_error.pop_all()
        self._logs = logs

    def _check_folder(self) -> None:
        """Raise unless the folder is the locked one, with the newest commit, and takes the number of another one."""
        self._lock.check()
        if self._last is not None:
            check_is_there(self.folder, self._last, self._disk)
        _ = FolderContents(self.folder, self._disk).next_number

    def _free_disk(self) -> None:
        with suppress(OSError, FramestowError):
            self._remove_unneeded(self.open_logs())

    def _list_own_id(self) -> None:
        """Commit that files of the own id are the store's, and change nothing else."""
        if self.newest is None:
            self.write(empty_commit(self._list_ids(self._id)), b"")
        else:
            kept = [number for number, one in self.generations.items() if one.repeats not in self.generations]
            self.write(*self.repeat(self.newest.generation, self._id, kept=kept))
        self._is_listed = True

    def _list_ids(self, *own: str) -> list[str]:
        """Return the ids whose files are the store's, ``own`` ones last. An id without files leaves the list."""
        found = {id_of(name) for name in self._disk.names(self.folder)} | {one.id for one in self._commits.values()}
        found.discard(None)
        # Without a commit, only first saves that were killed in their first commit can have left files.
        listed = sorted(filter(None, found)) if self._last is None else self._last.ids
        return [*(one for one in listed if one in found and one not in own), *own]

    def _remove_unneeded(self, logs: Collection[BlockLogWriter] = ()) -> None:
        """Remove the commits and files that no existing commit needs; retry refused removals at the next commit."""
        # Without a commit, a killed first save may have begun one.
        last = self._last or empty_commit([*self._list_ids(), new_name()])
        with suppress(OSError):
            existing = {last.generation, last.before, *last.kept}
            there = FolderContents(self.folder, self._disk).numbers
            for number, one in list(self._commits.items()):
                if one.id not in last.ids or number in existing:
                    continue
                if number in there:
                    check_is_there(self.folder, one, self._disk)
                if self._disk.remove(commit_path(self.folder, number)):
                    del self._commits[number]
            self._disk.sync_folder(self.folder)  # before the files that these commits name are removed
            stay = [commit for number, commit in self._commits.items() if number in existing]
            contents = FolderContents(self.folder, self._disk)
            names = contents.left_over(last.ids, stay)
            removed = {name for name in names if self._disk.remove(self.folder / name)}
            for log in logs:
                log.forget(removed)
            if removed:
                self._disk.sync_folder(self.folder)
