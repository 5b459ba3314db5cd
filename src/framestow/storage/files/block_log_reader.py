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
    FILE_HEADER_BYTES,
    LOG,
    BlockHeader,
    BlockKey,
    BlockPlace,
    Damage,
    Entries,
    FileState,
    LogState,
    check_file_header,
    file_name,
    unpack_block_header,
)
from framestow.storage.files.block_index import find_entries, write_index
from framestow.storage.files.block_table import BlockTable, Row
from framestow.storage.files.file_system import DISK, FileSystem, ReadFile


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
