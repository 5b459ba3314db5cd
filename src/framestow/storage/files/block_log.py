"""A log of blocks on the disk: append-only files that roll, and go when nothing in them is needed any more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.storage.files.block_format import (
    BLOCK_HEADER_BYTES,
    ENTRY_BYTES,
    FILE_HEADER_BYTES,
    INDEX,
    LOG,
    BlockKey,
    BlockPlace,
    BlockTable,
    LogState,
    Row,
    file_name,
    pack_block_header,
    pack_entry,
    pack_file_header,
    pack_key,
)
from framestow.storage.files.block_log_reader import find_entries, read_block
from framestow.storage.files.file_system import DISK, AppendFile, FileSystem


class FileEnd(NamedTuple):
    """How far a log file goes: one value, so that a Ctrl-C in an append finds the old one or the new one."""

    bytes: int
    blocks: int

    @property
    def index_bytes(self) -> int:
        """Bytes of the index of so many blocks."""
        return FILE_HEADER_BYTES + self.blocks * ENTRY_BYTES


NO_BLOCKS = FileEnd(FILE_HEADER_BYTES, 0)


@dataclass
class LogFile:
    """A log file: how far it goes, how far that is on the disk for sure, and how many bytes of it are needed."""

    number: int
    end: FileEnd = NO_BLOCKS
    synced: FileEnd | None = None  # None: nothing of it
    live_bytes: int = 0
    is_sound: bool = True  # False: a block could not be copied out of it, so it stays as it is

    @property
    def bytes(self) -> int:
        """Bytes of the file and of its index."""
        return self.end.bytes + self.end.index_bytes


class LogTail:
    """The log file that is being filled, and its index, whose entries are written with each sync."""

    def __init__(self, file: LogFile, log: AppendFile, index: AppendFile) -> None:
        self.file = file
        self._log, self._index = log, index
        self._entries = bytearray()  # of what was appended since the last sync

    @classmethod
    def create(cls, folder: Path, name: str, number: int, files: FileSystem) -> LogTail:
        """Begin a file; after an error nothing is left of it."""
        with ExitStack() as undo:
            opened = {}
            for ending in (LOG, INDEX):
                path = folder / file_name(name, number, ending)
                undo.callback(_remove_quietly, path, files)
                opened[ending] = files.create(path)
                undo.callback(opened[ending].close)
                opened[ending].append(pack_file_header(name, number, ending))
            undo.pop_all()
        return cls(LogFile(number), opened[LOG], opened[INDEX])

    @classmethod
    def reopen(cls, folder: Path, name: str, file: LogFile, files: FileSystem) -> LogTail:
        """Go on in a file that ends where ``file`` says."""
        with ExitStack() as undo:
            log = files.open_at(folder / file_name(name, file.number, LOG), file.end.bytes)
            undo.callback(log.close)
            index = files.open_at(folder / file_name(name, file.number, INDEX), file.end.index_bytes)
            undo.pop_all()
        return cls(file, log, index)

    def has_room(self, payload_bytes: int, file_bytes: int) -> bool:
        """Tell whether a block fits into a file of at most ``file_bytes``; the first one always does."""
        end = self.file.end
        return not end.blocks or end.bytes + BLOCK_HEADER_BYTES + payload_bytes <= file_bytes

    def append(self, key: BlockKey, payload: bytes) -> Row:
        """Write a block, after an error nothing of it, and return its place."""
        self._settle()
        end = self.file.end
        row = Row(self.file.number, end.bytes + BLOCK_HEADER_BYTES, len(payload))
        self._log.append(pack_block_header(key, payload) + payload)
        self._entries += pack_entry(key, row.offset, row.size)
        self.file.end = FileEnd(row.offset + row.size, end.blocks + 1)
        return row

    def write_index(self) -> None:
        """Write the entries of what was appended since the last sync. After an error do it again."""
        self._settle()
        self._index.append(bytes(self._entries))

    def sync(self) -> None:
        """Sync both files. After an error close this tail: nobody knows what of it is on the disk."""
        self._log.sync()
        self._index.sync()
        self.file.synced = self.file.end
        self._entries.clear()

    def abandon(self, files: FileSystem) -> None:
        """Close both files and take away what was never synced, as far as that works."""
        synced = self.file.synced
        if synced is None:
            self.close()
            for file in (self._index, self._log):
                _remove_quietly(file.path, files)
            return
        with suppress(OSError):
            self._log.cut(synced.bytes)
            self._index.cut(synced.index_bytes)
        self.close()
        self.file.end = synced

    def close(self) -> None:
        """Close both files. Closing them again does nothing."""
        self._log.close()
        self._index.close()

    def _settle(self) -> None:
        """Go back to the last whole append, where an error or a Ctrl-C broke one off."""
        synced = self.file.synced or NO_BLOCKS
        self._log.size = self.file.end.bytes
        self._index.size = synced.index_bytes
        del self._entries[(self.file.end.blocks - synced.blocks) * ENTRY_BYTES :]


def _remove_quietly(path: Path, files: FileSystem) -> None:
    with suppress(OSError):
        files.remove(path)


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
