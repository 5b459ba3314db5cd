"""Read a block log as a commit names it, and verify every byte.

``BlockLogReader`` reads blocks by key. A damaged index costs no block: its entries are found by the block headers in
the log. A log whose entries are not those of the commit is refused as a whole.
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
    FILE_HEADER_BYTES,
    INDEX,
    LOG,
    BlockKey,
    BlockSpan,
    BlockTable,
    Damage,
    Entries,
    FileState,
    LogPlace,
    LogState,
    Row,
    index_bytes,
    pack_entry,
    repair_hint,
)
from framestow.storage.files.file_system import DISK, FileSystem, ReadFile, write_atomically


class BlockLogReader(Closing):
    """Reader of the committed blocks of a log. Committed data never changes, so a writer may append meanwhile.

    It keeps the log files open, so files that a writer removes stay readable. Windows cannot delete them meanwhile. Any
    number of threads may call ``read``.
    """

    def __init__(self, place: LogPlace, files: FileSystem) -> None:
        self._place, self._files = place, files
        # By number of the file: the open log, and how much of it is committed.
        self._logs: dict[int, ReadFile] = {}
        self._states: dict[int, FileState] = {}
        self._table = BlockTable(place.name_in_folder)
        self.unusable: list[Damage] = []
        """Files without any block that can be read: missing, no files, or of another store."""

    @classmethod
    def open(
        cls, place: LogPlace, state: LogState, files: FileSystem = DISK, *, skips_damage: bool = False
    ) -> BlockLogReader:
        """Open the log files of ``state``, from a commit.

        Damage of blocks raises when they are read, or is listed by ``damages``. With ``skips_damage`` the reader has no
        block of a file that cannot be used, and lists it in ``unusable``.

        Raises:
            DamagedDataError: a log file is missing, no file, or not the one that the commit names. Read the newest
                commit again if another process writes.
            IncompatibleError: a later version wrote the files.
        """
        reader = cls(place, files)
        with ExitStack() as on_error:
            on_error.callback(reader.close)
            entries = {}
            for file in state["files"]:
                number = file["number"]
                try:
                    reader._logs[number], entries[number], _ = open_log(place, file, files)
                    reader._states[number] = file
                except DamagedDataError as error:
                    if not skips_damage:
                        raise
                    reader.unusable.append(Damage(place.path(number, LOG), 0, None, str(error)))
            reader._table.put_files(entries)
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
        row = self._table[key]
        return BlockSpan(self._logs[row.file].path, row.offset, row.size, row.checksum)

    def sizes(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the bytes of many blocks by their packed keys, 0 for those that do not exist."""
        rows = self._table.rows()
        if not len(rows.keys):
            return np.zeros(len(keys), np.int64)
        found = np.searchsorted(rows.keys, keys).clip(max=len(rows.keys) - 1)
        return np.where(rows.keys[found] == keys, rows.sizes[found].astype(np.int64), 0)

    def version(self, key: BlockKey) -> int:
        """Return the version of a block; raise ``KeyError`` if it does not exist."""
        return self._table[key].version

    def read(self, key: BlockKey, version: int = 0) -> bytes:
        """Return a block's payload; raise ``KeyError`` if it does not exist, ``DamagedDataError`` if damaged.

        ``version``: the one that the commit names. Another one is damage.
        """
        row = self._table[key]
        if row.version != version:
            raise DamagedDataError(
                f"{self._logs[row.file].path}: {_block_name(key)} at offset {row.offset} has version {row.version}, "
                f"and the commit names version {version}; {repair_hint(self._place.folder)}"
            )
        return read_block(self._place, self._logs[row.file], key, row)

    def remove(self, key: BlockKey) -> None:
        """Find and read this block no more."""
        self._table.remove(key)

    def take(self, key: BlockKey, other: BlockLogReader) -> bool:
        """Find and read this block where ``other`` has the same one; return whether it has it."""
        row, own = other._table.get(key), self._table[key]
        if row is None or (row.size, row.version, row.checksum) != (own.size, own.version, own.checksum):
            return False
        self._logs.setdefault(row.file, other._logs[row.file])
        self._table.put(key, row)
        return True

    def damages(self, progress: Callable[[int], None] = lambda _: None) -> Iterator[Damage]:
        """Read every byte and yield all damage as it is found; call ``progress`` with the bytes of each block."""
        yield from self.unusable
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
                content = self._place.pack_file_header(number, INDEX) + entries.tobytes()
                write_atomically(self._place.path(number, INDEX), content, self._files)
        return repaired

    def close(self) -> None:
        """Close the files. Closing again does nothing."""
        for log in self._logs.values():
            log.close()

    def _find_entries(self, number: int) -> tuple[Entries, Damage | None]:
        return find_entries(self._place, self._states[number], self._logs[number], self._files)

    def _damages_of(
        self, log: ReadFile, state: FileState, entries: Entries, progress: Callable[[int], None]
    ) -> Iterator[Damage]:
        try:
            self._place.check_file_header(log.read_at(0, FILE_HEADER_BYTES), state["number"], LOG)
        except DamagedDataError as error:
            yield Damage(log.path, 0, None, str(error))
        end = FILE_HEADER_BYTES
        for track, version, number, offset, size, of_payload in entries.tolist():
            if offset - BLOCK_HEADER_BYTES != end:
                yield _gap(log.path, end, offset - BLOCK_HEADER_BYTES)
            end = offset + size
            key = BlockKey(track, number)
            try:
                read_block(self._place, log, key, Row(state["number"], offset, size, version, of_payload))
            except DamagedDataError as error:
                yield Damage(log.path, offset, key, str(error))
            progress(BLOCK_HEADER_BYTES + size)
        if end != state["bytes"]:
            yield _gap(log.path, end, state["bytes"])


