"""A log of blocks gone through byte by byte: which of its blocks are whole, in the view of each generation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from framestow.storage.files.block_format import LOG, BlockKey, BlockPlace, Damage, FileState, LogState, file_name
from framestow.storage.files.block_log_reader import BlockLogReader
from framestow.storage.files.file_system import DISK, FileSystem

Progress = Callable[[int], None]  # is told how many bytes more were gone through
CheckBlock = Callable[[BlockKey, bytes], "str | None"]  # what contradicts a block whose bytes are as written


class Place(NamedTuple):
    """Where a payload begins."""

    file: Path
    offset: int


class ExaminedLog:
    """All files of one log that some generation names, each to the last byte that any of them committed.

    ``damages`` has everything that is wrong; ``missing`` the files that are gone. Close it in the end.
    """

    def __init__(self, folder: Path, name: str, states: Iterable[LogState], files: FileSystem = DISK) -> None:
        self.name, self._folder, self._disk = name, folder, files
        self.union = union_of(states)
        there = set(files.names(folder))
        self.missing = [
            folder / file_name(name, state["number"], LOG)
            for state in self.union["files"]
            if file_name(name, state["number"], LOG) not in there
        ]
        self.damages = [Damage(path, 0, None, f"{path}: it is gone") for path in self.missing]
        self._reader = BlockLogReader.open(folder, name, self.present(self.union), files)
        self._bad: set[Place] = set()

    def examine(self, check: CheckBlock, progress: Progress) -> None:
        """Go through every byte, then through every block by what ``check`` tells of it."""
        self.damages += self._reader.damages(progress)
        self._bad = {Place(damage.file, damage.offset) for damage in self.damages if damage.key is not None}
        self._check_blocks(check, progress)

    def present(self, state: LogState) -> LogState:
        """``state`` without the files that are gone."""
        gone = {path.name for path in self.missing}
        files = [file for file in state["files"] if file_name(self.name, file["number"], LOG) not in gone]
        return LogState(files=files, next_file=state["next_file"])

    @property
    def num_blocks(self) -> int:
        """Blocks that can be found, copies not counted."""
        return len(self._reader)

    @property
    def damaged_files(self) -> list[Path]:
        """Log files that are there and in which a byte is wrong: they have to be written anew without it."""
        logs = {damage.file for damage in self.damages if damage.file.suffix == f".{LOG}"} - set(self.missing)
        return sorted(logs)

    def explains(self, key: BlockKey) -> bool:
        """Whether damage tells why a block is not there: its own, or that of bytes of which nothing tells any more."""
        return any(
            damage.key == key or (damage.key is None and damage.file.suffix == f".{LOG}") for damage in self.damages
        )

    def view(self, state: LogState) -> LogView:
        """What a generation whose manifest says ``state`` has of the log."""
        return LogView(self, BlockLogReader.open(self._folder, self.name, self.present(state), self._disk))

    def whole_copy(self, key: BlockKey, reader: BlockLogReader) -> tuple[BlockLogReader, BlockPlace] | None:
        """Who can read a block, and where: ``reader``, or who knows its newest copy; None where neither is whole.

        The newest block of that key may be another one, of a memory that went on from an older generation: it is a copy
        where the header of the damaged block tells so.
        """
        if key not in reader:
            return None
        place = reader.place(key)
        if Place(place.file, place.offset) not in self._bad:
            return reader, place
        newest = self._reader.place(key)
        header = reader.header(key)
        is_copy = header is not None and header == self._reader.header(key)
        return (self._reader, newest) if is_copy and Place(newest.file, newest.offset) not in self._bad else None

    def repair_indices(self) -> list[Path]:
        """Write damaged and lost indices anew; return them. For the one writer."""
        return self._reader.repair_indices()

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    def _check_blocks(self, check: CheckBlock, progress: Progress) -> None:
        for key in self._reader:
            file, offset, size = self._reader.place(key)
            if Place(file, offset) not in self._bad:
                contradiction = check(key, self._reader.read(key))
                if contradiction:
                    told = f"{file}: block {key.number} of stream {key.stream} at offset {offset}: {contradiction}"
                    self.damages.append(Damage(file, offset, key, told))
                    self._bad.add(Place(file, offset))
            progress(size)


class LogView:
    """The whole blocks of a log as one generation names them."""

    def __init__(self, log: ExaminedLog, reader: BlockLogReader) -> None:
        self._log, self._reader = log, reader

    def whole_place(self, key: BlockKey) -> BlockPlace | None:
        """Where a block lies as it was written; None where it does not."""
        copy = self._log.whole_copy(key, self._reader)
        return None if copy is None else copy[1]

    def whole_keys(self) -> Iterator[BlockKey]:
        """All blocks that are whole, by stream and number; also such as no generation needs."""
        return (key for key in self._reader if self.whole_place(key))

    def read(self, key: BlockKey) -> bytes | None:
        """A block's payload; None where it is not whole."""
        copy = self._log.whole_copy(key, self._reader)
        return None if copy is None else copy[0].read(key)

    def close(self) -> None:
        """Close the files."""
        self._reader.close()


class KeptBlocks:
    """Some whole blocks of a view, read as those of a log in which there are no others."""

    def __init__(self, view: LogView, keys: Iterable[BlockKey]) -> None:
        self._view, self._keys = view, set(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def place(self, key: BlockKey) -> BlockPlace:
        """Where a block lies; ``KeyError`` where it is not kept."""
        place = self._view.whole_place(key) if key in self._keys else None
        if place is None:
            raise KeyError(f"block {key.number} of stream {key.stream} is not kept")
        return place

    def read(self, key: BlockKey) -> bytes:
        """Give a block's payload; ``KeyError`` where it is not kept."""
        block = self._view.read(key) if key in self._keys else None
        if block is None:
            raise KeyError(f"block {key.number} of stream {key.stream} is not kept")
        return block

    def close(self) -> None:
        """The view closes its files."""


def union_of(states: Iterable[LogState]) -> LogState:
    """The longest committed part of each file."""
    longest: dict[int, FileState] = {}
    next_file = 1
    for state in states:
        next_file = max(next_file, state["next_file"])
        for file in state["files"]:
            known = longest.get(file["number"])
            if known is None or known["bytes"] < file["bytes"]:
                longest[file["number"]] = file
    return LogState(files=[longest[number] for number in sorted(longest)], next_file=next_file)
