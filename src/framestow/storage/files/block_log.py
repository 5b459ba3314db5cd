"""Write a log of blocks: append-only files of limited size, removed once nothing in them is needed.

``BlockLogWriter`` appends, drops, compacts and removes. ``LogTail`` is the one file that grows.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.interface import Closing
from framestow.storage.files.block_format import (
    BLOCK_HEADER_BYTES,
    ENTRY_BYTES,
    FILE_HEADER_BYTES,
    INDEX,
    LOG,
    LOG_FILE,
    BlockKey,
    BlockSpan,
    BlockTable,
    LogState,
    Row,
    file_name,
    index_bytes,
    pack_block_header,
    pack_entry,
    pack_file_header,
    pack_key,
    repair_hint,
)
from framestow.storage.files.block_log_reader import find_entries, read_block
from framestow.storage.files.file_system import DISK, AppendFile, FileSystem, remove_if_possible

FILE_BYTES = 64 * 2**20  # maximum size of a log file
_NAME_LETTERS = 8  # at most; a file header has so many bytes for the name


class FileEnd(NamedTuple):
    """End of a log file. One value, so that a Ctrl-C during an append finds the old one or the new one."""

    bytes: int  # of the log file, with its header
    blocks: int  # in the file, needed or not

    @property
    def index_bytes(self) -> int:
        """Bytes of an index with this number of blocks."""
        return index_bytes(self.blocks)


NO_BLOCKS = FileEnd(FILE_HEADER_BYTES, 0)  # of a file that has only its header


@dataclass
class LogFile:
    """A log file: its end, and its end on the disk."""

    number: int
    end: FileEnd = NO_BLOCKS  # after everything appended, synced or not
    synced: FileEnd | None = None  # None: nothing is synced
    is_sound: bool = True  # False: it has a damaged block, so it is not compacted

    @property
    def bytes(self) -> int:
        """Bytes of the file and its index."""
        return self.end.bytes + self.end.index_bytes


class BlockLogWriter(Closing):
    """Appends blocks, drops unneeded ones, and removes files; for one thread at a time.

    A commit has five steps: announce ``next_file`` with ``begin_generation``, append the new blocks, ``sync``,
    write a manifest with the returned state, and call ``remove_unneeded`` with that state and those of the kept
    generations. A crash before the manifest leaves the log as the last manifest names it, beside files with the
    announced numbers and above that no manifest names. Of two blocks with one key the later one counts.

    The log removes files that it created, and files that a state named when it was opened. Other files of its name
    stay, and it creates none with their numbers.
    """

    def __init__(self, folder: Path, name: str, file_bytes: int, files: FileSystem) -> None:
        if not 0 < len(name) <= _NAME_LETTERS:
            raise InvalidSettingsError(f"log {name!r}: a name must have 1 to {_NAME_LETTERS} letters; give another one")
        self._folder, self._name, self._file_bytes, self._disk = folder, name, file_bytes, files
        matches = filter(None, map(LOG_FILE.fullmatch, files.names(folder)))
        self.next_file = 1 + max((int(match[2]) for match in matches if match[1] == name), default=0)
        """Number of the next file that it creates, above that of every file in the folder; it never decreases."""
        self.table = BlockTable()
        """Where each needed block is; dropped blocks are not in it."""
        self._files: dict[int, LogFile] = {}  # by number, ascending: files that the log reads or appends to
        self._tail: LogTail | None = None  # file that grows; None: the next append creates one
        self._unsynced: dict[BlockKey, Row | None] = {}  # new since the last sync, with its row before
        self._ends_at_open: dict[int, FileEnd] = {}  # of each file, in the states at the opening
        self.left_over: dict[Path, int] = {}
        """Files from which ``open`` cut off uncommitted data of a crash, and the number of bytes."""

    @classmethod
    def open(
        cls,
        folder: Path,
        name: str,
        state: LogState | None,
        others: Iterable[LogState] = (),
        *,
        file_bytes: int = FILE_BYTES,
        files: FileSystem = DISK,
    ) -> BlockLogWriter:
        """Continue the log of ``state``, from a manifest in an existing folder; ``None`` begins an empty log.

        ``others`` are the states of the other generations. Their files stay until ``remove_unneeded`` gets no state
        that names them. Every block of ``state`` is needed until ``drop``. What stands behind the named bytes of a
        file remains from a crash: it is cut off and listed in ``left_over``. Other damage is found when it is read.
        A file with several names stays as it is, and the log goes on in a new file.

        Raises:
            DamagedDataError: a log file is missing, or no file.
        """
        writer = cls(folder, name, file_bytes, files)
        states = [*([] if state is None else [state]), *others]
        writer._ends_at_open = ends = find_committed(states)
        writer.next_file = max([writer.next_file, *(one["next_file"] for one in states)])
        if state is not None:
            writer._cut_left_over(ends)
            is_intact = writer._load_files(state)
            last = next(reversed(writer._files.values()), None)
            if last is not None and is_intact[last.number] and ends[last.number] == last.end and writer._is_ours(last):
                writer._tail = LogTail.reopen(folder, name, last, files)
        return writer

    @property
    def file_bytes(self) -> int:
        """Bytes of all files, including those to be removed."""
        return sum(file.bytes for file in self._files.values())

    def find(self, key: BlockKey) -> BlockSpan:
        """Return where a block is, readable after a sync; raise ``KeyError`` if it does not exist."""
        row = self.table.get(key)
        if row is None:
            raise KeyError(f"block {key.number} of track {key.track}: {self._folder} has none in {self._name!r}")
        return self._span_of(row)

    def append(self, key: BlockKey, payload: bytes) -> BlockSpan:
        """Append a block to the page cache; ``sync`` writes it to the disk.

        After an ``OSError`` (a full disk) the block is not in the log, and the caller can try again. A block that does
        not fit into the current file starts the next one and syncs the full one; ``sync`` describes its errors.
        """
        pack_key(key)  # raises for an invalid key before anything is written
        if len(payload) >= 2**32:
            raise InvalidSettingsError(
                f"block has {len(payload):,} bytes: it must be smaller than 4 GiB; give a smaller frames_per_segment"
            )
        tail = self._tail
        if tail is None or not tail.fits(len(payload), self._file_bytes):
            tail = self._next_tail()
        row = tail.append(key, payload)
        self._unsynced.setdefault(key, self.table.get(key))  # first, as a Ctrl-C may come between the two
        self.table.put(key, row)
        return self._span_of(row)

    def sync(self) -> LogState:
        """Write every block to the disk; return the state of the log for a manifest.

        After an ``OSError`` of a write, all blocks stay in the log and wait for the next sync. After an error of the
        sync itself the content on the disk is unknown, so the log drops the blocks appended since the last sync. The
        names of new files are durable once the folder is synced, which ``write_manifest`` does.
        """
        if self._tail is not None and self._tail.file.synced != self._tail.file.end:
            self._sync_tail(self._tail)
        needed = self._needed_bytes()
        return {
            "files": [
                {"number": number, "bytes": file.synced.bytes, "blocks": file.synced.blocks}
                for number, file in self._files.items()
                if file.synced is not None and number in needed
            ],
            "next_file": self.next_file,
        }

    def drop(self, keys: Iterable[BlockKey]) -> None:
        """Mark these blocks as unneeded; unknown keys are ignored."""
        for key in keys:
            self.table.drop(key)
            self._unsynced.pop(key, None)

    def compact(self) -> dict[BlockKey, BlockSpan]:
        """Copy the needed blocks of sparse files to the end, until half of all bytes are needed.

        Returns the new spans, which count from the next commit on; its ``remove_unneeded`` removes the old files.
        Each copied byte frees more than one byte, so copying takes at most as long as appending. A damaged block stays,
        and so does its file, so that its reader finds the damage.
        """
        moved = {}
        while (file := self._find_sparsest()) is not None:
            with self._disk.open_to_read(self._path(file.number, LOG)) as log:
                for key, row in self.table.in_file(file.number):
                    try:
                        payload = read_block(log, key, row)
                    except DamagedDataError:
                        file.is_sound = False
                    else:
                        moved[key] = self.append(key, payload)
        return moved

    def remove_unneeded(self, kept: Iterable[LogState]) -> list[Path]:
        """Remove the files of this log that no state of ``kept`` names; return the removed log files.

        ``kept`` are the states of all kept manifests, including the newest one. If this log continued an older state,
        the ends of files that only newer, removed states named are cut off. On Windows a file in use stays until the
        next call.
        """
        ends, removed = find_committed(kept), []
        unnamed = (self._files.keys() | self._ends_at_open.keys()) - ends.keys()
        if unnamed:
            unnamed -= self._needed_bytes().keys()
        for number in sorted(unnamed):
            if all(self._disk.remove(self._path(number, ending)) for ending in (INDEX, LOG)):
                self._files.pop(number, None)
                self._ends_at_open.pop(number, None)
                removed.append(self._path(number, LOG))
        self._cut_unnamed(ends)
        return removed

    def close(self) -> None:
        """Close the files without a sync. Closing again does nothing."""
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.close()

    def _next_tail(self) -> LogTail:
        if self._tail is not None:
            self._sync_tail(self._tail)
            self.close()
        number = self.next_file
        self.next_file += 1
        tail = LogTail.create(self._folder, self._name, number, self._disk)
        self._files[number] = tail.file
        self._tail = tail
        return tail

    def _sync_tail(self, tail: LogTail) -> None:
        tail.write_index()
        try:
            tail.sync()
        except OSError:
            self._drop_unsynced(tail)
            raise
        self._unsynced.clear()

    def _drop_unsynced(self, tail: LogTail) -> None:
        """Drop the blocks that a failed sync may have lost; the next append starts another file."""
        self._tail = None
        tail.abandon(self._disk)
        for key, previous in self._unsynced.items():
            self.table.drop(key)
            if previous is not None:
                self.table.put(key, previous)
        self._unsynced.clear()
        if tail.file.synced is None:
            del self._files[tail.file.number]

    def _load_files(self, state: LogState) -> dict[int, bool]:
        """Load the files of ``state``; return for each whether the log may append to it."""
        entries, is_intact = {}, {}
        for file in state["files"]:
            number, end = file["number"], FileEnd(file["bytes"], file["blocks"])
            try:
                with self._disk.open_to_read(self._path(number, LOG)) as log:
                    entries[number], damage = find_entries(self._folder, self._name, file, log, self._disk)
                    is_intact[number] = damage is None and log.size == end.bytes
            except FileNotFoundError as error:
                raise DamagedDataError(
                    f"{error.filename}: the file is missing, and {end.blocks} blocks with it; "
                    f"{repair_hint(self._folder)}"
                ) from error
            self._files[number] = LogFile(number, end, end)
        self.table.put_files(entries)
        return is_intact

    def _cut_left_over(self, ends: dict[int, FileEnd]) -> None:
        """Cut off everything behind these ends."""
        for number, end in ends.items():
            for ending, committed in ((LOG, end.bytes), (INDEX, end.index_bytes)):
                path = self._path(number, ending)
                if num_bytes := self._cut(path, committed):
                    self.left_over[path] = num_bytes

    def _cut_unnamed(self, ends: dict[int, FileEnd]) -> None:
        """Cut off data that was named when the log was opened, and that neither ``ends`` nor this log name now."""
        for number, end_at_open in list(self._ends_at_open.items()):
            file = self._files.get(number)
            end = max(ends.get(number, NO_BLOCKS), NO_BLOCKS if file is None else file.end)
            if number in ends and end < end_at_open:
                self._cut(self._path(number, LOG), end.bytes)
                self._cut(self._path(number, INDEX), end.index_bytes)
                self._ends_at_open[number] = end

    def _cut(self, path: Path, end: int) -> int:
        """Cut off what stands behind ``end`` and return its bytes; leave a file that has several names."""
        with suppress(FileNotFoundError, DamagedDataError):  # `_load_files` names such a log; an index is rebuilt
            if (size := self._disk.size(path)) > end and self._disk.has_one_name(path):
                self._disk.open_at(path, end).close()
                return size - end
        return 0

    def _is_ours(self, file: LogFile) -> bool:
        """Return whether nothing else, such as a backup by ``cp -al``, has this file too."""
        return all(self._disk.has_one_name(self._path(file.number, ending)) for ending in (LOG, INDEX))

    def _needed_bytes(self) -> dict[int, int]:
        """Return the bytes of needed blocks of each file that has any, and of the one that grows.

        Their headers and index entries count too.
        """
        rows = self.table.rows()
        first = int(rows.files.min(initial=np.iinfo(np.int32).max))
        sizes = np.bincount(rows.files - first, rows.sizes + float(BLOCK_HEADER_BYTES + ENTRY_BYTES))  # exact to 2**53
        growing = {} if self._tail is None else {self._tail.file.number: 0}
        return growing | {first + number: int(sizes[number]) for number in np.flatnonzero(sizes).tolist()}

    def _find_sparsest(self) -> LogFile | None:
        """Return the file with the smallest needed part, if less than half of it and of all bytes is needed."""
        needed, growing = self._needed_bytes(), self._tail and self._tail.file
        files = [file for file in self._files.values() if file.is_sound and file.number in needed]
        if 2 * sum(needed[file.number] for file in files) >= sum(file.bytes for file in files):
            return None
        sparse = [file for file in files if 2 * needed[file.number] < file.bytes and file is not growing]
        return min(sparse, key=lambda file: needed[file.number] / file.bytes, default=None)

    def _span_of(self, row: Row) -> BlockSpan:
        return BlockSpan(self._path(row.file, LOG), row.offset, row.size)

    def _path(self, number: int, ending: str) -> Path:
        return self._folder / file_name(self._name, number, ending)


def find_committed(states: Iterable[LogState]) -> dict[int, FileEnd]:
    """Return the largest end of each file in any of the states."""
    ends: dict[int, FileEnd] = {}
    for state in states:
        for file in state["files"]:
            end = FileEnd(file["bytes"], file["blocks"])
            ends[file["number"]] = max(end, ends.get(file["number"], end))
    return ends


class LogTail:
    """The log file that grows, and its index, to which each sync adds the new entries."""

    def __init__(self, file: LogFile, log: AppendFile, index: AppendFile) -> None:
        # The log shares this object with ``BlockLogWriter``; only ``append``, ``sync`` and ``abandon`` change its ends.
        self.file = file
        self._log, self._index = log, index
        self._entries = bytearray()  # index entries since the last sync

    @classmethod
    def create(cls, folder: Path, name: str, number: int, files: FileSystem) -> LogTail:
        """Create a file and its index; after an error remove both."""
        with ExitStack() as undo:
            opened = {}
            for ending in (LOG, INDEX):
                path = folder / file_name(name, number, ending)
                undo.callback(remove_if_possible, path, files)
                opened[ending] = files.create(path)
                undo.callback(opened[ending].close)
                opened[ending].append(pack_file_header(name, number, ending))
            undo.pop_all()
        return cls(LogFile(number), opened[LOG], opened[INDEX])

    @classmethod
    def reopen(cls, folder: Path, name: str, file: LogFile, files: FileSystem) -> LogTail:
        """Continue a file at the end that ``file`` has."""
        with ExitStack() as undo:
            log = files.open_at(folder / file_name(name, file.number, LOG), file.end.bytes)
            undo.callback(log.close)
            index = files.open_at(folder / file_name(name, file.number, INDEX), file.end.index_bytes)
            undo.pop_all()
        return cls(file, log, index)

    def fits(self, payload_bytes: int, file_bytes: int) -> bool:
        """Return whether a block fits into a file of at most ``file_bytes``; the first block always does."""
        end = self.file.end
        return not end.blocks or end.bytes + BLOCK_HEADER_BYTES + payload_bytes <= file_bytes

    def append(self, key: BlockKey, payload: bytes) -> Row:
        """Append a block and return its row; after an error nothing of it remains."""
        self._roll_back()
        end = self.file.end
        row = Row(self.file.number, end.bytes + BLOCK_HEADER_BYTES, len(payload))
        self._log.append(pack_block_header(key, payload) + payload)
        self._entries += pack_entry(key, row.offset, row.size)
        self.file.end = FileEnd(row.offset + row.size, end.blocks + 1)
        return row

    def write_index(self) -> None:
        """Write the index entries since the last sync. Call it again after an error."""
        self._roll_back()
        self._index.append(bytes(self._entries))

    def sync(self) -> None:
        """Sync both files. After an error abandon this tail: its content on the disk is unknown."""
        self._log.sync()
        self._index.sync()
        self.file.synced = self.file.end
        self._entries.clear()

    def abandon(self, files: FileSystem) -> None:
        """Close both files, and try to remove everything that was never synced."""
        synced = self.file.synced
        if synced is None:
            self.close()
            for file in (self._index, self._log):
                remove_if_possible(file.path, files)
            return
        with suppress(OSError):
            self._log.cut(synced.bytes)
            self._index.cut(synced.index_bytes)
        self.close()
        self.file.end = synced

    def close(self) -> None:
        """Close both files. Closing again does nothing."""
        self._log.close()
        self._index.close()

    def _roll_back(self) -> None:
        """Return to the last complete append, if an error or a Ctrl-C interrupted one."""
        synced = self.file.synced or NO_BLOCKS
        self._log.size = self.file.end.bytes
        self._index.size = synced.index_bytes
        del self._entries[(self.file.end.blocks - synced.blocks) * ENTRY_BYTES :]
