"""The format of a block log's files, and the table of its blocks. All numbers little-endian, all checksums CRC-32C.

docs/store-format.md has the bytes of both files. A log has a header, then blocks, each with a header and its payload.
Its index has a header, then an entry for each block.

The blocks of a log file have no gaps between them. An index only repeats the headers of its log. With it, opening a log
reads 32 bytes for each block, without seeking. A commit has a checksum over the entries of each file (``FileState``).
So the log and the index of another store, or of a copy that went on, are found, whatever their own checksums are.
"""

from __future__ import annotations

import re
import shlex
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from framestow._core import checksum
from framestow.errors import DamagedDataError, IncompatibleError, InvalidSettingsError

FORMAT_VERSION: Final = 1  # of logs and indices; a file of another version is refused
LOG, INDEX = "log", "index"  # endings of the names of files
FILE_HEADER_BYTES: Final = 40
BLOCK_HEADER_BYTES: Final = 40
ENTRY_BYTES: Final = 32
ID_DIGITS: Final = 16  # hexadecimal digits of a store's id

_MAGIC = {LOG: b"FSTOWLOG", INDEX: b"FSTOWIDX"}
_BLOCK_MARKER = b"FBLK"  # at the beginning of every block header
# The headers without their own checksum, which ``_CHECKSUM`` appends.
_FILE_HEADER = struct.Struct("<8sI8sQ8s")
_BLOCK_HEADER = struct.Struct("<4s8sIIQII")
_ENTRY = struct.Struct("<IIQQII")
_CHECKSUM = struct.Struct("<I")

ENTRY: Final = np.dtype(
    [("track", "<u4"), ("version", "<u4"), ("number", "<u8"), ("offset", "<u8"), ("size", "<u4"), ("checksum", "<u4")]
)
"""An index entry as a NumPy record, without padding."""

Entries = npt.NDArray[np.void]  # of ENTRY


def repair_hint(folder: Path) -> str:
    """Return the way out of a message about damage in the store ``folder``.

    >>> repair_hint(Path("runs/memory")).split("`")
    ['keep the intact data with ', 'framestow repair runs/memory', '']
    """
    return f"keep the intact data with `framestow repair {shlex.quote(str(folder))}`"


class BlockKey(NamedTuple):
    """Key of a block: block ``number`` of ``track``."""

    track: int
    number: int


class BlockSpan(NamedTuple):
    """Where the payload of a block is: ``size`` bytes from ``offset`` in ``file``, and their checksum."""

    file: Path
    offset: int
    size: int
    checksum: int


class Damage(NamedTuple):
    """Bytes of a log's file that differ from what was written."""

    file: Path
    offset: int
    key: BlockKey | None
    """The block that is lost by it, or ``None`` if unknown."""
    message: str
    """Message for a ``DamagedDataError``; it names file and offset."""

    @property
    def is_in_index(self) -> bool:
        """Whether the file is an index: it repeats its log, so no block is lost."""
        return self.file.suffix == f".{INDEX}"


class FileState(TypedDict):
    """The committed part of one file of a log."""

    number: int
    bytes: int  # from the beginning of the file; what stands behind is not committed
    blocks: int  # in these bytes
    checksum: int  # of the index entries of these blocks


class LogState(TypedDict):
    """State of a log in a commit: its files, and how much of each is committed."""

    files: list[FileState]
    next_file: int  # number of the next file; numbers are never reused


class BlockHeader(NamedTuple):
    """Header of a block, with its own checksum verified."""

    key: BlockKey
    version: int
    size: int
    payload_checksum: int  # CRC-32C; not verified yet


LOG_FILE: Final = re.compile(rf"(\w+)-([0-9a-f]{{{ID_DIGITS}}})\.(\d{{6,15}})\.(?:{LOG}|{INDEX})")
"""Pattern of ``LogPlace.path``; its groups are the name of the log, the id of the store and the number of the file."""


