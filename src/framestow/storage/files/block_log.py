"""A log of blocks on the disk: append-only files that roll, and go when nothing in them is needed any more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.storage.files.block_format import (
    BLOCK_HEADER_BYTES,
    ENTRY_BYTES,
    INDEX,
    LOG,
    BlockKey,
    BlockPlace,
    LogState,
    file_name,
)
from framestow.storage.files.block_index import find_entries
from framestow.storage.files.block_log_reader import read_block
from framestow.storage.files.block_table import BlockTable, Row, pack_key
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.log_tail import NO_BLOCKS, FileEnd, LogFile, LogTail

FILE_BYTES = 64 * 2**20  # of a log file, before the next one begins
_NAME_LETTERS = 8


class BlockLogWriter:
    """Appends blocks, forgets those that are needed no more, and removes files; for one thread at a time.

    A commit is: append what is new; :meth:`sync`; write a manifest with the state that it returned; then
    :meth:`remove_unneeded` with that state and those of the older generations that stay. Until that manifest is
    written, a crash leaves the log as the last one names it. Of a key appended twice the later block counts.
    """

    def __init__(self, folder: Path, name: str, file_bytes: int, files: FileSystem) -> None:
        if not 0 < len(name) <= _NAME_LETTERS:
            raise InvalidSettingsError(f"log {name!r}: a name has up to {_NAME_LETTERS} letters; give a shorter one")
        self._folder, self._name, self._file_bytes, self._disk = folder, name, file_bytes, files
        self._ours = re.compile(rf"{re.escape(name)}\.(\d{{6,}})\.({LOG}|{INDEX})(\.new)?")
        self._next_file = 1
        self._files: dict[int, LogFile] = {}
        self._tail: LogTail | None = None
        self._table = BlockTable()
        self._unsynced: dict[BlockKey, Row | None] = {}  # what is new since the last sync, and where it was before
        self._found_ends: dict[int, FileEnd] = {}  # how far the states that there were at the opening name each file
        self.left_over: dict[Path, int] = {}
        """What :meth:`open` found behind the committed part and removed: files, and how many bytes of them."""

    @classmethod
    def create(
        cls, folder: Path, name: str, *, file_bytes: int = FILE_BYTES, files: FileSystem = DISK
    ) -> BlockLogWriter:
        """Begin an empty log in a folder that exists.

        The files of another log of that name stay, until :meth:`remove_unneeded` is not told of them.
        """
        writer = cls(folder, name, file_bytes, files)
        writer._next_file = 1 + max(writer._numbers_on_disk(), default=0)
        return writer

    @classmethod
    def open(
        cls,
        folder: Path,
        name: str,
        state: LogState,
        kept: Iterable[LogState] = (),
        *,
        file_bytes: int = FILE_BYTES,
        files: FileSystem = DISK,
    ) -> BlockLogWriter:
        """Go on with the log that ``state``, from a manifest, names; ``kept`` are the states of the other generations.

        What none of them names is left over from a crash: it is cut off, and told in :attr:`left_over`. Every block
        that ``state`` names counts as needed until :meth:`retain` or :meth:`drop`. Raises ``DamagedDataError`` if a log
        file is gone; other damage is found when it is read.
        """
        writer = cls(folder, name, file_bytes, files)
        writer._found_ends = ends = _committed([state, *kept])
        writer._next_file = max(one["next_file"] for one in [state, *kept])
        writer._cut_left_over(ends)
        is_whole = writer._take_files(state)
        last = next(reversed(writer._files.values()), None)
        if last is not None and is_whole[last.number] and ends[last.number] == last.end:
            writer._tail = LogTail.reopen(folder, name, last, files)
        return writer

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._table

    @property
    def live_bytes(self) -> int:
        """Bytes of the blocks that are needed, their headers and index entries with them."""
        return sum(file.live_bytes for file in self._files.values())

    @property
    def file_bytes(self) -> int:
        """Bytes of all files, those included that wait to be removed."""
        return sum(file.bytes for file in self._files.values())

    def numbers(self, stream: int) -> list[int]:
        """The numbers of the blocks of ``stream`` that are needed, ascending."""
        numbers: list[int] = self._table.numbers(stream).tolist()
        return numbers

    def place(self, key: BlockKey) -> BlockPlace:
        """Where a block's payload lies; ``KeyError`` if there is no such block. Read it after a sync."""
        row = self._table.get(key)
        if row is None:
            raise KeyError(f"block {key.number} of stream {key.stream}: {self._folder} has none in {self._name!r}")
        return self._place_of(row)

    def append(self, key: BlockKey, payload: bytes) -> BlockPlace:
        """Write a block behind the others, to the page cache; it is on the disk after :meth:`sync`.

        After an ``OSError`` (a full disk) the block is not there and the others are: try again. Where one file ends and
        the next begins, the full one is synced; see :meth:`sync` for what is not there after an error of that.
        """
        pack_key(key)  # refuses it before anything is written
        if len(payload) >= 2**32:
            raise InvalidSettingsError(f"block of {len(payload):,} bytes: a block has less than 4 GiB; divide it")
        tail = self._tail
        if tail is None or not tail.has_room(len(payload), self._file_bytes):
            tail = self._next_tail()
        row = tail.append(key, payload)
        former = self._table.put(key, row)
        self._unsynced.setdefault(key, former)
        self._count(former, -1)
        self._count(row, 1)
        return self._place_of(row)

    def sync(self) -> LogState:
        """Return when every block is on the disk, with what a manifest has to say of the log.

        After an ``OSError`` from writing, all blocks are there and wait for the next sync. After one from the sync
        itself nobody knows what reached the disk, so what was appended since the last one is not in the log any more.
        The names of new files are on the disk once the folder is synced, which :func:`write_manifest` does.
        """
        if self._tail is not None and self._tail.file.synced != self._tail.file.end:
            self._sync_tail(self._tail)
        self._count_anew()  # a Ctrl-C may have come between a change and its count
        return {
            "files": [
                {"number": file.number, "bytes": file.synced.bytes, "blocks": file.synced.blocks}
                for file in self._files.values()
                if file.synced is not None and self._is_needed(file)
            ],
            "next_file": self._next_file,
        }

    def drop(self, keys: Iterable[BlockKey]) -> None:
        """Need these blocks no more; such as are not there are nothing."""
        for key in keys:
            self._count(self._table.drop(key), -1)
            self._unsynced.pop(key, None)

    def retain(self, keys: Iterable[BlockKey]) -> None:
        """Need no other blocks than these."""
        self._table.retain(keys)
        self._unsynced = {key: former for key, former in self._unsynced.items() if key in self._table}
        self._count_anew()

    def compact(self) -> dict[BlockKey, BlockPlace]:
        """While less than half of the bytes are needed, copy what is needed of the sparsest file to the end.

        Returns the new places, to be used from the next commit on: its :meth:`remove_unneeded` takes the old files. A
        copied byte frees more than one, so all copying takes no longer than all appending. A damaged block stays where
        it is, and its file too: it is for its reader to find, not for this to lose.
        """
        moved = {}
        while (file := self._sparsest()) is not None:
            with self._disk.open_to_read(self._path(file.number, LOG)) as log:
                for key, row in self._table.in_file(file.number):
                    try:
                        payload = read_block(log, key, row)
                    except DamagedDataError:
                        file.is_sound = False
                    else:
                        moved[key] = self.append(key, payload)
        return moved

    def remove_unneeded(self, kept: Iterable[LogState]) -> list[Path]:
        """Remove every file of this log that no state of ``kept`` names; return the log files among them.

        ``kept`` are the states in the manifests that stay, the newest one among them. Where this log went on from
        another state than the newest, what only states that went had at the end of a file is cut off. On Windows a file
        that is in use stays until next time.
        """
        ends = _committed(kept)
        needed = {file.number for file in self._files.values() if self._is_needed(file)}
        removed = []
        for number in sorted(self._numbers_on_disk() - ends.keys() - needed):
            if all(self._disk.remove(self._path(number, ending)) for ending in (INDEX, LOG)):
                self._files.pop(number, None)
                removed.append(self._path(number, LOG))
        self._cut_given_up(ends)
        return removed

    def close(self) -> None:
        """Close the files; what was not synced may be lost. Closing again does nothing."""
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.close()

    def __enter__(self) -> BlockLogWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _next_tail(self) -> LogTail:
        if self._tail is not None:
            self._sync_tail(self._tail)
            self.close()
        number, self._next_file = self._next_file, self._next_file + 1
        tail = LogTail.create(self._folder, self._name, number, self._disk)
        self._files[number] = tail.file
        self._tail = tail
        return tail

    def _sync_tail(self, tail: LogTail) -> None:
        tail.write_index()
        try:
            tail.sync()
        except OSError:
            self._give_up(tail)
            raise
        self._unsynced.clear()

    def _give_up(self, tail: LogTail) -> None:
        """Forget what a failed sync may have lost; what is appended next goes to another file."""
        self._tail = None
        tail.abandon(self._disk)
        for key, former in self._unsynced.items():
            self._table.drop(key)
            if former is not None:
                self._table.put(key, former)
        self._unsynced.clear()
        if tail.file.synced is None:
            del self._files[tail.file.number]
        self._count_anew()

    def _take_files(self, state: LogState) -> dict[int, bool]:
        """Take over the files of ``state``; return of each whether it may be gone on with."""
        entries, is_whole = {}, {}
        for file in state["files"]:
            number, end = file["number"], FileEnd(file["bytes"], file["blocks"])
            try:
                with self._disk.open_to_read(self._path(number, LOG)) as log:
                    entries[number], damage = find_entries(self._folder, self._name, file, log, self._disk)
                    is_whole[number] = damage is None and log.size == end.bytes
            except FileNotFoundError as error:
                raise DamagedDataError(
                    f"{error.filename}: it is gone, and {end.blocks} blocks with it; "
                    "keep what is whole with `framestow repair`"
                ) from error
            self._files[number] = LogFile(number, end, end)
        self._table.put_files(entries)
        self._count_anew()
        return is_whole

    def _cut_left_over(self, ends: dict[int, FileEnd]) -> None:
        """Remove what lies behind these ends."""
        for found in filter(None, map(self._ours.fullmatch, self._disk.names(self._folder))):
            number, ending, is_unfinished = found.groups()
            path, end = self._folder / found[0], ends.get(int(number))
            size = self._disk.size(path)
            if end is None or is_unfinished:
                self._disk.remove(path)
                self.left_over[path] = size
                continue
            committed = end.bytes if ending == LOG else end.index_bytes
            if size > committed:
                self._disk.open_at(path, committed).close()
                self.left_over[path] = size - committed

    def _cut_given_up(self, ends: dict[int, FileEnd]) -> None:
        """Cut off files what was named at the opening and is named no more, neither by ``ends`` nor by this log."""
        for number, found in list(self._found_ends.items()):
            own = self._files.get(number)
            end = max(ends.get(number, NO_BLOCKS), NO_BLOCKS if own is None else own.end)
            if number in ends and end < found:
                self._disk.open_at(self._path(number, LOG), end.bytes).close()
                self._disk.open_at(self._path(number, INDEX), end.index_bytes).close()
                self._found_ends[number] = end

    def _numbers_on_disk(self) -> set[int]:
        return {int(found[1]) for found in map(self._ours.fullmatch, self._disk.names(self._folder)) if found}

    def _count(self, row: Row | None, sign: int) -> None:
        if row is not None:
            self._files[row.file].live_bytes += sign * (BLOCK_HEADER_BYTES + row.size + ENTRY_BYTES)

    def _count_anew(self) -> None:
        sizes = self._table.size_by_file()
        for file in self._files.values():
            blocks, payloads = sizes.get(file.number, (0, 0))
            file.live_bytes = payloads + blocks * (BLOCK_HEADER_BYTES + ENTRY_BYTES)

    def _sparsest(self) -> LogFile | None:
        """The file with the fewest needed bytes, where less than half of its and of all are."""
        files = [file for file in self._files.values() if file.is_sound and self._is_needed(file)]
        sparse = [file for file in files if 2 * file.live_bytes < file.bytes and not self._is_tail(file)]
        if 2 * sum(file.live_bytes for file in files) >= sum(file.bytes for file in files):
            return None
        return min(sparse, key=lambda file: file.live_bytes / file.bytes, default=None)

    def _is_tail(self, file: LogFile) -> bool:
        return self._tail is not None and self._tail.file is file

    def _is_needed(self, file: LogFile) -> bool:
        return file.live_bytes > 0 or self._is_tail(file)

    def _place_of(self, row: Row) -> BlockPlace:
        return BlockPlace(self._path(row.file, LOG), row.offset, row.size)

    def _path(self, number: int, ending: str) -> Path:
        return self._folder / file_name(self._name, number, ending)


def _committed(states: Iterable[LogState]) -> dict[int, FileEnd]:
    """How far each file is named by any of the states."""
    ends: dict[int, FileEnd] = {}
    for state in states:
        for file in state["files"]:
            ends[file["number"]] = max(FileEnd(file["bytes"], file["blocks"]), ends.get(file["number"], FileEnd(0, 0)))
    return ends
