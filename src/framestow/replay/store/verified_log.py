"""Verify one log of a store: every byte of its files, then the content of every block.

``VerifiedLog`` covers all generations together, ``LogView`` the intact blocks of one of them. ``SegmentCheck`` and
``StepsCheck`` check one block; ``step_problems`` checks that all steps and frames of a memory fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.replay.episodes import STEPS_PER_PIECE, EpisodeRuns
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.step_fields import ALL_FLAGS, BORDER, slot_record
from framestow.replay.steps.step_store import StepStore, steps_in_pieces
from framestow.storage.files.block_format import LOG, BlockKey, BlockSpan, Damage, FileState, LogState, file_name
from framestow.storage.files.block_log_reader import BlockLogReader
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.frame_storage import FrameStorage

Progress = Callable[[int], None]  # called with the number of bytes read since the last call
BlockCheck = Callable[
    [BlockKey, bytes], "str | None"
]  # returns the problem of a block with a correct checksum, or None


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
        # Reads the union. A ``LogView`` reads what one generation names.
        self._reader = BlockLogReader.open(folder, name, self.present(self.union), files)
        # Blocks that must not be read; filled by ``verify``.
        self._bad: set[FileOffset] = set()

    def verify(self, check: BlockCheck, progress: Progress) -> None:
        """Verify every byte, then check every intact block with ``check``."""
        self.damages += self._reader.damages(progress)
        self._bad = {FileOffset(damage.file, damage.offset) for damage in self.damages if damage.key is not None}
        self._check_blocks(check, progress)

    def present(self, state: LogState) -> LogState:
        """Return ``state`` without the missing files."""
        missing = {path.name for path in self.missing}
        files = [file for file in state["files"] if file_name(self.name, file["number"], LOG) not in missing]
        return LogState(files=files, next_file=state["next_file"])

    @property
    def num_blocks(self) -> int:
        """Number of blocks, without copies of the same key."""
        return len(self._reader)

    @property
    def damaged_files(self) -> list[Path]:
        """Existing log files with a damaged byte: a repair must replace them."""
        logs = {damage.file for damage in self.damages if damage.file.suffix == f".{LOG}"} - set(self.missing)
        return sorted(logs)

    def explains_loss(self, key: BlockKey) -> bool:
        """Whether known damage explains a missing block: its own, or bytes whose blocks are unknown."""
        return any(
            damage.key == key or (damage.key is None and damage.file.suffix == f".{LOG}") for damage in self.damages
        )

    def view(self, state: LogState) -> LogView:
        """Open the blocks of a generation whose manifest has ``state``."""
        return LogView(self, BlockLogReader.open(self._folder, self.name, self.present(state), self._disk))

    def intact_copy(self, key: BlockKey, reader: BlockLogReader) -> tuple[BlockLogReader, BlockSpan] | None:
        """Return a reader and the span of an intact copy of a block, or ``None``.

        ``reader`` is preferred, then the newest block of that key in the log. That one may have other content, written
        by a memory that resumed from an older generation. It counts as a copy if its header equals the damaged block's
        header.
        """
        if key not in reader:
            return None
        span = reader.find(key)
        if FileOffset(span.file, span.offset) not in self._bad:
            return reader, span
        newest = self._reader.find(key)
        header = reader.header(key)
        is_copy = header is not None and header == self._reader.header(key)
        return (self._reader, newest) if is_copy and FileOffset(newest.file, newest.offset) not in self._bad else None

    def repair_indices(self) -> list[Path]:
        """Rewrite damaged and lost indices; return them. Only the writer may call it."""
        return self._reader.repair_indices()

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    def _check_blocks(self, check: BlockCheck, progress: Progress) -> None:
        for key in self._reader:
            file, offset, size = self._reader.find(key)
            if FileOffset(file, offset) not in self._bad:
                problem = check(key, self._reader.read(key))
                if problem:
                    message = f"{file}: block {key.number} of track {key.track} at offset {offset}: {problem}"
                    self.damages.append(Damage(file, offset, key, message))
                    self._bad.add(FileOffset(file, offset))
            progress(size)


class LogView:
    """The intact blocks of a log that one generation names."""

    def __init__(self, log: VerifiedLog, reader: BlockLogReader) -> None:
        self._log, self._reader = log, reader

    def find_intact(self, key: BlockKey) -> BlockSpan | None:
        """Return where a block is, or ``None`` if it is damaged or missing."""
        copy = self._log.intact_copy(key, self._reader)
        return None if copy is None else copy[1]

    def intact_keys(self) -> Iterator[BlockKey]:
        """Yield all intact blocks by track and number, including blocks that no generation needs."""
        return (key for key in self._reader if self.find_intact(key))

    def read(self, key: BlockKey) -> bytes | None:
        """Return a block's payload, or ``None`` if it is damaged or missing."""
        copy = self._log.intact_copy(key, self._reader)
        return None if copy is None else copy[0].read(key)

    def close(self) -> None:
        """Close the files."""
        self._reader.close()


