"""Verify one log of a store: every byte of its files, then the content of every block.

``VerifiedLog`` covers all generations together, ``IntactBlocks`` those of one of them. ``SegmentCheck`` and
``StepsCheck`` check one block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from framestow.errors import DamagedDataError
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.step_fields import ALL_FLAGS, slot_record
from framestow.storage.files.block_format import LOG, BlockKey, BlockSpan, Damage, FileState, LogState, file_name
from framestow.storage.files.block_log import find_committed
from framestow.storage.files.block_log_reader import BlockLogReader
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.frame_storage import FrameStorage

Progress = Callable[[int], None]  # called with the number of bytes read since the last call
# Returns the problem of a block with a correct checksum, or None.
BlockCheck = Callable[[BlockKey, bytes], "str | None"]


class FileOffset(NamedTuple):
    """File and offset of a block's payload."""

    file: Path
    offset: int


class VerifiedLog:
    """The files of one log that any generation names, each up to its last committed byte.

    ``damages`` lists all damage; ``missing`` lists the files that do not exist. Close it after use.
    """

    def __init__(self, folder: Path, name: str, states: Iterable[LogState], files: FileSystem = DISK) -> None:
        self.name, self._folder, self._disk = name, folder, files
        # The longest committed part of each file that any generation names.
        self.union = union_of(states)
        names = set(files.names(folder))
        self.missing = [
            folder / file_name(name, state["number"], LOG)
            for state in self.union["files"]
            if file_name(name, state["number"], LOG) not in names
        ]
        self.damages = [Damage(path, 0, None, f"{path}: the file is missing") for path in self.missing]
        # Reads the union. ``IntactBlocks`` reads what one generation names.
        self._reader = BlockLogReader.open(folder, name, self._without_missing(self.union), files)
        # Blocks that must not be read; filled by ``verify``.
        self._bad: set[FileOffset] = set()

    def verify(self, check: BlockCheck, progress: Progress) -> None:
        """Verify every byte, then check every intact block with ``check``."""
        self.damages += self._reader.damages(progress)
        self._bad = {FileOffset(damage.file, damage.offset) for damage in self.damages if damage.key is not None}
        for key in self._reader:
            file, offset, size = self._reader.find(key)
            if FileOffset(file, offset) not in self._bad:
                problem = check(key, self._reader.read(key))
                if problem:
                    message = f"{file}: block {key.number} of track {key.track} at offset {offset}: {problem}"
                    self.damages.append(Damage(file, offset, key, message))
                    self._bad.add(FileOffset(file, offset))
            progress(size)

    @property
    def num_blocks(self) -> int:
        """Number of blocks, without copies of the same key."""
        return len(self._reader)

    @property
    def damaged_files(self) -> list[Path]:
        """Log files with a damaged byte, and those that are missing: a repaired store names none of them."""
        return sorted({damage.file for damage in self.damages if not damage.is_in_index})

    @property
    def damaged_indices(self) -> list[Path]:
        """Indices that differ from their log."""
        return sorted({damage.file for damage in self.damages if damage.is_in_index})

    def explains_loss(self, key: BlockKey) -> bool:
        """Whether known damage explains a missing block: its own, or bytes whose blocks are unknown."""
        return any(damage.key == key or (damage.key is None and not damage.is_in_index) for damage in self.damages)

    def blocks_of(self, state: LogState) -> IntactBlocks:
        """Open the blocks of a generation whose manifest has ``state``."""
        reader = BlockLogReader.open(self._folder, self.name, self._without_missing(state), self._disk)
        return IntactBlocks(self, reader, sum(file["blocks"] for file in state["files"]))

    def find_intact(self, key: BlockKey, reader: BlockLogReader) -> tuple[BlockLogReader, BlockSpan]:
        """Return a reader and the span of an intact copy of a block; raise ``KeyError`` if there is none.

        ``reader`` is preferred, then the newest block of that key in the log. That one may have other content, written
        by a memory that resumed from an older generation. It counts as a copy if its header equals the damaged block's
        header.
        """
        span = reader.find(key)
        if FileOffset(span.file, span.offset) not in self._bad:
            return reader, span
        newest = self._reader.find(key)
        header = reader.header(key)
        if header is None or header != self._reader.header(key) or FileOffset(newest.file, newest.offset) in self._bad:
            raise KeyError(f"{span.file}: block {key.number} of track {key.track} at offset {span.offset} is damaged")
        return self._reader, newest

    def repair_indices(self) -> list[Path]:
        """Rewrite damaged and lost indices; return them. Only the writer may call it."""
        return self._reader.repair_indices()

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    def _without_missing(self, state: LogState) -> LogState:
        missing = {path.name for path in self.missing}
        files = [file for file in state["files"] if file_name(self.name, file["number"], LOG) not in missing]
        return LogState(files=files, next_file=state["next_file"])


