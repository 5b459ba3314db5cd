"""The file at the end of a log, and what is known of each file of it."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from framestow.storage.files.block_format import (
    BLOCK_HEADER_BYTES,
    ENTRY_BYTES,
    FILE_HEADER_BYTES,
    INDEX,
    LOG,
    BlockKey,
    file_name,
    pack_block_header,
    pack_entry,
    pack_file_header,
)
from framestow.storage.files.block_table import Row
from framestow.storage.files.file_system import AppendFile, FileSystem


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
