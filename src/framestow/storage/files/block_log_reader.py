"""Read a block log as a manifest names it, and verify every byte.

``BlockLogReader`` reads blocks by key. A damaged index costs no block: its entries are found by the block headers in
the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt

from framestow._core import checksum
from framestow.errors import DamagedDataError
from framestow.interface import Closing
from framestow.storage.files.block_format import (
    BLOCK_HEADER_BYTES,
    ENTRY,
    ENTRY_BYTES,
    FILE_HEADER_BYTES,
    INDEX,
    LOG,
    BlockHeader,
    BlockKey,
    BlockSpan,
    BlockTable,
    Damage,
    Entries,
    FileState,
    LogState,
    Row,
    are_intact,
    check_file_header,
    file_name,
    index_bytes,
    pack_entry,
    pack_file_header,
    repair_hint,
    unpack_block_header,
)
from framestow.storage.files.file_system import DISK, FileSystem, ReadFile, write_atomically


class BlockLogReader(Closing):
    """Reader of the committed blocks of a log. Committed data never changes, so a writer may append meanwhile.

    It keeps the log files open, so files that a writer removes stay readable. Windows cannot delete them meanwhile. Any
    number of threads may call ``read``.
    """

    def __init__(self, folder: Path, name: str, files: FileSystem) -> None:
        self._folder, self._name, self._files = folder, name, files
        # By number of the file: the open log, and how much of it is committed.
        self._logs: dict[int, ReadFile] = {}
        self._states: dict[int, FileState] = {}
        self._table = BlockTable()

    @classmethod
    def open(cls, folder: Path, name: str, state: LogState, files: FileSystem = DISK) -> BlockLogReader:
        """Open the log files of ``state``, from a manifest.

        Damage raises when it is read, or is listed by ``damages``.

        Raises:
            FileNotFoundError: a log file is missing; while another process writes, read the newest manifest again.
            IncompatibleError: a later version wrote the files.
        """
        reader = cls(folder, name, files)
        with ExitStack() as on_error:
            on_error.callback(reader.close)
            reader._table.put_files({file["number"]: reader._open_file(file) for file in state["files"]})
            on_error.pop_all()
        return reader

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._table

    def __iter__(self) -> Iterator[BlockKey]:
        """Return all blocks by track and number, including unneeded ones whose file still exists."""
        return self._table.keys()

    def find(self, key: BlockKey) -> BlockSpan:
        """Return where a block is, unverified; raise ``KeyError`` if it does not exist."""
        row = self._row(key)
        return BlockSpan(self._logs[row.file].path, row.offset, row.size)

    def read(self, key: BlockKey) -> bytes:
        """Return a block's payload; raise ``KeyError`` if it does not exist, ``DamagedDataError`` if damaged."""
        row = self._row(key)
        return read_block(self._logs[row.file], key, row)

    def header(self, key: BlockKey) -> BlockHeader | None:
        """Return a block's header, or ``None`` if it is damaged."""
        row = self._row(key)
        try:
            return unpack_block_header(
                self._logs[row.file].read_at(row.offset - BLOCK_HEADER_BYTES, BLOCK_HEADER_BYTES)
            )
        except OSError:
            return None

    def drop(self, key: BlockKey) -> None:
        """Find and read this block no more."""
        self._table.drop(key)

    def take(self, key: BlockKey, other: BlockLogReader) -> None:
        """Find and read this block where ``other`` has it, another reader of the same log."""
        row = other._row(key)
        self._logs.setdefault(row.file, other._logs[row.file])
        self._table.put(key, row)

    def damages(self, progress: Callable[[int], None] = lambda _: None) -> Iterator[Damage]:
        """Read every byte and yield all damage as it is found; call ``progress`` with the bytes of each block."""
        for number, log in self._logs.items():
            entries, damage = self._find_entries(number)
            if damage is not None:
                yield damage
            yield from self._damages_of(log, self._states[number], entries, progress)

    def repair_indices(self) -> list[Path]:
        """Rewrite damaged and lost indices; return them. Only the writer of the folder may call it."""
        repaired = []
        for number in self._logs:
            entries, damage = self._find_entries(number)
            if damage is not None:
                repaired.append(damage.file)
                write_index(self._folder, self._name, number, entries, self._files)
        return repaired

    def close(self) -> None:
        """Close the files. Closing again does nothing."""
        for log in self._logs.values():
            log.close()

    def _open_file(self, state: FileState) -> Entries:
        number = state["number"]
        self._logs[number] = self._files.open_to_read(self._folder / file_name(self._name, number, LOG))
        self._states[number] = state
        return self._find_entries(number)[0]

    def _find_entries(self, number: int) -> tuple[Entries, Damage | None]:
        return find_entries(self._folder, self._name, self._states[number], self._logs[number], self._files)

    def _damages_of(
        self, log: ReadFile, state: FileState, entries: Entries, progress: Callable[[int], None]
    ) -> Iterator[Damage]:
        try:
            check_file_header(log.path, log.read_at(0, FILE_HEADER_BYTES), self._name, state["number"], LOG)
        except DamagedDataError as error:
            yield Damage(log.path, 0, None, str(error))
        end = FILE_HEADER_BYTES
        for track, number, offset, size, _ in entries.tolist():
            if offset - BLOCK_HEADER_BYTES != end:
                yield _gap(log.path, end, offset - BLOCK_HEADER_BYTES)
            end = offset + size
            key = BlockKey(track, number)
            try:
                read_block(log, key, Row(state["number"], offset, size))
            except DamagedDataError as error:
                yield Damage(log.path, offset, key, str(error))
            progress(BLOCK_HEADER_BYTES + size)
        if end != state["bytes"]:
            yield _gap(log.path, end, state["bytes"])

    def _row(self, key: BlockKey) -> Row:
        row = self._table.get(key)
        if row is None:
            raise KeyError(f"block {key.number} of track {key.track}: {self._folder} has none in {self._name!r}")
        return row