class IntactBlocks:
    """The intact blocks of a log that one generation names: a source for ``StoredMemory``."""

    def __init__(self, log: VerifiedLog, reader: BlockLogReader, num_named: int) -> None:
        self._log, self._reader, self._num_named = log, reader, num_named

    def __len__(self) -> int:
        """Return how many blocks the generation's manifest counts, intact or not."""
        return self._num_named

    def __contains__(self, key: BlockKey) -> bool:
        try:
            self._log.find_intact(key, self._reader)
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[BlockKey]:
        """Yield all intact blocks by track and number, including blocks that no generation needs."""
        return filter(self.__contains__, self._reader)

    def find(self, key: BlockKey) -> BlockSpan:
        """Return where a block is; raise ``KeyError`` if it is damaged or missing."""
        return self._log.find_intact(key, self._reader)[1]

    def read(self, key: BlockKey) -> bytes:
        """Return a block's payload; raise ``KeyError`` if it is damaged or missing."""
        return self._log.find_intact(key, self._reader)[0].read(key)

    def close(self) -> None:
        """Close the files."""
        self._reader.close()


def union_of(states: Iterable[LogState]) -> LogState:
    """Return a log state with the longest committed part of each file."""
    states = list(states)
    files = [
        FileState(number=number, bytes=end.bytes, blocks=end.blocks)
        for number, end in sorted(find_committed(states).items())
    ]
    return LogState(files=files, next_file=max((state["next_file"] for state in states), default=1))


UNPACKED_BYTES = 8 * 2**20  # of frames, unpacked at a time


class SegmentCheck:
    """Unpack every frame of a segment, of any storage; return the first problem."""

    def __init__(self, settings: MemorySettings, frames_per_segment: int) -> None:
        self._settings, self._frames_per_segment = settings, frames_per_segment
        frames_at_once = max(1, min(UNPACKED_BYTES // settings.frame.nbytes, frames_per_segment))
        # A buffer for each array of an observation, reused for every segment: ``(1, frames_at_once, *frame)``.
        self._unpacked = [frame.empty(1, frames_at_once) for frame in settings.frame.frame_specs]

    def __call__(self, key: BlockKey, segment: bytes) -> str | None:
        """Check a sealed segment; return its problem, or ``None``."""
        first = key.number * self._frames_per_segment
        return self.problem(key, segment, range(first, first + self._frames_per_segment))

    def problem(self, key: BlockKey, segment: bytes, positions: range) -> str | None:
        """Return the problem of a segment that must have the frames ``positions``, or ``None``."""
        settings = self._settings
        if key.track >= settings.num_tracks:
            return f"the memory has {settings.num_tracks} tracks of frames"
        array = key.track // settings.num_envs
        frame, unpacked = settings.frame.frame_specs[array], self._unpacked[array]
        # A new storage for each segment: a segment must not depend on others.
        depths = [settings.layout.depths[array]]
        storage = FrameStorage(frame, 1, frames_per_segment=self._frames_per_segment, depths=depths)
        try:
            storage.restore(0, key.number, segment)
            if (found := storage.stored_positions(0)) != positions:
                return f"it has frames {found.start} to {found.stop - 1}, not {positions.start} to {positions.stop - 1}"
            length = unpacked.shape[1]
            for start in range(positions.start, positions.stop, length):
                count = min(length, positions.stop - start)
                window = unpacked[:, :count]
                last = np.array([start + count - 1])
                storage.windows(np.zeros(1, np.int32), last, np.array([count], np.int32), window)
        except (DamagedDataError, ValueError, IndexError) as error:
            return str(error)
        return None


class StepsCheck:
    """Check the fields of each step of a block; return the first problem."""

    def __init__(self, settings: MemorySettings) -> None:
        self._settings = settings
        self._record = slot_record(settings.num_envs, settings.action, settings.extras)

    def __call__(self, _key: BlockKey, block: bytes) -> str | None:
        """Check a block of steps; return its problem, or ``None``."""
        settings = self._settings
        if len(block) % self._record.itemsize:
            return f"its {len(block)} bytes are not a multiple of {self._record.itemsize}, the bytes of a step"
        steps = np.frombuffer(block, self._record)
        for name, is_wrong in {
            "env_id": steps["env_id"] >= settings.num_envs,
            "reward": ~np.isfinite(steps["reward"]),
            "history": steps["history"] >= settings.stack,
            "flags": steps["flags"] > ALL_FLAGS,
            "action": settings.action.are_outside(steps["action"]).reshape(len(steps), -1).any(1),
        }.items():
            if is_wrong.any():
                row = int(np.flatnonzero(is_wrong)[0])
                return f"step {row} has the invalid {name} {steps[name][row]}"
        return None