class LogPlace(NamedTuple):
    """Where the files of a log are, and what its headers say: the name of the log and the id of its store."""

    folder: Path
    name: str
    id: str

    def path(self, number: int, ending: str) -> Path:
        """Return the path of a file of the log.

        >>> LogPlace(Path("memory"), "frames", "00c0ffee00c0ffee").path(7, LOG).name
        'frames-00c0ffee00c0ffee.000007.log'
        """
        return self.folder / self.file_name(number, ending)

    @property
    def name_in_folder(self) -> str:
        """The log in words, for messages."""
        return f"the {self.name} of {self.folder}"

    def file_name(self, number: int, ending: str) -> str:
        """Return the name of a file of the log."""
        return f"{self.name}-{self.id}.{number:06d}.{ending}"

    def pack_file_header(self, number: int, ending: str) -> bytes:
        """Return the header of a file; the name of the log has at most 8 letters."""
        name = self.name.encode("ascii")
        return _with_checksum(_FILE_HEADER.pack(_MAGIC[ending], FORMAT_VERSION, bytes.fromhex(self.id), number, name))

    def check_file_header(self, header: bytes, number: int, ending: str) -> None:
        """Raise ``DamagedDataError`` unless ``header`` is the file's, ``IncompatibleError`` for another version."""
        path, way_out = self.path(number, ending), repair_hint(self.folder)
        if not _is_intact(header, FILE_HEADER_BYTES) or header[:8] != _MAGIC[ending]:
            raise DamagedDataError(f"{path}: its header, at offset 0, is damaged; {way_out}")
        if (version := _FILE_HEADER.unpack_from(header)[1]) != FORMAT_VERSION:
            raise IncompatibleError(
                f"{path}: it is version {version} of a log of blocks and this framestow reads version "
                f"{FORMAT_VERSION}; use the version of framestow that wrote it"
            )
        if header != self.pack_file_header(number, ending):
            raise DamagedDataError(f"{path}: its header, at offset 0, belongs to another file; {way_out}")

    def pack_block_header(self, header: BlockHeader) -> bytes:
        """Return the bytes of a block's header."""
        fields = (_BLOCK_MARKER, bytes.fromhex(self.id), header.key.track, header.version, header.key.number)
        return _with_checksum(_BLOCK_HEADER.pack(*fields, header.size, header.payload_checksum))

    def unpack_block_header(self, header: bytes) -> BlockHeader | None:
        """Read a block header; return ``None`` if it is damaged, or of another store.

        >>> place = LogPlace(Path("memory"), "frames", "00c0ffee00c0ffee")
        >>> place.unpack_block_header(
        ...     place.pack_block_header(BlockHeader(BlockKey(1, 2), 0, 3, 17))
        ... )
        BlockHeader(key=BlockKey(track=1, number=2), version=0, size=3, payload_checksum=17)
        """
        if not _is_intact(header, BLOCK_HEADER_BYTES):
            return None
        marker, store, track, version, number, size, payload_checksum = _BLOCK_HEADER.unpack_from(header)
        if marker != _BLOCK_MARKER or store.hex() != self.id:
            return None
        return BlockHeader(BlockKey(track, number), version, size, payload_checksum)


def index_bytes(num_blocks: int) -> int:
    """Return the bytes of the index of a log file with ``num_blocks`` blocks."""
    return FILE_HEADER_BYTES + num_blocks * ENTRY_BYTES


def pack_entry(header: BlockHeader, offset: int) -> bytes:
    """Return the index entry of a block whose payload is at ``offset``."""
    return _ENTRY.pack(
        header.key.track, header.version, header.key.number, offset, header.size, header.payload_checksum
    )


def _with_checksum(fields: bytes) -> bytes:
    return fields + _CHECKSUM.pack(checksum(fields))


def _is_intact(content: bytes, size: int) -> bool:
    return len(content) == size and content[-4:] == _CHECKSUM.pack(checksum(content[:-4]))


_NUMBER_BITS = 40  # of a packed key; the track takes the bits above
_MAX_TRACK, _MAX_NUMBER = 2 ** (62 - _NUMBER_BITS), 2**_NUMBER_BITS  # a key packs into one int64
_MIN_RECENT = 256  # rows that the dict may have before it is sorted into the arrays, however small these are
_SHARE_OF_RECENT = 64  # a block costs 300 bytes in the dict: 5 bytes for each block of the table
_NOWHERE = -1  # file of a removed row, until the next sort


class Row(NamedTuple):
    """Where a block is: number of the file, offset and size of the payload; and its version and checksum."""

    file: int
    offset: int
    size: int
    version: int = 0
    checksum: int = 0


