"""Which blocks lie in a log file: by its index, and by the headers in the log where the index is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from framestow.errors import DamagedDataError
from framestow.storage.files.block_format import (
    BLOCK_HEADER_BYTES,
    ENTRY,
    ENTRY_BYTES,
    FILE_HEADER_BYTES,
    INDEX,
    LOG,
    BlockHeader,
    Damage,
    Entries,
    FileState,
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