class BlockSubset:
    """Selected intact blocks of a view, with the interface of a log reader."""

    def __init__(self, view: LogView, keys: Iterable[BlockKey]) -> None:
        self._view, self._keys = view, set(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, key: BlockKey) -> BlockSpan:
        """Return where a block is; raise ``KeyError`` if it is not selected."""
        span = self._view.find_intact(key) if key in self._keys else None
        if span is None:
            raise KeyError(f"block {key.number} of track {key.track} is not selected")
        return span

    def read(self, key: BlockKey) -> bytes:
        """Return a block's payload; raise ``KeyError`` if it is not selected."""
        block = self._view.read(key) if key in self._keys else None
        if block is None:
            raise KeyError(f"block {key.number} of track {key.track} is not selected")
        return block

    def close(self) -> None:
        """Do nothing: the owner of the view closes its files."""


def union_of(states: Iterable[LogState]) -> LogState:
    """Return a log state with the longest committed part of each file."""
    longest: dict[int, FileState] = {}
    next_file = 1
    for state in states:
        next_file = max(next_file, state["next_file"])
        for file in state["files"]:
            known = longest.get(file["number"])
            if known is None or known["bytes"] < file["bytes"]:
                longest[file["number"]] = file
    return LogState(files=[longest[number] for number in sorted(longest)], next_file=next_file)


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


Numbers = npt.NDArray[np.int64]


class StoredFrames:
    """Index of the frames of a memory: by track, the numbers of its segments and its next position.

    ``sealed``, ``next_positions`` and ``has_open`` have one entry for each track of frames, ``num_envs`` for each
    array.
    """

    def __init__(
        self,
        frames_per_segment: int,
        sealed: list[Numbers],
        next_positions: Numbers,
        has_open: npt.NDArray[np.bool_],
        num_envs: int,
    ) -> None:
        self.frames_per_segment, self._num_envs = frames_per_segment, num_envs
        # By track, the position that its next frame gets: frames from there on are not stored.
        self._next_positions = next_positions
        open_numbers = next_positions // frames_per_segment
        # By track, the numbers of its segments, sealed and open, ascending.
        self._numbers = [
            np.append(numbers, open_number) if is_open else numbers
            for numbers, open_number, is_open in zip(sealed, open_numbers.tolist(), has_open.tolist(), strict=True)
        ]

    def contain(self, track: int, firsts: Numbers, lasts: Numbers) -> npt.NDArray[np.bool_]:
        """Return for each span of frames, ``firsts`` to ``lasts`` inclusive, whether all of it is stored.

        All arrays of ``track`` must have the frames.
        """
        first_numbers, last_numbers = firsts // self.frames_per_segment, lasts // self.frames_per_segment
        has_all: npt.NDArray[np.bool_] = firsts >= 0
        for array in range(track, len(self._numbers), self._num_envs):
            numbers = self._numbers[array]
            found = np.searchsorted(numbers, last_numbers, "right") - np.searchsorted(numbers, first_numbers, "left")
            has_all = has_all & (lasts < self._next_positions[array]) & (found == last_numbers - first_numbers + 1)
        return has_all


def step_problems(stored_steps: StepStore, frames: StoredFrames, stack: int) -> Iterator[str]:
    """Yield the problems between steps, then the transitions whose frames are missing."""
    yield from _step_order_problems(stored_steps, stack)
    runs = EpisodeRuns.of(stored_steps).runs
    for track in range(stored_steps.num_envs):
        of_track = runs[runs["env_id"] == track]
        firsts = of_track["first"] - of_track["history"]
        lasts = of_track["first"] + of_track["length"]
        for run in np.flatnonzero(~frames.contain(track, firsts, lasts)):
            yield f"track {track}: transitions need frames {firsts[run]} to {lasts[run]}, and some are missing"


def _step_order_problems(stored_steps: StepStore, stack: int) -> Iterator[str]:
    """Within a track, positions ascend, an end has no successor, and a history is one frame longer than the last.

    The history after a border is 0.
    """
    newest_steps = np.empty((5, 0), np.int64)
    for indices in steps_in_pieces(stored_steps, STEPS_PER_PIECE):
        windows, (_, rewards, _, terminated, truncated, _) = stored_steps.resolve_steps(indices, with_extras=False)
        tracks, lasts, counts = windows
        is_border = stored_steps.flags_of(indices) & BORDER > 0
        piece = np.stack([tracks, lasts, counts, terminated | truncated, is_border])
        steps = np.concatenate([newest_steps, piece], axis=1)
        steps = steps[:, np.lexsort((steps[1], steps[0]))]
        tracks, lasts, counts, ended, is_border = steps
        next_counts = np.where(is_border == 1, 2, np.minimum(counts + 1, stack + 1))
        is_same = tracks[1:] == tracks[:-1]
        apart = lasts[1:] - lasts[:-1]
        follows = is_same & (apart == 1)
        for problem, is_wrong in (
            ("two transitions end at this frame", is_same & (apart == 0)),
            ("a step follows the end of its episode", follows & (ended[:-1] == 1)),
            (
                "its history has another length than its run",
                follows & (counts[1:] != next_counts[:-1]),
            ),
        ):
            for row in np.flatnonzero(is_wrong) + 1:
                yield f"track {tracks[row]}, frame {lasts[row]}: {problem}"
        if not np.isfinite(rewards).all():
            yield "a reward is not finite"
        newest_steps = steps[:, np.append(~is_same, True)]
