"""Reads a store: opens one generation, and fills a memory with what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError, DamagedSegmentError, FramestowError, IncompatibleError
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.store.format import (
    FRAMES,
    KIND,
    STEPS,
    VERSION,
    WAY_OUT,
    Manifest,
    checked_manifest,
    checked_settings,
)
from framestow.replay.store.snapshot import (
    HELD_RUNS,
    NEXT_POSITIONS,
    OPEN_SEGMENTS,
    OPEN_SIZES,
    RUN_COUNTS,
    Arrays,
    unpack_arrays,
)
from framestow.replay.timelines.timeline import StepKey, steps_in_pieces
from framestow.storage.files.block_format import BlockKey, BlockPlace
from framestow.storage.files.block_log_reader import BlockLogReader
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import generations, manifest_path, read_checked, read_newest_manifest
from framestow.storage.frame_storage import FrameStorage, StorageInFiles
from framestow.storage.storages import make_storage

MAX_NUMBER = 2**40  # of a segment; as many as a log numbers
WINDOWS_AT_ONCE = 2**16


class Blocks(Protocol):
    """The blocks of one log: a ``BlockLogReader``, or what a repair is going to keep of one."""

    def __len__(self) -> int:
        """How many there are."""

    def place(self, key: BlockKey) -> BlockPlace:
        """Where a block lies; ``KeyError`` where there is none."""

    def read(self, key: BlockKey) -> bytes:
        """Give a block; ``KeyError`` where there is none, ``DamagedDataError`` where it is not as it was written."""

    def close(self) -> None:
        """Close the files."""


class StoredMemory:
    """One generation of a store: what is small in RAM, and the logs open, so that what a writer removes stays readable.

    Nothing is written and no lock is taken. Close it when the memory is filled.
    """

    def __init__(self, folder: Path, manifest: Manifest, arrays: Arrays, frames: Blocks, steps: Blocks) -> None:
        self.manifest, self.frames, self.steps = manifest, frames, steps
        self._folder, self._arrays, self._file = folder, arrays, str(manifest_path(folder, manifest.generation))
        self.settings = checked_settings(manifest.memory, self._file)
        self._check_arrays()

    @classmethod
    def open(cls, folder: Path, generation: int | None = None, files: FileSystem = DISK) -> StoredMemory:
        """Open a generation, the newest if ``None``, also beside a writer that takes away older ones meanwhile.

        Raises ``FileNotFoundError`` where nothing was saved, ``DamagedDataError`` naming the file that is not as it was
        written, ``IncompatibleError`` for another version.
        """
        while True:
            wanted = _newest(folder, files) if generation is None else generation
            try:
                return cls._open(folder, wanted, files)
            except (FileNotFoundError, DamagedDataError):
                if generation is not None or wanted == _newest(folder, files):
                    raise

    @classmethod
    def _open(cls, folder: Path, generation: int, files: FileSystem) -> StoredMemory:
        manifest = checked_manifest(folder, generation, files)
        state = folder / manifest.state["name"]
        arrays = unpack_arrays(read_checked(folder, manifest.state, files), str(state))
        frames = _open_log(folder, FRAMES, manifest, files)
        try:
            steps = _open_log(folder, STEPS, manifest, files)
            try:
                return cls(folder, manifest, arrays, frames, steps)
            except BaseException:
                steps.close()
                raise
        except BaseException:
            frames.close()
            raise

    @property
    def commit(self) -> str:
        """Name of the commit that wrote it, which a later save goes on from."""
        return self.manifest.commit

    def fill(self, parts: MemoryParts, *, in_files: bool = False) -> None:
        """Put everything into the parts of a memory that was just built with ``settings``, a block at a time.

        With ``in_files`` packed segments stay where they are, and nothing of them is read or verified before they are
        asked for. Where the memory skips damage, damaged blocks are left out. Raises ``DamagedDataError`` naming the
        file, and ``IncompatibleError`` where this version divides streams into other segments.
        """
        if parts.storage.frames_per_segment != self.manifest.frames_per_segment:
            raise IncompatibleError(
                f"{self._file}: its segments hold {self.manifest.frames_per_segment} frames and those of this version "
                f"{parts.storage.frames_per_segment}; load it with the version that saved it"
            )
        try:
            parts.damage.num_transitions += parts.timeline.restore(self._arrays, partial(self._read_steps, parts))
            damaged = list(self._fill_sealed(parts, in_files))
            self._fill_open(parts)
            for error in damaged:
                parts.damage.skip(error)
            check_windows(parts)
            parts.restore(self.manifest.memory, self._arrays)
        except DamagedDataError as error:
            if str(self._folder) in str(error):
                raise
            raise self._contradicted(str(error)) from error  # what is no damage of a file, but of what it says
        except FramestowError:
            raise
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise self._contradicted(str(error)) from error

    def close(self) -> None:
        """Close the files. Closing again does nothing."""
        self.frames.close()
        self.steps.close()

    def __enter__(self) -> StoredMemory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read_steps(self, parts: MemoryParts, key: StepKey) -> bytes | None:
        try:
            return self.steps.read(BlockKey(*key))
        except (KeyError, DamagedDataError):
            if parts.damage.are_skipped:
                return None
            raise

    def _fill_sealed(self, parts: MemoryParts, in_files: bool) -> Iterator[DamagedSegmentError]:
        """Put back the sealed segments; give those that are left out."""
        storage, num_frames = parts.storage, parts.storage.frames_per_segment
        for key in self._held_segments():
            try:
                if in_files and isinstance(storage, StorageInFiles) and storage.supports_files(key.stream):
                    file, offset, size = self.frames.place(key)
                    storage.restore_in_file(key.stream, key.number, file, offset, size, num_frames)
                else:
                    storage.restore(key.stream, key.number, self.frames.read(key))
            except (KeyError, DamagedDataError) as error:
                if not parts.damage.are_skipped:
                    raise
                yield DamagedSegmentError(str(error), key.stream % self.settings.num_envs, key.number)

    def _fill_open(self, parts: MemoryParts) -> None:
        """Put back the segments that were being filled, and where a stream goes on of which no frame is held."""
        storage, segments, start = parts.storage, self._arrays[OPEN_SEGMENTS], 0
        for stream, size in enumerate(self._arrays[OPEN_SIZES].tolist()):
            next_position = int(self._arrays[NEXT_POSITIONS][stream])
            number = next_position // storage.frames_per_segment
            if size:
                storage.restore(stream, number, segments[start : start + size].tobytes())
            elif not storage.stored_positions(stream):
                storage.begin_at(stream, number)
            start += size
            if not size and storage.stored_positions(stream).stop < next_position:
                self._end_with_a_hole(storage, stream, number - 1)
            if storage.stored_positions(stream).stop != next_position:
                raise ValueError(
                    f"stream {stream} goes on at {next_position}, not {storage.stored_positions(stream).stop}"
                )

    def _end_with_a_hole(self, storage: FrameStorage, stream: int, number: int) -> None:
        """Let a stream go on behind a sealed segment that is not there, since it was damaged and skipped."""
        frame, length = self.settings.frame.leaf_frames[stream // self.settings.num_envs], storage.frames_per_segment
        blank = make_storage(self.settings.storage, frame, 1, frames_per_segment=length)
        blank.begin_at(0, number)
        for _ in range(length):
            blank.append(np.zeros(1, np.int32), np.zeros((1, *frame.shape), frame.dtype))
        storage.restore(stream, number, blank.segment(0, number))
        storage.evict(stream % self.settings.num_envs, (number + 1) * length, number * length)

    def _held_segments(self) -> Iterator[BlockKey]:
        """The sealed segments that the memory held, by stream and number."""
        streams = np.repeat(np.arange(self.settings.num_frame_streams), self._arrays[RUN_COUNTS])
        for stream, (first, last) in zip(streams.tolist(), self._arrays[HELD_RUNS].tolist(), strict=True):
            for number in range(first, last + 1):
                yield BlockKey(stream, number)

    def _check_arrays(self) -> None:
        """Raise ``DamagedDataError`` unless the arrays are of as many streams, and name no more than there is.

        So a memory that is built by the settings is no larger than what was written for it, and filling it ends.
        """
        streams = (self.settings.num_frame_streams,)
        self._check_integers(NEXT_POSITIONS, streams, MAX_NUMBER * self.manifest.frames_per_segment)
        num_bytes = self._arrays.get(OPEN_SEGMENTS, _NONE).nbytes
        sizes = self._check_integers(OPEN_SIZES, streams, num_bytes)
        num_runs = len(self._arrays.get(HELD_RUNS, _NONE))
        counts = self._check_integers(RUN_COUNTS, streams, num_runs)
        runs = self._check_integers(HELD_RUNS, (num_runs, 2), MAX_NUMBER)
        lengths = runs[:, 1] - runs[:, 0] + 1
        if int(sizes.sum()) != num_bytes or int(counts.sum()) != num_runs:
            raise self._contradicted("its arrays are not those of the streams that it has")
        if (lengths < 1).any() or int(lengths.sum()) > len(self.frames):
            raise self._contradicted(f"it names {int(lengths.sum())} segments and there are {len(self.frames)}")

    def _check_integers(self, name: str, shape: tuple[int, ...], highest: int) -> npt.NDArray[np.int64]:
        array = self._arrays.get(name, _NONE)
        if array.dtype != np.int64 or array.shape != shape or (array < 0).any() or (array > highest).any():
            raise self._contradicted(f"{name} does not hold integers of 0 to {highest} in the shape {shape}")
        return array

    def _contradicted(self, why: str) -> DamagedDataError:
        return DamagedDataError(f"{self._file}: what it names does not fit together: {why}; {WAY_OUT}")


def check_windows(parts: MemoryParts) -> None:
    """Raise ``ValueError`` unless the frames of every transition are held, so that none is drawn that cannot be read.

    A checksum tells what was changed on the disk; this, what nobody can have written.
    """
    timeline, storage, num_streams = parts.timeline, parts.storage, parts.settings.num_envs
    frame_streams = range(parts.settings.num_frame_streams)
    stops = np.array([storage.stored_positions(stream).stop for stream in frame_streams]).reshape(-1, num_streams)
    if (timeline.newest_positions != stops - 1).any():
        raise ValueError("its streams have other frames than steps")
    if ((timeline.episode_starts < 0) | (timeline.episode_starts > timeline.newest_positions.clip(min=0))).any():
        raise ValueError("an episode begins where its stream has no frame")
    numbers = [np.append(storage.sealed_segments(stream), storage.open_segment(stream)) for stream in frame_streams]
    of_leaves = [numbers[stream::num_streams] for stream in range(num_streams)]
    for indices in steps_in_pieces(timeline, WINDOWS_AT_ONCE):
        windows = timeline.resolve_steps(indices, with_extras=False)[0]
        if (windows[2] < 2).any() or (windows[2] > parts.settings.stack + 1).any():
            raise ValueError("a transition has another window than any observation")
        _check_frames(windows, of_leaves, storage.frames_per_segment)
    if timeline.n_step > 1:
        for first in range(0, len(timeline), WINDOWS_AT_ONCE):
            ranks = np.arange(first, min(first + WINDOWS_AT_ONCE, len(timeline)))
            windows = timeline.resolve(timeline.held_at(ranks), with_extras=False)[0]
            _check_frames(windows, of_leaves, storage.frames_per_segment)


def _check_frames(
    windows: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int32]],
    of_leaves: list[list[npt.NDArray[np.int64]]],
    frames_per_segment: int,
) -> None:
    """Raise ``ValueError`` unless the first and the last frame of each window lie in segments that are there.

    ``of_leaves``: by stream, the numbers of the segments that each leaf of its frames has.
    """
    streams, last_positions, counts = windows
    if (last_positions < counts - 1).any():
        raise ValueError("a transition has another window than any observation")
    for positions in (last_positions - counts + 1, last_positions):
        for stream in np.unique(streams).tolist():
            needed = np.unique(positions[streams == stream] // frames_per_segment)
            if not all(np.isin(needed, numbers).all() for numbers in of_leaves[stream]):
                raise ValueError(f"a transition of stream {stream} leads to frames that are not there")


_NONE: npt.NDArray[np.int64] = np.empty(0, np.int64)


def _newest(folder: Path, files: FileSystem) -> int:
    there = generations(folder, files)
    return there[-1] if there else int(read_newest_manifest(folder, KIND, VERSION, files)["generation"])  # which raises


def _open_log(folder: Path, name: str, manifest: Manifest, files: FileSystem) -> BlockLogReader:
    try:
        return BlockLogReader.open(folder, name, manifest.frames if name == FRAMES else manifest.steps, files)
    except FileNotFoundError as error:
        raise DamagedDataError(f"{error.filename}: it is gone, and the newest manifest names it; {WAY_OUT}") from error