def read_block(place: LogPlace, log: ReadFile, key: BlockKey, row: Row) -> bytes:
    """Return the payload at ``row``; raise ``DamagedDataError`` unless it is the intact block ``key`` of that row."""
    start = row.offset - BLOCK_HEADER_BYTES
    try:
        block = log.read_at(start, BLOCK_HEADER_BYTES + row.size)
    except OSError as error:
        raise DamagedDataError(
            f"{log.path}: {_block_name(key)} at offset {row.offset} cannot be read ({error.strerror}); "
            f"{repair_hint(place.folder)}"
        ) from error
    header, payload = place.unpack_block_header(block[:BLOCK_HEADER_BYTES]), block[BLOCK_HEADER_BYTES:]
    if header != (key, row.version, row.size, row.checksum) or checksum(payload) != row.checksum:
        raise DamagedDataError(
            f"{log.path}: {_block_name(key)} at offset {row.offset} is damaged; {repair_hint(place.folder)}"
        )
    return payload


def open_log(place: LogPlace, state: FileState, files: FileSystem) -> tuple[ReadFile, Entries, Damage | None]:
    """Open a log file; return it, the entries of its committed blocks, and the damage of its index, if any.

    Raises:
        DamagedDataError: it is missing, no file, or not the one that the commit names.
        IncompatibleError: a later version wrote the index.
    """
    path = place.path(state["number"], LOG)
    try:
        log = files.open_to_read(path)
    except FileNotFoundError as error:
        raise DamagedDataError(
            f"{path}: the file is missing, and {state['blocks']} blocks with it; {repair_hint(place.folder)}"
        ) from error
    with ExitStack() as on_error:
        on_error.callback(log.close)
        entries, damage = find_entries(place, state, log, files)
        if damage is not None and not damage.is_in_index:
            raise DamagedDataError(damage.message)
        on_error.pop_all()
    return log, entries, damage


def find_entries(
    place: LogPlace, state: FileState, log: ReadFile, files: FileSystem = DISK
) -> tuple[Entries, Damage | None]:
    """Return the entries of the committed blocks of a log file, and the damage of its index, if any.

    With an intact index this reads nothing of the log. Otherwise it follows the block headers in the log. If neither
    has the entries of which the commit has the checksum, there are none, and the damage is that of the log.

    Raises:
        IncompatibleError: a later version wrote the index.
    """
    path = place.path(state["number"], INDEX)
    try:
        with files.open_to_read(path) as index:
            content = index.read_at(0, index_bytes(state["blocks"]))
        place.check_file_header(content[:FILE_HEADER_BYTES], state["number"], INDEX)
        stored = content[FILE_HEADER_BYTES:]
        if len(content) == index_bytes(state["blocks"]) and checksum(stored) == state["checksum"]:
            return np.frombuffer(stored, ENTRY), None
        damage = Damage(path, FILE_HEADER_BYTES, None, f"{path}: its entries are not those of {log.path.name}")
    except DamagedDataError as error:
        damage = Damage(path, 0, None, str(error))
    except OSError as error:
        damage = Damage(path, 0, None, f"{path}: the file cannot be read ({error.strerror})")
    entries = b"".join(_walk_headers(place, log, state))
    if len(entries) == state["blocks"] * ENTRY.itemsize and checksum(entries) == state["checksum"]:
        return np.frombuffer(entries, ENTRY), damage
    return np.empty(0, ENTRY), Damage(
        log.path,
        0,
        None,
        f"{log.path}: its blocks are not those that the commit names: the file is another store's or a copy's that "
        f"went on, or it is damaged together with its index; {repair_hint(place.folder)}",
    )


def _walk_headers(place: LogPlace, log: ReadFile, state: FileState) -> Iterator[bytes]:
    """Follow the block headers through a log, up to the first damaged one, and yield the entries of the blocks."""
    position = FILE_HEADER_BYTES
    while position < state["bytes"]:
        header = place.unpack_block_header(log.read_at(position, BLOCK_HEADER_BYTES))
        if header is None:
            return
        yield pack_entry(header, position + BLOCK_HEADER_BYTES)
        position += BLOCK_HEADER_BYTES + header.size


def _block_name(key: BlockKey) -> str:
    return f"block {key.number} of track {key.track}"


def _gap(path: Path, start: int, end: int) -> Damage:
    return Damage(path, start, None, f"{path}: the {end - start} bytes at offset {start} are not intact blocks")
