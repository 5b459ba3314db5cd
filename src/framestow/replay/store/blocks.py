"""Check the blocks of a log, byte by byte, and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError
from framestow.replay.episodes import STEPS_PER_PIECE, EpisodeRuns
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.step_fields import slot_record
from framestow.replay.timelines.timeline import Timeline, steps_in_pieces
from framestow.storage.files.block_format import LOG, BlockKey, BlockPlace, Damage, FileState, LogState, file_name
from framestow.storage.files.block_log_reader import BlockLogReader
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.storages import make_storage

UNPACKED_BYTES = 8 * 2**20  # of frames at once


class SegmentCheck:
    """Unpacks every frame of a segment, whatever storage it is of; tells why it cannot be what was written."""

    def __init__(self, settings: MemorySettings, frames_per_segment: int) -> None:
        self._settings, self._frames_per_segment = settings, frames_per_segment
        frames_at_once = max(1, min(UNPACKED_BYTES // settings.frame.nbytes, frames_per_segment))
        self._unpacked = [frame.empty(1, frames_at_once) for frame in settings.frame.leaf_frames]

    def __call__(self, key: BlockKey, segment: bytes) -> str | None:
        """Check a sealed segment."""
        first = key.number * self._frames_per_segment
        return self.contradiction(key, segment, range(first, first + self._frames_per_segment))

    def contradiction(self, key: BlockKey, segment: bytes, positions: range) -> str | None:
        """What is wrong with a segment that must hold the frames of ``positions``; None where nothing is."""
        settings = self._settings
        if key.stream >= settings.num_frame_streams:
            return f"there are {settings.num_frame_streams} streams of frames"
        leaf = key.stream // settings.num_envs
        frame, unpacked = settings.frame.leaf_frames[leaf], self._unpacked[leaf]
        # One of its own for each segment: what stands in it stands alone.
        storage = make_storage(settings.storage, frame, 1, frames_per_segment=self._frames_per_segment)
        try:
            storage.restore(0, key.number, segment)
            if storage.stored_positions(0) != positions:
                held = storage.stored_positions(0)
                return f"it holds frames {held.start} to {held.stop - 1}, not {positions.start} to {positions.stop - 1}"
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
    """Tells why a block of steps cannot be what was written."""

    def __init__(self, settings: MemorySettings) -> None:
        self._settings = settings
        self._record = slot_record(settings.num_envs, settings.action, settings.extras)

    def __call__(self, _key: BlockKey, block: bytes) -> str | None:
        """Check the fields of each step by itself."""
        settings = self._settings
        if len(block) % self._record.itemsize:
            return f"its {len(block)} bytes are no steps of {self._record.itemsize} bytes"
        steps = np.frombuffer(block, self._record)
        for name, is_wrong in {
            "stream": steps["stream"] >= settings.num_envs,
            "reward": ~np.isfinite(steps["reward"]),
            "history": steps["history"] >= settings.stack,
            "flags": steps["flags"] > MAX_FLAGS,
            "action": settings.action.are_outside(steps["action"]).reshape(len(steps), -1).any(1),
        }.items():
            if is_wrong.any():
                place = int(np.flatnonzero(is_wrong)[0])
                return f"the {name} of step {place} is {steps[name][place]}"
        return None


MAX_FLAGS = 7  # terminated, truncated, and that a place of a block is taken


Numbers = npt.NDArray[np.int64]


class HeldFrames:
    """Which frames there are: whole segments by number, and of each stream an open one's frames behind them.

    ``sealed``, ``next_positions`` and ``has_open`` have an entry a stream of frames: ``num_streams`` for each leaf.
    """

    def __init__(
        self,
        frames_per_segment: int,
        sealed: list[Numbers],
        next_positions: Numbers,
        has_open: npt.NDArray[np.bool_],
        num_streams: int,
    ) -> None:
        self.frames_per_segment, self._num_streams = frames_per_segment, num_streams
        self._next_positions = next_positions
        open_numbers = next_positions // frames_per_segment
        self._numbers = [
            np.append(numbers, open_number) if is_open else numbers
            for numbers, open_number, is_open in zip(sealed, open_numbers.tolist(), has_open.tolist(), strict=True)
        ]

    def holds(self, stream: int, firsts: Numbers, lasts: Numbers) -> npt.NDArray[np.bool_]:
        """Which of the spans of frames ``firsts`` to ``lasts``, both included, are there from end to end.

        Of every leaf of ``stream``.
        """
        first_numbers, last_numbers = firsts // self.frames_per_segment, lasts // self.frames_per_segment
        has_all: npt.NDArray[np.bool_] = firsts >= 0
        for leaf in range(stream, len(self._numbers), self._num_streams):
            numbers = self._numbers[leaf]
            found = np.searchsorted(numbers, last_numbers, "right") - np.searchsorted(numbers, first_numbers, "left")
            has_all = has_all & (lasts < self._next_positions[leaf]) & (found == last_numbers - first_numbers + 1)
        return has_all


def contradictions(timeline: Timeline, held: HeldFrames, stack: int) -> Iterator[str]:
    """Tell what of the steps cannot be, if anything: pairs that follow on one another, then windows without frames."""
    yield from _broken_courses(timeline, stack)
    runs = EpisodeRuns.of(timeline, stack).runs
    for stream in range(timeline.num_streams):
        mine = runs[runs["stream"] == stream]
        firsts, lasts = mine["first"] - mine["history"], mine["first"] + mine["length"]
        for run in np.flatnonzero(~held.holds(stream, firsts, lasts)):
            yield f"stream {stream}: transitions show frames {firsts[run]} to {lasts[run]}, of which some are not there"


def _broken_courses(timeline: Timeline, stack: int) -> Iterator[str]:
    """Within each stream: positions ascend, nothing follows an end, and histories grow by a frame a step."""
    carried = np.empty((4, 0), np.int64)
    for indices in steps_in_pieces(timeline, STEPS_PER_PIECE):
        windows, (_, rewards, _, terminated, truncated, _) = timeline.resolve_steps(indices, with_extras=False)
        streams, lasts, counts = windows
        piece = np.stack([streams, lasts, counts, terminated | truncated])
        steps = np.concatenate([carried, piece], axis=1)
        steps = steps[:, np.lexsort((steps[1], steps[0]))]
        streams, lasts, counts, ended = steps
        is_same = streams[1:] == streams[:-1]
        apart = lasts[1:] - lasts[:-1]
        follows = is_same & (apart == 1)
        for what, is_wrong in (
            ("two transitions lead to that frame", is_same & (apart == 0)),
            ("a step follows the end of its episode", follows & (ended[:-1] == 1)),
            (
                "it does not look back as far as its episode goes",
                follows & (counts[1:] != np.minimum(counts[:-1] + 1, stack + 1)),
            ),
        ):
            for place in np.flatnonzero(is_wrong) + 1:
                yield f"stream {streams[place]}, frame {lasts[place]}: {what}"
        if not np.isfinite(rewards).all():
            yield "a reward is not finite"
        carried = steps[:, np.append(~is_same, True)]


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
