"""How blocks lie in the files of a log; all numbers little-endian, all checksums CRC-32C.

::

    frames.000001.log                              frames.000001.index
    ┌───────────────────────────────────────┐      ┌───────────────────────────────────────┐
    │ file header, 32 bytes                 │      │ file header, 32 bytes                 │
    ├───────────────────────────────────────┤      ├───────────────────────────────────────┤
    │ block header, 32 bytes                │      │ entry, 32 bytes                       │
    │ payload                               │      │ entry                                 │
    ├───────────────────────────────────────┤      │ …                                     │
    │ block header                          │      └───────────────────────────────────────┘
    │ payload …                             │
    └───────────────────────────────────────┘

    file header    8 magic · 4 version · 8 number of the file · 8 name of the log · 4 checksum of these
    block header   4 marker · 4 stream · 8 number · 8 bytes of the payload · 4 checksum of the payload · 4 of these
    index entry    4 stream · 8 number · 8 offset of the payload · 8 bytes of the payload · 4 checksum of these

The blocks of a log file lie without gaps, so the entries of its index tile it: a lost, doubled or moved entry shows.
The index says nothing that the log does not; it is there so that opening reads 32 bytes a block and seeks nowhere.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.frames.codec import checksum

FORMAT_VERSION: Final = 1
LOG, INDEX = "log", "index"
FILE_HEADER_BYTES: Final = 32
BLOCK_HEADER_BYTES: Final = 32
ENTRY_BYTES: Final = 32

_MAGIC = {LOG: b"FSTOWLOG", INDEX: b"FSTOWIDX"}
_BLOCK_MARKER = b"FBLK"
_FILE_HEADER = struct.Struct("<8sIQ8s")
_BLOCK_HEADER = struct.Struct("<4sIQQI")
_ENTRY = struct.Struct("<IQQQ")
_CHECKSUM = struct.Struct("<I")

ENTRY: Final = np.dtype([("stream", "<u4"), ("number", "<u8"), ("offset", "<u8"), ("size", "<u8"), ("checksum", "<u4")])
"""An index entry as a NumPy record, without padding."""

Entries = npt.NDArray[np.void]  # of ENTRY


class BlockKey(NamedTuple):
    """What a block holds: number ``number`` of the blocks of ``stream``."""

    stream: int
    number: int


class BlockPlace(NamedTuple):
    """Where the payload of a block lies: ``size`` bytes from ``offset`` on, in ``file``."""

    file: Path
    offset: int
    size: int


class Damage(NamedTuple):
    """Bytes in a file of a log that are not what was written."""

    file: Path
    offset: int
    key: BlockKey | None
    """The block that is lost by it, where one is known to be."""
    message: str
    """What a ``DamagedDataError`` about it says: it names file and offset."""


class FileState(TypedDict):
    """The committed part of one file of a log."""

    number: int
    bytes: int
    blocks: int


class LogState(TypedDict):
    """What a manifest says of a log: how much of which files belongs to it."""

    files: list[FileState]
    next_file: int  # number of the next file: none is ever given twice


class BlockHeader(NamedTuple):
    """What stands before a payload, its own checksum verified."""

    key: BlockKey
    size: int
    payload_checksum: int


def file_name(name: str, number: int, ending: str) -> str:
    """Name a file of the log ``name``.

    >>> file_name("frames", 7, LOG)
    'frames.000007.log'
    """
    return f"{name}.{number:06d}.{ending}"


def pack_file_header(name: str, number: int, ending: str) -> bytes:
    """Make the first bytes of a file; ``name`` has at most 8 letters."""
    return _checked(_FILE_HEADER.pack(_MAGIC[ending], FORMAT_VERSION, number, name.encode("ascii")))


def check_file_header(path: Path, header: bytes, name: str, number: int, ending: str) -> None:
    """Raise ``DamagedDataError`` unless ``header`` is that of ``path``; ``IncompatibleError`` for another version."""
    if not _holds(header, FILE_HEADER_BYTES) or header[:8] != _MAGIC[ending]:
        raise DamagedDataError(f"{path}: its header, at offset 0, is not the one that was written")
    _, version, stored_number, stored_name = _FILE_HEADER.unpack_from(header)
    if version != FORMAT_VERSION:
        raise IncompatibleError(
            f"{path}: it is version {version} of a log of blocks and this framestow reads version {FORMAT_VERSION}; "
            "use the framestow that wrote it"
        )
    if (stored_number, stored_name.rstrip(b"\0")) != (number, name.encode("ascii")):
        raise DamagedDataError(f"{path}: by its header, at offset 0, it is another file of a log")


def pack_block_header(key: BlockKey, payload: bytes) -> bytes:
    """Make what stands before ``payload``."""
    return _checked(_BLOCK_HEADER.pack(_BLOCK_MARKER, *key, len(payload), checksum(payload)))


def unpack_block_header(header: bytes) -> BlockHeader | None:
    """Read what stands before a payload; ``None`` if it is not what a writer wrote.

    >>> unpack_block_header(pack_block_header(BlockKey(1, 2), b"abc"))[:2]
    (BlockKey(stream=1, number=2), 3)
    """
    if not _holds(header, BLOCK_HEADER_BYTES):
        return None
    marker, stream, number, size, payload_checksum = _BLOCK_HEADER.unpack_from(header)
    return BlockHeader(BlockKey(stream, number), size, payload_checksum) if marker == _BLOCK_MARKER else None


def pack_entry(key: BlockKey, offset: int, size: int) -> bytes:
    """Make the index entry of a block."""
    return _checked(_ENTRY.pack(*key, offset, size))


def entry_holds(entry: bytes) -> bool:
    """Tell whether the 32 bytes are an index entry as it was written."""
    return _holds(entry, ENTRY_BYTES)


def _checked(fields: bytes) -> bytes:
    return fields + _CHECKSUM.pack(checksum(fields))


def _holds(content: bytes, size: int) -> bool:
    return len(content) == size and content[-4:] == _CHECKSUM.pack(checksum(content[:-4]))
