"""Write a log of blocks: append-only files of limited size.

``BlockLogWriter`` appends, removes and compacts blocks; its caller removes files that nothing needs. ``LogTail`` is
the one file that grows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from framestow._core import checksum
from framestow.errors import DamagedDataError, IncompatibleError, InvalidSettingsError
from framestow.interface import Closing
from framestow.storage.files.block_format import (
    BLOCK_HEADER_BYTES,
    ENTRY_BYTES,
    FILE_HEADER_BYTES,
    INDEX,
    LOG,
    LOG_FILE,
    BlockHeader,
    BlockKey,
    BlockSpan,
    BlockTable,
    Entries,
    FileState,
    LogPlace,
    LogState,
    Row,
    index_bytes,
    pack_entry,
    pack_key,
)
from framestow.storage.files.block_log_reader import open_log, read_block
from framestow.storage.files.file_system import DISK, AppendFile, FileSystem, remove_if_possible

FILE_BYTES = 64 * 2**20  # maximum size of a log file
MOST_NUMBER = 10**15 - 1  # of a file: what ``LOG_FILE`` finds
_NAME_LETTERS = 8  # at most; a file header has so many bytes for the name


class FileEnd(NamedTuple):
    """End of a log file. One value, so that a Ctrl-C during an append finds the old one or the new one."""

    bytes: int  # of the log file, with its header
    blocks: int  # in the file, needed or not


NO_BLOCKS = FileEnd(FILE_HEADER_BYTES, 0)  # of a file that has only its header


@dataclass
class LogFile:
    """A log file: its end, and what of it is on the disk."""

    number: int
    end: FileEnd = NO_BLOCKS  # after everything appended, synced or not
    synced: FileState | None = None  # None: nothing is synced
    is_sound: bool = True  # False: it has a damaged block, so it is not compacted
    bytes_behind: int = 0  # of both files, behind what a commit names: a killed writer left them

    @property
    def bytes(self) -> int:
        """Bytes of the file and its index."""
        return self.end.bytes + index_bytes(self.end.blocks) + self.bytes_behind


class BlockLogWriter(Closing):
    """Appends blocks and removes unneeded ones; for one thread at a time.

    A commit has four steps: append the new blocks, ``sync``, write a commit with the returned state, and remove the
    files that no commit names. A crash before the commit leaves the log as the last one names it, beside files that
    no commit names. Of two blocks with one key the later one counts.

    The log appends to files that it created, and to the last file of ``state`` if nothing stands behind its end.
    """

    def __init__(self, place: LogPlace, file_bytes: int, files: FileSystem) -> None:
        if not 0 < len(place.name) <= _NAME_LETTERS:
            raise InvalidSettingsError(
                f"log {place.name!r}: a name must have 1 to {_NAME_LETTERS} letters; give another one"
            )
        self._place, self._file_bytes, self._disk = place, file_bytes, files
        matches = filter(None, map(LOG_FILE.fullmatch, files.names(place.folder)))
        numbers = [int(match[3]) for match in matches if match.group(1, 2) == (place.name, place.id)]
        self.next_file = 1 + max(numbers, default=0)
        """Number of the next file that it creates, above that of every file in the folder; it never decreases."""
        self.table = BlockTable(place.name_in_folder)
        """Where each needed block is; removed blocks are not in it."""
        self._files: dict[int, LogFile] = {}  # by number, ascending: files that the log reads or appends to
        self._tail: LogTail | None = None  # file that grows; None: the next append creates one
        self._unsynced: dict[BlockKey, Row | None] = {}  # new since the last sync, with its row before

    @classmethod
    def open(
        cls,
        place: LogPlace,
        state: LogState | None,
        *,
        file_bytes: int = FILE_BYTES,
        files: FileSystem = DISK,
    ) -> BlockLogWriter:
        """Continue the log of ``state``, from a commit; ``None`` begins an empty log.

        Every block of ``state`` is needed until ``remove``. Damage is found when a block is read. A file that is longer
        than ``state`` says, or that has several names, stays as it is; the log goes on in a new file.

        Raises:
            DamagedDataError: a log file is missing, no file, or of another store.
        """
        writer = cls(place, file_bytes, files)
        if state is not None:
            writer.next_file = max(writer.next_file, state["next_file"])
            writer._check_next_file()
            entries, is_whole = writer._load_files(state)
            last = next(reversed(writer._files.values()), None)
            if last is not None and is_whole[last.number] and writer._has_no_other_name(last):
                writer._tail = LogTail.reopen(place, last, entries[last.number], files)
        return writer

    @property
    def file_bytes(self) -> int:
        """Bytes of all files, including those to be removed."""
        return sum(file.bytes for file in self._files.values())

    def find(self, key: BlockKey) -> BlockSpan:
        """Return where a block is, readable after a sync; raise ``KeyError`` if it does not exist."""
        row = self.table[key]
        return BlockSpan(self._place.path(row.file, LOG), row.offset, row.size, row.checksum)

    def append(self, key: BlockKey, payload: bytes, version: int = 0) -> None:
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
        row = tail.append(key, payload, version)
        self._unsynced.setdefault(key, self.table.get(key))  # first, as a Ctrl-C may come between the two
        self.table.put(key, row)

    def sync(self) -> LogState:
        """Write every block to the disk; return the state of the log for a commit.

        After an ``OSError`` of a write, all blocks stay in the log and wait for the next sync. After an error of the
        sync itself the content on the disk is unknown, so the log removes the blocks appended since the last sync. The
        names of new files are durable once the folder is synced, which a commit does.
        """
        if self._tail is not None and not self._tail.is_synced:
            self._sync_tail(self._tail)
        needed = self._needed_bytes()
        files = [file.synced for number, file in self._files.items() if file.synced is not None and number in needed]
        return {"files": files, "next_file": self.next_file}

    def remove(self, keys: Iterable[BlockKey]) -> None:
        """Remove blocks from the table, as unneeded; unknown keys are ignored. Files keep their bytes."""
        for key in keys:
            self.table.remove(key)
            self._unsynced.pop(key, None)

    def compact(self) -> list[BlockKey]:
        """Copy the needed blocks of sparse files to the end, until half of all bytes are needed.

        Returns the copied ones, whose new places count from the next commit on. Each copied byte frees more than one
        byte, so copying takes at most as long as appending. A damaged block stays, and so does its file, so that its
        reader finds the damage.
        """
        moved: list[BlockKey] = []
        while (file := self._find_sparsest()) is not None:
            with self._disk.open_to_read(self._place.path(file.number, LOG)) as log:
                for key, row in self.table.in_file(file.number):
                    try:
                        payload = read_block(self._place, log, key, row)
                    except DamagedDataError:
                        file.is_sound = False
                    else:
                        self.append(key, payload, row.version)
                        moved.append(key)
        return moved

    def leave_out(self, names: Collection[str]) -> None:
        """Count the files with these names no more: the caller has removed them."""
        for number in list(self._files):
            if self._place.file_name(number, LOG) in names:
                del self._files[number]

    def close(self) -> None:
        """Close the files without a sync. Closing again does nothing."""
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.close()

    def _next_tail(self) -> LogTail:
        if self._tail is not None:
            self._sync_tail(self._tail)
            self.close()
        self._check_next_file()
        number = self.next_file
        self.next_file += 1
        tail = LogTail.create(self._place, number, self._disk)
        self._files[number] = tail.file
        self._tail = tail
        return tail

    def _check_next_file(self) -> None:
        if self.next_file > MOST_NUMBER:
            raise IncompatibleError(
                f"{self._place.path(self.next_file - 1, LOG)}: its number is too high for another file, which has at "
                f"most {MOST_NUMBER:,}; load the memory, and save it to another folder"
            )

    def _sync_tail(self, tail: LogTail) -> None:
        tail.write_index()
        try:
            tail.sync()
        except OSError:
            self._remove_unsynced(tail)
            raise
        self._unsynced.clear()

    def _remove_unsynced(self, tail: LogTail) -> None:
        """Remove the blocks that a failed sync may have lost; the next append starts another file."""
        self._tail = None
        tail.abandon(self._disk)
        for key, previous in self._unsynced.items():
            self.table.remove(key)
            if previous is not None:
                self.table.put(key, previous)
        self._unsynced.clear()
        if tail.file.synced is None:
            del self._files[tail.file.number]

    def _load_files(self, state: LogState) -> tuple[dict[int, Entries], dict[int, bool]]:
        """Load the files of ``state``; return the entries of each, and whether log and index end where it says."""
        entries, is_whole = {}, {}
        for file in state["files"]:
            number, end = file["number"], FileEnd(file["bytes"], file["blocks"])
            log, entries[number], damage = open_log(self._place, file, self._disk)
            with log:
                behind = log.size - end.bytes
            if damage is None:
                behind += self._disk.size(self._place.path(number, INDEX)) - index_bytes(end.blocks)
            is_whole[number] = damage is None and not behind
            self._files[number] = LogFile(number, end, file, bytes_behind=max(0, behind))
        self.table.put_files(entries)
        return entries, is_whole

    def _has_no_other_name(self, file: LogFile) -> bool:
        """Return whether nothing else, such as a backup, has log and index too."""
        return all(self._disk.has_one_name(self._place.path(file.number, ending)) for ending in (LOG, INDEX))

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


class LogTail:
    """The log file that grows, and its index, to which each sync adds the new entries."""

    def __init__(self, place: LogPlace, file: LogFile, log: AppendFile, index: AppendFile, entries: bytes) -> None:
        # The log shares this object with ``BlockLogWriter``; only ``append``, ``sync`` and ``abandon`` change its ends.
        self.file = file
        self._place, self._log, self._index = place, log, index
        self._entries = bytearray(entries)  # of all blocks in the file

    @classmethod
    def create(cls, place: LogPlace, number: int, files: FileSystem) -> LogTail:
        """Create a file and its index; after an error remove both.

        Raises:
            FileExistsError: another file has one of the names.
        """
        with ExitStack() as undo:
            opened = {}
            for ending in (LOG, INDEX):
                path = place.path(number, ending)
                opened[ending] = files.create(path)
                undo.callback(remove_if_possible, path, files)
                undo.callback(opened[ending].close)
                opened[ending].append(place.pack_file_header(number, ending))
            undo.pop_all()
        return cls(place, LogFile(number), opened[LOG], opened[INDEX], b"")

    @classmethod
    def reopen(cls, place: LogPlace, file: LogFile, entries: Entries, files: FileSystem) -> LogTail:
        """Continue a file at the end that ``file`` has."""
        with ExitStack() as undo:
            log = files.open_at(place.path(file.number, LOG), file.end.bytes)
            undo.callback(log.close)
            index = files.open_at(place.path(file.number, INDEX), index_bytes(file.end.blocks))
            undo.pop_all()
        return cls(place, file, log, index, entries.tobytes())

    @property
    def is_synced(self) -> bool:
        """Whether everything appended is on the disk."""
        synced = self.file.synced
        return synced is not None and (synced["bytes"], synced["blocks"]) == self.file.end

    def fits(self, payload_bytes: int, file_bytes: int) -> bool:
        """Return whether a block fits into a file of at most ``file_bytes``; the first block always does."""
        end = self.file.end
        return not end.blocks or end.bytes + BLOCK_HEADER_BYTES + payload_bytes <= file_bytes

    def append(self, key: BlockKey, payload: bytes, version: int) -> Row:
        """Append a block and return its row; after an error nothing of it remains."""
        self._roll_back()
        end = self.file.end
        header = BlockHeader(key, version, len(payload), checksum(payload))
        offset = end.bytes + BLOCK_HEADER_BYTES
        self._log.append(self._place.pack_block_header(header) + payload)
        self._entries += pack_entry(header, offset)
        self.file.end = FileEnd(offset + header.size, end.blocks + 1)
        return Row(self.file.number, offset, header.size, version, header.payload_checksum)

    def write_index(self) -> None:
        """Write the index entries since the last sync. Call it again after an error."""
        self._roll_back()
        self._index.append(bytes(self._entries[self._index.size - FILE_HEADER_BYTES :]))

    def sync(self) -> None:
        """Sync both files. After an error abandon this tail: its content on the disk is unknown."""
        self._log.sync()
        self._index.sync()
        end = self.file.end
        self.file.synced = FileState(
            number=self.file.number, bytes=end.bytes, blocks=end.blocks, checksum=checksum(bytes(self._entries))
        )

    def abandon(self, files: FileSystem) -> None:
        """Close both files, and try to remove everything that was never synced."""
        synced = self.file.synced
        if synced is None:
            self.close()
            for file in (self._index, self._log):
                remove_if_possible(file.path, files)
            return
        with suppress(OSError):
            self._log.cut(synced["bytes"])
            self._index.cut(index_bytes(synced["blocks"]))
        self.close()
        self.file.end = FileEnd(synced["bytes"], synced["blocks"])

    def close(self) -> None:
        """Close both files. Closing again does nothing."""
        self._log.close()
        self._index.close()

    def _roll_back(self) -> None:
        """Return to the last complete append, if an error or a Ctrl-C interrupted one."""
        synced = self.file.synced
        self._log.size = self.file.end.bytes
        self._index.size = index_bytes(synced["blocks"] if synced else 0)
        del self._entries[self.file.end.blocks * ENTRY_BYTES :]