class Rows(NamedTuple):
    """Rows as columns, sorted by packed key. As one attribute, a Ctrl-C finds all columns old or all new."""

    keys: npt.NDArray[np.int64]  # packed (pack_key), ascending
    files: npt.NDArray[np.int32]  # number of the file; _NOWHERE for a removed row
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.uint32]
    versions: npt.NDArray[np.uint32]
    checksums: npt.NDArray[np.uint32]

    def select(self, chosen: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Rows:
        return Rows._make([column[chosen] for column in self])

    def row(self, index: int) -> Row:
        return Row(
            self.files.item(index),
            self.offsets.item(index),
            self.sizes.item(index),
            self.versions.item(index),
            self.checksums.item(index),
        )

    def join(self, other: Rows) -> Rows:
        """Return both, sorted, without removed rows; of equal keys keep the last one of ``other``."""
        both = Rows._make([np.concatenate([self[column], other[column]]) for column in range(len(self))])
        both = both.select(np.argsort(both.keys, kind="stable"))
        is_last = np.append(both.keys[1:] != both.keys[:-1], True)[: len(both.keys)]
        return both.select(is_last & (both.files != _NOWHERE))


class BlockTable:
    """Rows by key: sorted arrays with binary search, and a dict of the rows added since the last sort.

    50 million transitions have about 160,000 blocks of frames: 5 MB here, 50 MB as a dict.
    """

    def __init__(self, log: str = "a log") -> None:
        self._log = log  # for messages
        self._sorted = _NO_ROWS  # all rows up to the last sort
        self._recent: dict[int, Row] = {}  # rows added since, by packed key
        self._has_removed = False  # whether sorted rows were removed (their file is _NOWHERE)
        self._next_index = 0  # of the row after the one found last: most look-ups go through the keys in order

    def __len__(self) -> int:
        return len(self.rows().keys)

    def __contains__(self, key: BlockKey) -> bool:
        return self.get(key) is not None

    def __getitem__(self, key: BlockKey) -> Row:
        row = self.get(key)
        if row is None:
            raise KeyError(f"block {key.number} of track {key.track} is not in {self._log}")
        return row

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(column.nbytes for column in self._sorted)

    def get(self, key: BlockKey) -> Row | None:
        """Return the row of ``key``, or ``None``."""
        packed = pack_key(key)
        if packed in self._recent:
            return self._recent[packed]
        index = self._find(packed)
        return None if index is None else self._sorted.row(index)

    def put(self, key: BlockKey, row: Row) -> None:
        """Set the row of ``key``."""
        self.remove(key)
        self._recent[pack_key(key)] = row
        if len(self._recent) > max(_MIN_RECENT, len(self._sorted.keys) // _SHARE_OF_RECENT):
            self.rows()

    def put_files(self, entries_by_file: dict[int, Entries]) -> None:
        """Add the rows of whole files; of equal keys the last entry of the last file wins."""
        entries = np.concatenate([np.empty(0, ENTRY), *entries_by_file.values()])
        counts = [len(of_file) for of_file in entries_by_file.values()]
        files = np.repeat(np.array(list(entries_by_file), np.int32), counts)
        keys = pack_keys(entries["track"], entries["number"].astype(np.int64))
        of_entries = [entries[name].astype(dtype) for name, dtype in _ENTRY_COLUMNS]
        added = Rows._make([keys, files, *of_entries])
        self._sorted = self.rows().join(added)

    def remove(self, key: BlockKey) -> None:
        """Remove ``key``; an unknown one is ignored."""
        packed = pack_key(key)
        if self._recent.pop(packed, None) is None and (index := self._find(packed)) is not None:
            self._has_removed = True
            self._sorted.files[index] = _NOWHERE

    def keys(self) -> Iterator[BlockKey]:
        """Return all keys, sorted by track and number."""
        return unpack_keys(self.rows().keys)

    def rows(self) -> Rows:
        """Return all rows as columns, sorted by key."""
        if self._recent or self._has_removed:
            self._sorted = self._sorted.join(_columns([(key, *row) for key, row in self._recent.items()]))
            self._recent.clear()
            self._has_removed = False
        return self._sorted

    def in_file(self, file: int) -> list[tuple[BlockKey, Row]]:
        """Return the blocks of one file, in the order of their offsets."""
        every = self.rows()
        rows = every.select(every.files == file)
        keys = list(unpack_keys(rows.keys))
        return [(keys[index], rows.row(index)) for index in np.argsort(rows.offsets).tolist()]

    def _find(self, packed: int) -> int | None:
        keys, files = self._sorted.keys, self._sorted.files
        index = self._next_index
        if index >= len(keys) or keys.item(index) != packed:
            index = int(keys.searchsorted(packed))
        self._next_index = index + 1
        return index if index < len(keys) and keys.item(index) == packed and files.item(index) != _NOWHERE else None


def pack_key(key: BlockKey) -> int:
    """Return a key as one integer of the same order; raise ``InvalidSettingsError`` if it is out of bounds."""
    track, number = key
    if not (0 <= track < _MAX_TRACK and 0 <= number < _MAX_NUMBER):
        raise InvalidSettingsError(
            f"block {number} of track {track}: a log has at most {_MAX_NUMBER:,} blocks of {_MAX_TRACK:,} "
            "tracks; use several memories with fewer environments"
        )
    return track << _NUMBER_BITS | number


def pack_keys(tracks: npt.ArrayLike, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return many keys as integers of the same order, as ``pack_key`` does.

    >>> list(unpack_keys(pack_keys([0, 1], np.array([7, 8]))))
    [BlockKey(track=0, number=7), BlockKey(track=1, number=8)]
    """
    return np.asarray(tracks, np.int64) << _NUMBER_BITS | numbers


def split_keys(packed: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the tracks and the numbers of packed keys."""
    return packed >> _NUMBER_BITS, packed & (_MAX_NUMBER - 1)


def unpack_keys(packed: npt.NDArray[np.int64]) -> Iterator[BlockKey]:
    """Yield packed keys as ``BlockKey``."""
    return map(BlockKey, (packed >> _NUMBER_BITS).tolist(), (packed & (_MAX_NUMBER - 1)).tolist())


_ENTRY_COLUMNS = ("offset", np.int64), ("size", np.uint32), ("version", np.uint32), ("checksum", np.uint32)


def _columns(rows: list[tuple[int, int, int, int, int, int]]) -> Rows:
    keys, files, offsets, sizes, versions, checksums = np.array(rows, np.int64).reshape(-1, 6).T
    small = [column.astype(np.uint32) for column in (sizes, versions, checksums)]
    return Rows._make([keys, files.astype(np.int32), offsets, *small])


_NO_ROWS = _columns([])
