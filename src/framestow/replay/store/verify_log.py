"""Verify one log of a store: every byte of its files, then the content of every block.

``VerifiedLog`` covers all generations together. ``SegmentCheck`` and ``StepsCheck`` check one block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from framestow.errors import DamagedDataError
from framestow.interface import Closing
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.step_fields import ALL_FLAGS, slot_record
from framestow.storage.files.block_format import LOG, BlockKey, Damage, FileState, LogState, file_name
from framestow.storage.files.block_log import find_committed
from framestow.storage.files.block_log_reader import BlockLogReader
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.frame_storage import FrameStorage

Progress = Callable[[int], None]  # called with the number of bytes read since the last call
# Returns the problem of a block with a correct checksum, or None.
BlockCheck = Callable[[BlockKey, bytes], "str | None"]


class VerifiedLog(Closing):
    """The files of one log that any generation names, each up to its last committed byte. Close it after use."""

    def __init__(self, folder: Path, name: str, states: Mapping[int, LogState], files: FileSystem = DISK) -> None:
        """Open the files, which a concurrent writer may then remove; ``states`` are those of all generations."""
        self.name = name
        ends = find_committed(states.values())
        self.num_bytes = sum(end.bytes for end in ends.values())
        """Bytes of the files that the generations name."""
        self.missing: dict[Path, str] = {}
        """Files that do not exist, or that are none, and what a message says of each."""
        paths = {number: folder / file_name(name, number, LOG) for number in sorted(ends)}
        for path in paths.values():
            try:
                files.size(path)
            except FileNotFoundError:
                self.missing[path] = f"{path}: the file is missing"
            except DamagedDataError as error:
                self.missing[path] = str(error)
        self.damages = [Damage(path, 0, None, message) for path, message in self.missing.items()]
        """All damage, once ``verify`` was called."""

        def open_existing(state: LogState) -> BlockLogReader:
            existing = [file for file in state["files"] if paths[file["number"]] not in self.missing]
            return BlockLogReader.open(folder, name, LogState(files=existing, next_file=state["next_file"]), files)

        union = [FileState(number=number, bytes=ends[number].bytes, blocks=ends[number].blocks) for number in paths]
        self._reader = open_existing(LogState(files=union, next_file=1))
        self.blocks = {generation: open_existing(state) for generation, state in states.items()}
        """By generation, the blocks that it names; after ``verify`` the intact ones."""

    def verify(self, check: BlockCheck, progress: Progress) -> None:
        """Verify every byte, then check every intact block with ``check``; take the damaged ones out of ``blocks``."""
        self.damages += self._reader.damages(progress)
        bad = {(damage.file, damage.offset): damage.key for damage in self.damages if damage.key is not None}
        for key in self._reader:
            file, offset, size = self._reader.find(key)
            if (file, offset) not in bad:
                problem = check(key, self._reader.read(key))
                if problem:
                    message = f"{file}: block {key.number} of track {key.track} at offset {offset}: {problem}"
                    self.damages.append(Damage(file, offset, key, message))
                    bad[file, offset] = key
            progress(size)
        for blocks in self.blocks.values():
            for place, key in bad.items():
                if key in blocks and blocks.find(key)[:2] == place:
                    self._replace(key, blocks, bad)

    def _replace(self, key: BlockKey, blocks: BlockLogReader, bad: Mapping[tuple[Path, int], BlockKey]) -> None:
        """Take a damaged block from an intact copy, or out of ``blocks``.

        The newest block of that key may have other content, written by a memory that resumed from an older generation.
        It counts as a copy if its header equals the damaged block's header.
        """
        header, newest = blocks.header(key), self._reader.find(key)
        if header is not None and header == self._reader.header(key) and newest[:2] not in bad:
            blocks.take(key, self._reader)
        else:
            blocks.drop(key)

    @property
    def num_blocks(self) -> int:
        """Number of blocks, without copies of the same key."""
        return len(self._reader)

    @property
    def largest_block(self) -> int:
        """Bytes of the largest block, as it is stored."""
        return max((self._reader.find(key).size for key in self._reader), default=0)

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

    def repair_indices(self) -> list[Path]:
        """Rewrite damaged and lost indices; return them. Only the writer may call it."""
        return self._reader.repair_indices()

    def close(self) -> None:
        """Close the files. Closing again does nothing."""
        for reader in (self._reader, *self.blocks.values()):
            reader.close()


UNPACKED_BYTES = 8 * 2**20  # of frames, unpacked at a time
PACKER_FRAMES = 6  # working memory of a storage, in frames


def segment_work_space(settings: MemorySettings) -> int:
    """Return the bytes of memory that ``SegmentCheck`` takes besides the segment."""
    num_frames = max(1, UNPACKED_BYTES // settings.frame.nbytes)
    largest = max(frame.nbytes for frame in settings.frame.frame_specs)
    return num_frames * settings.frame.nbytes + PACKER_FRAMES * largest


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
        if key.track not in settings.tracks.all:
            return f"the memory has {len(settings.tracks.all)} tracks of frames"
        array = settings.tracks.array_of(key.track)
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
