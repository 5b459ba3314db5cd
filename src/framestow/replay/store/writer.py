"""``StoreWriter``: the one writer of a folder. It appends new blocks to the logs and names them in a commit."""

from __future__ import annotations

import logging
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
    check_is_there,
    commit_path,
    empty_commit,
    id_of,
    new_name,
    pack_arrays,
    pack_commit,
    write_commit,
    write_packed,
)
from framestow.replay.store.snapshot import Snapshot, update_logs
from framestow.storage.files.block_format import BlockKey, BlockSpan, LogPlace, unpack_keys
from framestow.storage.files.block_log import FILE_BYTES, BlockLogWriter
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.writer_lock import LOCK, LockedFiles, WriterLock

_log = logging.getLogger(__name__)


class StoreWriter(Closing):
    """The one writer of a folder, which stays locked until ``close``.

    ``commit`` writes the data that the store lacks, in three phases. The memory waits only for copies of small pieces::

        1. sealed blocks   one by one: copy under the memory's lock, append without it, until few are missing
        2. snapshot        under the lock: copy the small state, and the few blocks that were sealed meanwhile
        3. commit          append those blocks, sync the logs, write the commit, remove unneeded files

    A block that is evicted between 1 and 2 is written, but no commit names it. After an interruption at any line, the
    next commit starts from the files on the disk and ignores its earlier state in RAM.

    A commit with a copy is written in this order, and each file is durable before the next step::

        1. COMMIT.000012         now it is the newest; if a kill comes here, 12 has no copy yet, and 11 is there
        2. removals              of the commits that are neither the newest, nor the one before it, nor kept
        3. COMMIT.000012.copy    now no damaged file of the two costs anything
        4. removals              of the commit before, unless it is kept, and of the logs that only removed ones name

    A flush leaves out 3, so the commit before it stays. Of a removed commit the copy goes first. What a new commit
    would only repeat (other ids, fewer kept generations) is written in place: the commit, then its copy.

    A writer that continues no generation begins a new id. Before its first file, the newest commit of the folder lists
    the id, or an empty one that says that nothing was saved yet. So a killed save changes nothing, and the next writer
    knows its files. Removed are only files of a listed id that no existing commit names.

    ``_commits``, ``_copies`` and ``_last`` are what is in the folder, ``_base``, ``_id`` and ``_logs`` what is written
    on; after a failure ``_logs`` is None, and all of them are read again.

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
        self._file_bytes, self._ignored, self._is_repair = file_bytes, ignored, lock is not None
        self._lock = lock or WriterLock(
            folder / LOCK, f"memory {folder}", "close that one (a buffer by its memory.close()), or give another folder"
        )
        self._disk = LockedFiles(files, self._lock)
        self._commits: dict[int, Commit] = {}  # all commits in the folder, by number
        self._copies: set[int] = set()  # numbers of those whose copy is whole, as far as it was read
        self._last: Commit | None = None  # the newest one, which may be empty
        self._base: Commit | None = None  # generation that the logs continue from
        self._id = ""  # of the files that it writes
        self._written = ""  # name of the memory's newest commit, finished or not
        self._logs: tuple[BlockLogWriter, BlockLogWriter] | None = None  # of frames and of steps
        self.moved: list[BlockKey] = []
        """Segments of frames that are at a new offset in the files. ``OpenStore`` clears the list."""
        with ExitStack() as on_error:
            on_error.callback(self._lock.close)
            self._read_commits()
            on_error.pop_all()

    def _read_commits(self) -> None:
        """Read the commits of the folder; each must be whole, or have a whole copy, which then replaces it."""
        self._lock.check()
        contents = FolderContents(self.folder, self._disk)
        self._last = contents.newest.whole() if contents.newest else None  # raises for files without a whole commit
        self._commits = {
            number: contents.read(number).whole() for number in contents.numbers if number not in self._ignored
        }
        self._next_number = contents.next_number  # of a commit; above all others, finished or not
        self._copies = contents.copies & self._commits.keys()
        if self._last is not None and not contents.is_copied(self._last.generation):
            self._copies.discard(self._last.generation)
        if not self._is_repair:
            with suppress(OSError):  # refused; the next writer tries again
                self._restore(contents)

    def _restore(self, contents: FolderContents) -> None:
        """Write damaged and missing commits again from their copies, and the newest one's copy from that.

        A whole copy of another name is no copy of it, and stays: it may be what somebody restores a store from.
        """
        for number, commit in self._commits.items():
            stored = contents.read(number)
            if stored.warning:
                write_commit(self.folder, commit, stored.state, self._disk)
                _log.warning(
                    "%s was damaged or missing: it is written again from its copy", stored.path.with_suffix("")
                )
        last = self._last
        if last is None or last.generation not in contents.copies - self._copies:
            return
        copy = contents.read_file(last.generation, is_copy=True)
        if copy.problem or (copy.commit and copy.commit.name == last.name):
            write_commit(self.folder, last, contents.read(last.generation).state, self._disk, is_copy=True)
            self._copies.add(last.generation)

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
        """Bytes of the logs, of the newest commit and of the one before it, with their copies."""
        numbers = set() if self._last is None else {self._last.generation, self._last.before} & self._commits.keys()
        commits = sum(self._commits[number].state_bytes * (1 + (number in self._copies)) for number in numbers)
        return commits + sum(log.file_bytes for log in self._logs or ())

    @property
    def pinned(self) -> set[int]:
        """Generations that later commits keep by default."""
        base = self._base or self.newest  # a memory that writes everything again keeps what the folder keeps
        if base is None:
            return set()
        # A memory that went back keeps where it began.
        stays = base.is_pinned or self._last is None or base.generation != self._last.generation
        return {*base.kept, *([base.generation] if stays else [])}

    @property
    def earlier(self) -> set[int]:
        """Generations that a save beside earlier ones keeps: those that its memory continues, or all of another's."""
        base = self._base
        return {number for number in self.generations if base is None or number <= base.generation}

    def with_commit(self, *names: str) -> Commit | None:
        """Return the newest generation that one of the commits ``names`` wrote, or ``None`` if it was removed."""
        made = [number for number, commit in self.generations.items() if commit.name in names]
        return self._commits[max(made)] if made else None

    def continue_from(self, base: Commit | None) -> None:
        """Continue from generation ``base``, which has the memory's data of then; ``None``: write everything."""
        for log in self._logs or ():
            log.close()
        self._logs, self._base = None, base
        self._id = new_name() if base is None else base.id
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
        with_copy: bool = False,
    ) -> Commit:
        """Write and sync a generation, and return its commit. Of the older ones, keep the numbers in ``kept``.

        With a copy, one damaged file of a commit costs nothing, and no file of the generation before stays. Beside
        ``kept``, the folder has at most three files of commits at a time: a budget counts them.

        Raises:
            OSError: the disk refused. The newest generation is the previous one; it may be this one if only the copy or
                the last sync failed.
        """
        with self._changing() as logs:
            stay = sorted(set(kept) & self.generations.keys())
            before = 0 if self._base is None else self._base.generation
            commit, snapshot = self.append(logs, parts)
            self._written = commit.name
            commit = commit._replace(before=before, kept=stay, is_pinned=is_pinned, is_closed=is_closed)
            self._base = self.write(commit, pack_arrays(snapshot.arrays), with_copy=with_copy)
            self._remove_unneeded(logs)
        return self._base

    def find(self, key: BlockKey) -> BlockSpan:
        """Return where a sealed segment is; raise ``KeyError`` if the store lacks it."""
        return self.open_logs()[0].find(key)

    def prune_before(self, generation: int) -> None:
        """Remove the generations before ``generation`` and the files that only they need.

        Raises:
            FileNotFoundError: there is no such generation.
        """
        self.open_logs()  # after a failure, this reads the commits again
        self._check_has(generation)
        with self._changing() as logs:
            self._keep([number for number in self.generations if number >= generation])
            self._remove_unneeded(logs)
        if self._base is not None and self._base.generation not in self.generations:
            self.continue_from(None)  # the memory went back to what is removed now

    def keep_only(self, generation: int | None) -> None:
        """Go back to ``generation``, instead of ``continue_from``, and remove all others, newer ones too.

        ``None`` removes every generation. A number is never used again, so an older generation goes on under one above
        all.

        Raises:
            FileNotFoundError: there is no such generation.
        """
        self._check_folder()
        if generation is not None:
            self._check_has(generation)
            if self._last is not None and self._last.generation == generation:
                self._keep([generation])
            else:
                self.write_again(generation, kept=[generation])
        elif self._last is not None:
            self.write(empty_commit(self._list_ids(self._last.id)), b"")
        self._remove_unneeded()

    # What a repair calls too

    def open_logs(self) -> tuple[BlockLogWriter, BlockLogWriter]:
        """Return the logs. After a failure, reopen them as of the last commit that reached the disk."""
        if self._logs is None:
            self._read_commits()
            self.continue_from(self.with_commit(self._written, self._base.name if self._base else ""))
            assert self._logs is not None
            self.moved = list(unpack_keys(self._logs[0].table.rows().keys))
        assert self._logs is not None
        return self._logs

    def append(self, logs: tuple[BlockLogWriter, BlockLogWriter], parts: MemoryParts) -> tuple[Commit, Snapshot]:
        """Append and sync the blocks that the logs lack; return a commit that names them, and its snapshot."""
        if self._last is None or self._id not in self._last.ids:
            self._list_own_id()
        frames, steps = logs
        snapshot, moved = update_logs(logs, parts)
        self.moved += moved + frames.compact()
        steps.compact()
        commit = empty_commit(self._list_ids(self._id))._replace(
            memory=snapshot.memory,
            frames_per_segment=parts.frames.frames_per_segment,
            num_transitions=snapshot.num_transitions,
            frames=frames.sync(),
            steps=steps.sync(),
        )
        return commit, snapshot

    def write(self, commit: Commit, state: bytes, *, with_copy: bool = False) -> Commit:
        """Write a commit under a number above all others, and its copy."""
        commit, content = pack_commit(commit._replace(generation=self._next_number), state)
        self._next_number += 1
        self._put(commit, content)
        self._last = commit
        if with_copy:
            with suppress(OSError):  # the next commit tries again
                self._remove_commits(commit)
            self._put(commit, content, is_copy=True)
        return commit

    def write_again(self, number: int, **changes: Any) -> Commit:
        """Write the content of a generation under a number above all others."""
        commit = self._commits[number]
        again = commit._replace(name=new_name(), ids=self._list_ids(commit.id), before=number, is_pinned=False)
        return self.write(again._replace(**changes), self.state_of(number))

    def rewrite(self, commit: Commit, state: bytes, *, with_copy: bool = False) -> Commit:
        """Write a commit in place of that of its number; then its copy, if it has one or ``with_copy``."""
        commit, content = pack_commit(commit, state)
        is_last = self._last is not None and self._last.generation == commit.generation
        has_copy = with_copy or commit.generation in self._copies
        self._put(commit, content)
        if is_last:
            self._last = commit
        if self._base is not None and self._base.generation == commit.generation:
            self._base = commit
        if has_copy:
            self._put(commit, content, is_copy=True)
        return commit

    def state_of(self, number: int) -> bytes:
        """Return the state of a commit; raises as ``StoredCommit.read`` and ``whole``."""
        stored = FolderContents(self.folder, self._disk).read(number)
        stored.whole()
        return stored.state

    def close(self) -> None:
        """Close the files and unlock the folder. Closing again does nothing."""
        for log in self._logs or ():
            log.close()
        self._logs = None
        self._lock.close()

    def _check_has(self, generation: int) -> None:
        if generation not in self.generations:
            raise FileNotFoundError(
                f"{self.folder}: there is no generation {generation}, so nothing is removed; give one of "
                f"{sorted(self.generations)}"
            )

    def _keep(self, numbers: list[int]) -> None:
        """Let the newest generation keep only these ones, which include itself, and have a copy."""
        last = self._last
        assert last is not None, "a generation exists"
        kept = [number for number in numbers if number != last.generation]
        self.rewrite(last._replace(kept=kept), self.state_of(last.generation), with_copy=True)

    def _put(self, commit: Commit, content: bytes, *, is_copy: bool = False) -> None:
        write_packed(self.folder, commit, content, self._disk, is_copy=is_copy)
        if is_copy:
            self._copies.add(commit.generation)
        else:
            self._commits[commit.generation] = commit
            self._copies.discard(commit.generation)

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
        self._next_number = FolderContents(self.folder, self._disk).next_number

    def _free_disk(self) -> None:
        with suppress(OSError, FramestowError):
            self._remove_unneeded(self.open_logs())

    def _list_own_id(self) -> None:
        """Commit that files of the own id are the store's, and change nothing else."""
        if self.newest is None:
            self.write(empty_commit(self._list_ids(self._id)), b"")
        else:
            ids = self._list_ids(self.newest.id, self._id)
            self.rewrite(self.newest._replace(ids=ids), self.state_of(self.newest.generation))

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
            contents = self._remove_commits(last)
            self._disk.sync_folder(self.folder)  # before the files that these commits name are removed
            stay = [commit for number, commit in self._commits.items() if number in self._existing(last)]
            names = contents.left_over(last.ids, stay)
            removed = {name for name in names if self._disk.remove(self.folder / name)}
            for log in logs:
                log.leave_out(removed)
            if removed:
                self._disk.sync_folder(self.folder)

    def _remove_commits(self, last: Commit) -> FolderContents:
        """Remove the commits that do not exist any more, and the copy of the one before ``last``.

        Of each the copy goes first: a reader beside this writer takes a copy alone for damage. Returns what was there.
        """
        contents, existing = FolderContents(self.folder, self._disk), self._existing(last)
        if self._last is not None and last.generation not in contents.numbers[-1:]:
            raise IncompatibleError(
                f"{commit_path(self.folder, last.generation)}: it was written, and is not the newest commit of "
                "its folder; give another folder"
            )
        for number, commit in list(self._commits.items()):
            if commit.id not in last.ids or number in (last.generation, *last.kept):
                continue
            stays = number in existing
            if not stays and number in contents.numbers:
                check_is_there(self.folder, commit, self._disk)
            if number in contents.copies and not self._disk.remove(commit_path(self.folder, number, is_copy=True)):
                continue
            self._copies.discard(number)
            if not stays and self._disk.remove(commit_path(self.folder, number)):
                del self._commits[number]
        return contents

    def _existing(self, last: Commit) -> set[int]:
        """Return the numbers of the commits that stay beside ``last``: as ``FolderContents.existing``."""
        return {last.generation, *last.kept, *([] if last.generation in self._copies else [last.before])}