def read_block(log: ReadFile, key: BlockKey, row: Row) -> bytes:
    """Return the payload at ``row``; raise ``DamagedDataError`` unless it is the intact block ``key``."""
    start = row.offset - BLOCK_HEADER_BYTES
    try:
        block = log.read_at(start, BLOCK_HEADER_BYTES + row.size)
    except OSError as error:
        raise DamagedDataError(
            f"{log.path}: {_block_name(key)} at offset {row.offset} cannot be read ({error.strerror}); "
            f"{repair_hint(log.path.parent)}"
        ) from error
    header, payload = unpack_block_header(block[:BLOCK_HEADER_BYTES]), block[BLOCK_HEADER_BYTES:]
    if header is None or (header.key, header.size, header.payload_checksum) != (key, row.size, checksum(payload)):
        raise DamagedDataError(
            f"{log.path}: {_block_name(key)} at offset {row.offset} is damaged; {repair_hint(log.path.parent)}"
        )
    return payload


def _block_name(key: BlockKey) -> str:
    return f"block {key.number} of track {key.track}"


def _gap(path: Path, start: int, end: int) -> Damage:
    return Damage(path, start, None, f"{path}: the {end - start} bytes at offset {start} are not intact blocks")


def find_entries(
    folder: Path, name: str, state: FileState, log: ReadFile, files: FileSystem = DISK
) -> tuple[Entries, Damage | None]:
    """Return the entries of the committed blocks of a log file, and the damage of its index, if any.

    With an intact index this reads nothing of the log. Otherwise it follows the block headers in the log. After a
    damaged header it continues at the next intact entry, so only blocks without header and entry are lost.
    """
    path = folder / file_name(name, state["number"], INDEX)
    content, unreadable = b"", None
    try:
        with files.open_to_read(path) as index:
            content = index.read_at(0, index_bytes(state["blocks"]))
    except DamagedDataError as error:
        unreadable = Damage(path, 0, None, str(error))
    except OSError as error:
        unreadable = Damage(path, 0, None, f"{path}: the file cannot be read ({error.strerror})")
    stored = content[FILE_HEADER_BYTES:]
    found = np.frombuffer(stored, ENTRY, len(stored) // ENTRY_BYTES)
    is_intact = are_intact(found)
    entries = found[is_intact]
    damage = unreadable or _index_damage(path, content, is_intact, entries, name, state)
    if damage is None:
        return entries, None
    within = np.extract(entries["offset"] + entries["size"] <= state["bytes"], entries)
    return _walk_headers(log, state, within), damage


def _index_damage(
    path: Path, content: bytes, is_intact: npt.NDArray[np.bool_], entries: Entries, name: str, state: FileState
) -> Damage | None:
    try:
        check_file_header(path, content[:FILE_HEADER_BYTES], name, state["number"], INDEX)
    except DamagedDataError as error:
        return Damage(path, 0, None, str(error))
    if len(entries) < state["blocks"]:
        start = index_bytes(int(np.append(is_intact, False).argmin()))
        return Damage(path, start, None, f"{path}: the entry at offset {start} is damaged")
    if not _tiles(entries, state["bytes"]):
        log = file_name(name, state["number"], LOG)
        return Damage(path, FILE_HEADER_BYTES, None, f"{path}: its entries, from offset 32 on, do not match {log}")
    return None


def _walk_headers(log: ReadFile, state: FileState, known: Entries) -> Entries:
    """Follow the block headers through a log; after a damaged one continue at the next known entry."""
    starts = np.sort(known["offset"].astype(np.int64)) - BLOCK_HEADER_BYTES
    by_start = {int(entry["offset"]) - BLOCK_HEADER_BYTES: entry for entry in known}
    found, position = [], FILE_HEADER_BYTES
    while position + BLOCK_HEADER_BYTES <= state["bytes"]:
        header = _header_at(log, position, state["bytes"])
        if header is not None:
            found.append(pack_entry(header.key, position + BLOCK_HEADER_BYTES, header.size))
            position += BLOCK_HEADER_BYTES + header.size
        elif position in by_start:
            entry = by_start[position]
            found.append(entry.tobytes())
            position += BLOCK_HEADER_BYTES + int(entry["size"])
        else:
            later = starts[np.searchsorted(starts, position, side="right") :]
            position = int(later[0]) if len(later) else state["bytes"]
    return np.frombuffer(b"".join(found), ENTRY)


def _header_at(log: ReadFile, position: int, num_bytes: int) -> BlockHeader | None:
    header = unpack_block_header(log.read_at(position, BLOCK_HEADER_BYTES))
    return header if header and position + BLOCK_HEADER_BYTES + header.size <= num_bytes else None


def _tiles(entries: Entries, num_bytes: int) -> bool:
    """Return whether blocks at ``entries`` fill a log file of ``num_bytes`` bytes, in order and without gaps."""
    ends = np.append(FILE_HEADER_BYTES, entries["offset"] + entries["size"]).astype(np.uint64)
    return bool((ends[:-1] + BLOCK_HEADER_BYTES == entries["offset"]).all()) and int(ends[-1]) == num_bytes


def write_index(folder: Path, name: str, number: int, entries: Entries, files: FileSystem = DISK) -> None:
    """Replace a damaged or lost index atomically."""
    path = folder / file_name(name, number, INDEX)
    write_atomically(path, pack_file_header(name, number, INDEX) + entries.tobytes(), files)
