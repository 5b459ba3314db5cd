"""Reading a log of blocks as a manifest names it, every byte verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.frames.codec import checksum
from framestow.storage.files.block_format import (
    BLOCK_HEADER_BYTES,
    ENTRY,
    ENTRY_BYTES,
    FILE_HEADER_BYTES,
    INDEX,
    LOG,
    BlockHeader,
    BlockKey,
    BlockPlace,
    BlockTable,
    Damage,
    Entries,
    FileState,
    LogState,
    Row,
    check_file_header,
    entry_holds,
    file_name,
    pack_entry,
    pack_file_header,
    unpack_block_header,
)
from framestow.storage.files.file_system import DISK, FileSystem, ReadFile, durable_file


def find_entries(
    folder: Path, name: str, state: FileState, log: ReadFile, files: FileSystem = DISK
) -> tuple[Entries, Damage | None]:
    """Return the entries of the committed blocks of a log file, and what is wrong with its index, if anything is.

    With a whole index nothing of the log is read. Otherwise the headers in the log are walked, and where one of those
    is damaged too the walk goes on at the next whole entry; only a block that neither tells of is left out.
    """
    path = folder / file_name(name, state["number"], INDEX)
    damage: Damage | None
    try:
        content = files.read(path)
    except OSError as error:
        content, damage = b"", Damage(path, 0, None, f"{path}: it cannot be read ({error.strerror})")
    else:
        damage = _damage_of(path, content, name, state)
    entries = _whole_entries(content, state)
    return (entries, None) if damage is None else (_walk(log, state, entries), damage)


def write_index(folder: Path, name: str, number: int, entries: Entries, files: FileSystem = DISK) -> None:
    """Write the index of a log file anew, in one step, in the place of one that is damaged or lost."""
    path = folder / file_name(name, number, INDEX)
    new = path.with_name(path.name + ".new")
    with durable_file(new, files) as file:
        file.append(pack_file_header(name, number, INDEX) + entries.tobytes())
    files.replace(new, path)
    files.sync_folder(folder)


def tiles(entries: Entries, num_bytes: int) -> bool:
    """Tell whether blocks at ``entries`` fill a log file of ``num_bytes`` bytes, in order and without a gap."""
    ends = np.append(FILE_HEADER_BYTES, entries["offset"] + entries["size"]).astype(np.uint64)
    return bool((ends[:-1] + BLOCK_HEADER_BYTES == entries["offset"]).all()) and int(ends[-1]) == num_bytes


def _damage_of(path: Path, content: bytes, name: str, state: FileState) -> Damage | None:
    try:
        check_file_header(path, content[:FILE_HEADER_BYTES], name, state["number"], INDEX)
    except DamagedDataError as error:
        return Damage(path, 0, None, str(error))
    end = FILE_HEADER_BYTES + state["blocks"] * ENTRY_BYTES
    for start in range(FILE_HEADER_BYTES, end, ENTRY_BYTES):
        if not entry_holds(content[start : start + ENTRY_BYTES]):
            return Damage(path, start, None, f"{path}: the entry at offset {start} is not the one that was written")
    if not tiles(np.frombuffer(content[FILE_HEADER_BYTES:end], ENTRY), state["bytes"]):
        log = file_name(name, state["number"], LOG)
        return Damage(path, FILE_HEADER_BYTES, None, f"{path}: its entries, from offset 32 on, are not those of {log}")
    return None


def _whole_entries(content: bytes, state: FileState) -> Entries:
    """Those of the committed entries that are as they were written, in bounds, in the order of their offsets."""
    committed = content[FILE_HEADER_BYTES : FILE_HEADER_BYTES + state["blocks"] * ENTRY_BYTES]
    starts = range(0, len(committed) - ENTRY_BYTES + 1, ENTRY_BYTES)
    whole = b"".join(entry for start in starts if entry_holds(entry := committed[start : start + ENTRY_BYTES]))
    entries = np.frombuffer(whole, ENTRY)
    return np.extract(entries["offset"] + entries["size"] <= state["bytes"], entries)


def _walk(log: ReadFile, state: FileState, known: Entries) -> Entries:
    """Go from block header to block header through a log; over a damaged one by the next known entry."""
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


class BlockLogReader:
    """The committed blocks of a log, which a writer may go on with meanwhile: nothing committed ever changes.

    It keeps the log files open, so what a writer removes stays readable (on Windows it stays undeletable). ``read`` may
    be called by any number of threads.
    """

    def __init__(self, folder: Path, name: str, files: FileSystem) -> None:
        self._folder, self._name, self._files = folder, name, files
        self._logs: dict[int, ReadFile] = {}
        self._states: dict[int, FileState] = {}
        self._table = BlockTable()
        self.damaged_indices: list[Damage] = []
        """What is wrong with index files; their blocks were found by the headers in the log."""

    @classmethod
    def open(cls, folder: Path, name: str, state: LogState, files: FileSystem = DISK) -> BlockLogReader:
        """Open what ``state``, from a manifest, names.

        Raises ``FileNotFoundError`` for a log file that is gone: beside a writer, read the newest manifest again;
        ``IncompatibleError`` for a later version's files. Damage is told when it is read, or by :meth:`verify`.
        """
        reader = cls(folder, name, files)
        try:
            reader._table.put_files({file["number"]: reader._open_file(file) for file in state["files"]})
        except BaseException:
            reader.close()
            raise
        return reader

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._table

    def __iter__(self) -> Iterator[BlockKey]:
        return self.keys()

    def keys(self) -> Iterator[BlockKey]:
        """All blocks, by stream and number; also such as nobody needs any more, while their file is there."""
        return self._table.keys()

    def numbers(self, stream: int) -> npt.NDArray[np.int64]:
        """The numbers of the blocks of ``stream``, ascending."""
        return self._table.numbers(stream)

    def place(self, key: BlockKey) -> BlockPlace:
        """Where a block's payload lies; ``KeyError`` if there is no such block. Nothing is verified."""
        row = self._row(key)
        return BlockPlace(self._path(row.file), row.offset, row.size)

    def read(self, key: BlockKey) -> bytes:
        """Return a block's payload; ``KeyError`` without one, ``DamagedDataError`` naming file and offset."""
        row = self._row(key)
        return read_block(self._logs[row.file], key, row)

    def header(self, key: BlockKey) -> BlockHeader | None:
        """What a block's header says, its checksum among it; None where that is not what was written."""
        row = self._row(key)
        try:
            return unpack_block_header(
                self._logs[row.file].read_at(row.offset - BLOCK_HEADER_BYTES, BLOCK_HEADER_BYTES)
            )
        except OSError:
            return None

    def verify(self, progress: Callable[[int], None] = lambda _: None) -> list[Damage]:
        """Read every byte and return all damages; ``progress`` is told the bytes after each block."""
        return list(self.damages(progress))

    def damages(self, progress: Callable[[int], None] = lambda _: None) -> Iterator[Damage]:
        """Yield what :meth:`verify` returns as it is found."""
        for number, log in self._logs.items():
            entries, damage = find_entries(self._folder, self._name, self._states[number], log, self._files)
            if damage is not None:
                yield damage
            yield from self._damages_of(log, self._states[number], entries, progress)

    def repair_indices(self) -> list[Path]:
        """Write the index files that are damaged or lost anew; return them. For the one writer of the folder."""
        repaired = []
        for number, log in self._logs.items():
            entries, damage = find_entries(self._folder, self._name, self._states[number], log, self._files)
            if damage is not None:
                repaired.append(damage.file)
                write_index(self._folder, self._name, number, entries, self._files)
        return repaired

    def close(self) -> None:
        """Close the files. Closing again does nothing."""
        for log in self._logs.values():
            log.close()

    def __enter__(self) -> BlockLogReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _open_file(self, state: FileState) -> Entries:
        log = self._files.open_to_read(self._path(state["number"]))
        self._logs[state["number"]], self._states[state["number"]] = log, state
        entries, damage = find_entries(self._folder, self._name, state, log, self._files)
        if damage is not None:
            self.damaged_indices.append(damage)
        return entries

    def _damages_of(
        self, log: ReadFile, state: FileState, entries: Entries, progress: Callable[[int], None]
    ) -> Iterator[Damage]:
        try:
            check_file_header(log.path, log.read_at(0, FILE_HEADER_BYTES), self._name, state["number"], LOG)
        except DamagedDataError as error:
            yield Damage(log.path, 0, None, str(error))
        end = FILE_HEADER_BYTES
        for stream, number, offset, size, _ in entries.tolist():
            if offset - BLOCK_HEADER_BYTES != end:
                yield _gap(log.path, end, offset - BLOCK_HEADER_BYTES)
            end = offset + size
            key = BlockKey(stream, number)
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
            raise KeyError(f"block {key.number} of stream {key.stream}: {self._folder} has none in {self._name!r}")
        return row

    def _path(self, number: int) -> Path:
        return self._folder / file_name(self._name, number, LOG)


def read_block(log: ReadFile, key: BlockKey, row: Row) -> bytes:
    """Read the payload at ``row``; raise ``DamagedDataError`` unless it is that of ``key``, as it was written."""
    start = row.offset - BLOCK_HEADER_BYTES
    try:
        block = log.read_at(start, BLOCK_HEADER_BYTES + row.size)
    except OSError as error:
        raise DamagedDataError(
            f"{log.path}: {_named(key)} at offset {row.offset} cannot be read ({error.strerror}); "
            "keep what is whole with `framestow repair`"
        ) from error
    header, payload = unpack_block_header(block[:BLOCK_HEADER_BYTES]), block[BLOCK_HEADER_BYTES:]
    if header is None or (header.key, header.size, header.payload_checksum) != (key, row.size, checksum(payload)):
        raise DamagedDataError(
            f"{log.path}: {_named(key)} at offset {row.offset} is not what was written; "
            "keep what is whole with `framestow repair`"
        )
    return payload


def _named(key: BlockKey) -> str:
    return f"block {key.number} of stream {key.stream}"


def _gap(path: Path, start: int, end: int) -> Damage:
    return Damage(
        path, start, None, f"{path}: the {end - start} bytes at offset {start} are no blocks that were written"
    )
