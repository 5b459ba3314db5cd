"""``ChunkLog``: which chunks the folder of a shard has, so that a chunk that is sent again is stored once."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from pathlib import Path

from framestow.interface import Closing
from framestow.storage.files.file_system import DISK, AppendFile, remove_unfinished, write_atomically

# Of a chunk: env_id, writer, number of the frame after it, position of its newest frame in the memory.
_RECORD = struct.Struct("<4q")
MAX_LOG_BYTES = 2**20  # after a flush, a longer log is written anew


def chunk_log_path(directory: Path) -> Path:
    """Return the log of chunks beside the ``directory`` of a shard's memory."""
    return directory.with_name(directory.name + ".chunks")


class ChunkLog(Closing):
    """A file with a record for each stored chunk.

    After a crash, the last record of an environment whose position was flushed is the last chunk that the memory has. A
    record that was cut off is ignored.

    Arguments:
        path: The file.
        newest_positions: By environment, the position of the newest frame that the memory has.
    """

    def __init__(self, path: Path, newest_positions: Sequence[int]) -> None:
        self._path = path
        self._last: dict[int, tuple[int, ...]] = {}  # by environment: the record of its last chunk
        stored = b""
        with contextlib.suppress(FileNotFoundError):
            stored = DISK.read(path)
        remove_unfinished(path)
        for record in _RECORD.iter_unpack(stored[: len(stored) // _RECORD.size * _RECORD.size]):
            env_id, _, _, position = record
            if 0 <= env_id < len(newest_positions) and position <= newest_positions[env_id]:
                self._last[env_id] = record
        self.found = {
            env_id: (writer, next_frame)
            for env_id, writer, next_frame, position in self._last.values()
            if position == newest_positions[env_id]
        }
        """Writer and number of the next frame of each environment, as of the last chunk that the memory has.

        A memory that was flushed within a chunk has a part of it: its position is above the record's."""
        self._file = self._write_last()

    def append(self, env_id: int, writer: int, next_frame: int, position: int) -> None:
        """Add a chunk."""
        self._last[env_id] = env_id, writer, next_frame, position
        self._file.append(_RECORD.pack(*self._last[env_id]))

    def shorten(self) -> None:
        """Keep only the last record of each environment, if the log is long; call it after a flush."""
        if self._file.size > MAX_LOG_BYTES:
            self.close()
            self._file = self._write_last()

    def _write_last(self) -> AppendFile:
        """Replace the file by one with the last records, and open that."""
        records = b"".join(_RECORD.pack(*record) for record in self._last.values())
        write_atomically(self._path, records, is_durable=False)
        return DISK.open_at(self._path, len(records))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
