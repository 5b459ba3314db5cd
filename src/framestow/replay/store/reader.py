"""Read a store: open one generation, estimate the memory that loading it takes, and fill a memory with its data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from framestow.errors import ClosedMemoryError, DamagedDataError, DamagedSegmentError, FramestowError, IncompatibleError
from framestow.frames.frame_spec import FrameSpec
from framestow.interface import Closing, cached_property, warn_caller
from framestow.process import free_memory
from framestow.replay.eviction.byte_amounts import format_bytes, parse_bytes
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.settings.step_fields import slot_record
from framestow.replay.steps.ring_steps import SPAN, RingSteps
from framestow.replay.steps.step_store import EPISODE_KEYS, StepKey
from framestow.replay.steps.step_stores import AnySteps, make_step_store
from framestow.replay.store.consistency import check_parts, check_steps
from framestow.replay.store.format import (
    FRAMES,
    STEPS,
    Arrays,
    Commit,
    FolderContents,
    commit_path,
    convert_settings,
    read_while_written,
)
from framestow.replay.store.snapshot import (
    NEXT_POSITIONS,
    OPEN_SEGMENTS,
    OPEN_SIZES,
    SEGMENT_SPANS,
    SPAN_COUNTS,
    VERSIONS,
    list_sealed_segments,
    open_segments,
)
from framestow.storage.files.block_format import BlockKey, repair_hint, split_keys, unpack_keys
from framestow.storage.files.block_log_reader import BlockLogReader
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.frame_storage import FrameStorage

MAX_NUMBER = 2**40  # of a segment; limit of a log
_EMPTY: npt.NDArray[np.int64] = np.empty(0, np.int64)
# Bytes that a memory takes: the index of a track, of a segment and of a block of a log; a huge page, which an
# uncompressed segment that is being filled takes; and the working memory of an array's packer, in frames.
TRACK_BYTES, SEGMENT_BYTES, BLOCK_BYTES = 1024, 256, 128
HUGE_PAGE_BYTES = 2**21
PACKER_FRAMES = 6
Built = TypeVar("Built")


class StoredMemory(Closing):
    """One generation of a store: its small state in RAM, and its log files open.

    A concurrent writer may remove open files; they stay readable. Reading writes nothing and takes no lock. Close it
    once the memory is filled.
    """

    def __init__(
        self,
        folder: Path,
        commit: Commit,
        arrays: Arrays,
        frames: BlockLogReader,
        steps: BlockLogReader,
    ) -> None:
        # The blocks of the two logs; their files are open until ``close``.
        self.commit, self.frames, self.steps = commit, frames, steps
        self.arrays = arrays
        """Arrays of the state."""
        self.warning = ""
        """That it is read in place of another commit, or from a copy, for the caller; or empty."""
        # The folder, and the commit's path, for messages.
        self._folder, self._file = folder, str(commit_path(folder, commit.generation))

    @classmethod
    def open(
        cls,
        folder: Path,
        generation: int | None = None,
        files: FileSystem = DISK,
        *,
        skips_damage: bool = False,
        falls_back: bool = True,
    ) -> StoredMemory:
        """Open a generation, the newest if ``None``; also while another process writes.

        If the newest commit is damaged, this warns and opens the one before, unless ``falls_back`` is off, as for a
        writer. ``skips_damage`` leaves out all blocks of a log file that is missing, or not the one that the commit
        names.

        Raises:
            FileNotFoundError: the folder has no store or no such generation.
            DamagedDataError: a file is damaged; the message names it.
            IncompatibleError: another version wrote the store.
        """

        def read(contents: FolderContents) -> StoredMemory:
            found = contents.find(generation, falls_back=falls_back)
            commit, logs = found.whole(), []
            with ExitStack() as on_error:
                for name in (FRAMES, STEPS):
                    place, state = commit.place(folder, name), getattr(commit, name)
                    logs.append(BlockLogReader.open(place, state, files, skips_damage=skips_damage))
                    on_error.callback(logs[-1].close)
                stored = cls(folder, commit, found.arrays(), *logs)
                stored.warning = found.warning
                if stored.is_partial and contents.names != files.names(folder):
                    raise FileNotFoundError("a writer removed a file meanwhile")  # `read_while_written` reads again
                stored.check()
                on_error.pop_all()
            return stored

        with ExitStack() as on_error:
            stored = on_error.enter_context(read_while_written(folder, read, files))
            if stored.warning:
                warn_caller(stored.warning, RuntimeWarning)
            on_error.pop_all()
        return stored

    def build(
        self, make: Callable[..., Built], changes: Mapping[str, Any] | None = None, *, in_files: bool = False
    ) -> Built:
        """Call ``make`` with the arguments of a memory of this generation's settings, and ``changes`` of them.

        Raises:
            IncompatibleError: this machine has too little memory for it, with ``in_files`` as in ``fill``.
        """
        arguments = convert_settings(self._folder, self.commit, MemorySettings.arguments_of) | dict(changes or {})
        budget = arguments.get("max_bytes")
        self.check_room(None if budget is None else parse_bytes(budget), in_files=in_files)
        try:
            return make(**arguments)
        except FramestowError:
            raise
        except (MemoryError, ValueError, OverflowError) as error:
            raise IncompatibleError(
                f"{self._folder}: this machine has too little memory for {arguments['capacity']:,} transitions "
                f"({error}); load it on a larger one"
            ) from error

    def check_room(self, max_bytes: int | None, *, in_files: bool) -> None:
        """Raise ``IncompatibleError`` if filling a memory takes more than is free; call it before one is built."""
        logs = self.frames, self.steps
        needed, free = loading_bytes(self.settings, self.arrays, logs, max_bytes, in_files=in_files), free_memory()
        if needed > free:
            raise IncompatibleError(
                f"{self._folder}: its transitions take {format_bytes(needed)} ({needed:_} bytes) of memory and "
                f"{format_bytes(free)} ({free:_} bytes) are free; load fewer of them with "
                "ReplayMemory.load(path, max_bytes=...)"
            )

    @cached_property
    def settings(self) -> MemorySettings:
        """Settings of the memory; raises as ``convert_settings``."""
        return convert_settings(self._folder, self.commit, MemorySettings.from_state)

    def fill(self, parts: MemoryParts, *, in_files: bool = False) -> None:
        """Restore the stored data into the parts of a new memory, of ``settings`` or of others that it takes.

        With ``in_files``, packed segments stay in their files and are first read and verified when a batch needs them.
        If the memory skips damage, damaged blocks are left out.

        Raises:
            DamagedDataError: a file is damaged; the message names it.
            IncompatibleError: this machine has too little memory.
        """
        with self._naming_contradictions():
            parts.steps.block_versions = self.block_versions
            parts.damage.num_transitions += parts.steps.restore(self.arrays, partial(self._read_steps, parts))
            if isinstance(parts.steps, RingSteps) and parts.settings.n_step > self.settings.n_step:
                parts.steps.forget_lost()
            parts.restore(self.commit.memory, self.arrays)
            damaged = list(self._fill_sealed(parts, in_files))
            self._fill_open(parts)
            if parts.damage.are_skipped:
                self._skip_damage(parts, damaged)
            check_parts(parts)
            parts.restore_stacks()

    def read_steps(self) -> AnySteps:
        """Return the stored steps without their frames; raise as ``fill`` does. Nothing is allocated for frames."""
        with self._naming_contradictions():
            steps = self.make_step_store()
            steps.restore(self.arrays, partial(self.read_block, steps))
            check_steps(steps, self.settings)
        return steps

    @property
    def is_partial(self) -> bool:
        """Whether a log file cannot be used."""
        return bool(self.frames.unusable or self.steps.unusable)

    @cached_property
    def block_versions(self) -> dict[StepKey, int]:
        """Versions of the sealed blocks of steps that were changed."""
        return {(track, number): version for track, number, version in self.arrays[VERSIONS].tolist()}

    def read_block(self, steps: AnySteps, key: StepKey) -> bytes | None:
        """Return a sealed block of ``steps`` in the version of this generation; raises as ``BlockLogReader.read``.

        ``None`` if the log lacks a block of which no step can be sampled: it was lost before this generation.
        """
        if BlockKey(*key) not in self.steps and not steps.num_sampleable_in(key, self.arrays):
            return None
        return self.steps.read(BlockKey(*key), self.block_versions.get((key[0], key[1]), 0))

    def make_step_store(self) -> AnySteps:
        """Return an empty store for these steps alone, however large the memory's capacity is."""
        capacity = max(count_steps(self.settings, self.arrays), 1)
        return make_step_store(self.settings, self.commit.frames_per_segment, capacity=capacity)

    @contextmanager
    def _naming_contradictions(self) -> Iterator[None]:
        """Raise ``DamagedDataError``, with the manifest's name, for data that no memory can have written."""
        try:
            yield
        except DamagedDataError as error:
            if str(self._folder) in str(error):
                raise
            why = str(error).rpartition("; ")[0] or str(error)
            raise self._inconsistency(why) from error  # the bytes are intact, their meaning is not
        except FramestowError:
            raise
        except MemoryError as error:
            raise IncompatibleError(
                f"{self._folder}: this machine has too little memory ({error}); load it on a larger one"
            ) from error
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise self._inconsistency(str(error)) from error

    def fill_read_only(self, parts: MemoryParts) -> bool:
        """Fill a memory that refuses steps; return False if a writer removed a needed file meanwhile."""
        try:
            self.fill(parts, in_files=True)
        except FileNotFoundError:
            if commit_path(self._folder, self.commit.generation).name in DISK.names(self._folder):
                raise
            return False
        why = f"memory {self._folder} is open read-only: it takes no steps and no changes; open it with read_only=False"
        parts.refuse_steps(ClosedMemoryError(why), for_good=True)
        return True

    def close(self) -> None:
        """Close the files. Closing again does nothing."""
        self.frames.close()
        self.steps.close()

    def _read_steps(self, parts: MemoryParts, key: StepKey) -> bytes | None:
        try:
            return self.read_block(parts.steps, key)
        except (KeyError, DamagedDataError) as error:
            parts.damage.skip_steps(error)
            return None

    def _fill_sealed(self, parts: MemoryParts, in_files: bool) -> Iterator[DamagedSegmentError]:
        """Restore the sealed segments; yield an error for each damaged one that is skipped."""
        storage, num_frames = parts.frames, parts.frames.frames_per_segment
        evicted: dict[int, list[range]] = {}  # by environment, frames that need not be restored
        for key in unpack_keys(list_sealed_segments(self.arrays)):
            env_id, first = parts.settings.tracks.env_of(key.track), key.number * num_frames
            if any(first in frames and first + num_frames - 1 in frames for frames in evicted.get(env_id, ())):
                continue
            try:
                if in_files and storage.supports_files(key.track):
                    file, offset, size, of_payload = self.frames.find(key)
                    storage.restore_in_file(key.track, key.number, file, offset, size, num_frames, of_payload)
                else:
                    storage.restore(key.track, key.number, self.frames.read(key))
                    for other, start, stop in parts.evict_to_fit():
                        evicted.setdefault(other, []).append(range(start, stop))
            except (KeyError, DamagedDataError) as error:
                if not parts.damage.are_skipped:
                    raise
                yield DamagedSegmentError(str(error), env_id, key.number)

    def _skip_damage(self, parts: MemoryParts, damaged: list[DamagedSegmentError]) -> None:
        """Lose the transitions of damaged segments, and steps before the first frame of their environment."""
        for error in damaged:
            parts.damage.skip(error)
        parts.damage.num_transitions += parts.core.lose_steps_without_frames()

    def _fill_open(self, parts: MemoryParts) -> None:
        """Restore the open segments, and the next position of tracks without stored frames."""
        storage = parts.frames
        for track, (next_position, segment) in enumerate(open_segments(self.arrays)):
            number = next_position // storage.frames_per_segment
            if segment.size:
                storage.restore(track, number, segment.tobytes())
            elif not storage.stored_positions(track):
                storage.begin_at(track, number)
            if not segment.size and storage.next_position(track) < next_position:
                _append_blank_segment(parts, track, number - 1)
            if storage.next_position(track) != next_position:
                raise ValueError(f"track {track} continues at {next_position}, not {storage.next_position(track)}")

    def check(self) -> None:
        """Raise ``DamagedDataError`` unless the arrays have one entry for each track and name existing data only.

        So a damaged or hostile store cannot make the memory larger than its files, and filling it ends.

        Raises:
            IncompatibleError: this version divides tracks into segments of another length.
        """
        self._check_arrays()
        num_tracks, length = len(self.arrays[NEXT_POSITIONS]), self.settings.frames_per_segment
        if num_tracks != len(self.settings.tracks.all):
            expected = len(self.settings.tracks.all)
            raise self._inconsistency(f"it has {num_tracks} tracks of frames and the memory {expected}")
        if length != self.commit.frames_per_segment:
            raise IncompatibleError(
                f"{self._file}: its segments have {self.commit.frames_per_segment} frames and those of this version "
                f"{length}; load it with the version that saved it"
            )

    def _check_arrays(self) -> None:
        num_blocks, num_versions = (
            sum(file["blocks"] for file in log["files"])  # damaged or not
            for log in (self.commit.frames, self.commit.steps)
        )
        tracks = self.arrays.get(NEXT_POSITIONS, _EMPTY).shape[:1]
        self._check_integers(NEXT_POSITIONS, tracks, MAX_NUMBER * self.commit.frames_per_segment)
        num_bytes = self.arrays.get(OPEN_SEGMENTS, _EMPTY).nbytes
        sizes = self._check_integers(OPEN_SIZES, tracks, num_bytes)
        num_spans = len(self.arrays.get(SEGMENT_SPANS, _EMPTY))
        counts = self._check_integers(SPAN_COUNTS, tracks, num_spans)
        spans = self._check_integers(SEGMENT_SPANS, (num_spans, 2), MAX_NUMBER)
        if len(self._check_integers(VERSIONS, (len(self.arrays.get(VERSIONS, _EMPTY)), 3), MAX_NUMBER)) > num_versions:
            raise self._inconsistency(f"it has more versions of blocks than the {num_versions} blocks")
        lengths = spans[:, 1] - spans[:, 0] + 1
        if int(sizes.sum()) != num_bytes or int(counts.sum()) != num_spans:
            raise self._inconsistency("its arrays do not match its tracks")
        if (lengths < 1).any() or int(lengths.sum()) > num_blocks:
            raise self._inconsistency(f"it names {lengths.sum()} segments and the log has {num_blocks}")

    def _check_integers(self, name: str, shape: tuple[int, ...], highest: int) -> npt.NDArray[np.int64]:
        array = self.arrays.get(name, _EMPTY)
        if array.dtype != np.int64 or array.shape != shape or (array < 0).any() or (array > highest).any():
            raise self._inconsistency(f"{name} must have integers from 0 to {highest} in the shape {shape}")
        return array

    def _inconsistency(self, why: str) -> DamagedDataError:
        return DamagedDataError(
            f"{self._file}: the files of its generation are inconsistent: {why}; {repair_hint(self._folder)}"
        )


def _append_blank_segment(parts: MemoryParts, track: int, number: int) -> None:
    """Continue a track after a sealed segment that was damaged and skipped."""
    storage, tracks = parts.frames, parts.settings.tracks
    array, env_id = tracks.array_of(track), tracks.env_of(track)
    frame, length = parts.settings.frame.frame_specs[array], storage.frames_per_segment
    blank = FrameStorage(frame, 1, frames_per_segment=length, depths=[parts.settings.layout.depths[array]])
    blank.begin_at(0, number)
    for _ in range(length):
        blank.append(np.zeros(1, np.int32), np.zeros((1, *frame.shape), frame.dtype))
    storage.restore(track, number, blank.segment(0, number))
    storage.evict(env_id, (number + 1) * length, number * length)


def read_frames_per_segment(folder: Path) -> int | None:
    """Return the frames per segment of the memory in ``folder``; ``None`` if there is none."""

    def read(contents: FolderContents) -> int | None:
        newest = contents.newest.whole() if contents.newest else None
        return newest.frames_per_segment if newest and not newest.is_empty else None

    return read_while_written(folder, read)


def read_settings(folder: Path) -> MemorySettings | None:
    """Return the settings of the memory in ``folder``; ``None`` if there is none."""

    def read(contents: FolderContents) -> MemorySettings | None:
        newest = contents.newest.whole() if contents.newest else None
        if newest is None or newest.is_empty:
            return None
        return convert_settings(folder, newest, MemorySettings.from_state)

    return read_while_written(folder, read)


def loading_bytes(
    settings: MemorySettings,
    arrays: Arrays,
    logs: tuple[BlockLogReader, BlockLogReader],
    max_bytes: int | None,
    *,
    in_files: bool,
) -> int:
    """Return about how many bytes a memory takes that is filled from a store: never fewer, at most twice as many.

    ``arrays`` are those of the state file, ``logs`` those of frames and of steps.

    The capacity does not count, since slots take memory only with their first step. With ``max_bytes``, frames beyond
    it are evicted while the memory is filled. With ``in_files``, packed segments stay in their files.
    """
    specs, depths, num_envs = settings.frame.frame_specs, settings.layout.depths, settings.num_envs
    frames = _frame_bytes(settings, arrays, logs[0], in_files=in_files)
    if max_bytes is not None:
        frames = min(frames, max_bytes)
    stacks = num_envs * sum(frame.nbytes * depth for frame, depth in zip(specs, depths, strict=True))
    num_tracks = len(settings.tracks.all)
    num_blocks = sum(map(len, logs))
    state = 2 * sum([array.nbytes for array in arrays.values()]) - arrays[OPEN_SEGMENTS].nbytes  # read, and made of it
    packers = PACKER_FRAMES * sum(frame.nbytes for frame in specs)
    fixed = num_tracks * TRACK_BYTES + num_blocks * BLOCK_BYTES + state + packers
    return frames + steps_bytes(settings, arrays) + stacks + fixed


def steps_bytes(settings: MemorySettings, arrays: Arrays) -> int:
    """Return the bytes of the steps that the arrays of a state file describe, without their frames."""
    assert settings.frames_per_segment is not None
    slot_bytes = slot_record(settings.num_envs, settings.action, settings.extras).itemsize
    num_slots = count_steps(settings, arrays)
    if settings.retention == "random" and "blocks.numbers" in arrays:
        num_slots = arrays["blocks.numbers"].size * settings.frames_per_segment
    num_starts = arrays[EPISODE_KEYS[2]].size if EPISODE_KEYS[2] in arrays else 0
    return num_slots * slot_bytes + 16 * num_starts


def count_steps(settings: MemorySettings, arrays: Arrays) -> int:
    """Return how many steps of a ring the arrays claim, at most the capacity; 0 for anything but such arrays."""
    span = arrays.get(SPAN)
    if span is None or span.shape != (2,) or span.dtype != np.int64:
        return 0
    oldest, next_index = span.tolist()
    return int(min(max(next_index - oldest, 0), settings.capacity))


def _frame_bytes(settings: MemorySettings, arrays: Arrays, log: BlockLogReader, *, in_files: bool) -> int:
    """Return the bytes of all frames that go into memory."""
    length, tracks = settings.frames_per_segment, settings.tracks
    assert length is not None
    raw_bytes = [
        _raw_bytes(frame) if settings.storage == "raw" or frame.is_column else 0 for frame in settings.frame.frame_specs
    ]
    stay_in_files = [
        in_files and (not raw or frame.is_column)
        for raw, frame in zip(raw_bytes, settings.frame.frame_specs, strict=True)
    ]
    positions, sizes = arrays[NEXT_POSITIONS].tolist(), arrays[OPEN_SIZES].tolist()
    sealed = list_sealed_segments(arrays)
    array_of, in_log = split_keys(sealed)[0] // settings.num_envs, log.sizes(sealed)
    total = SEGMENT_BYTES * len(sealed)
    for array, raw in enumerate(raw_bytes):
        if not stay_in_files[array]:
            total += int(np.maximum(in_log[array_of == array], raw * length).sum())
    for track, (position, size) in enumerate(zip(positions, sizes, strict=True)):
        array = tracks.array_of(track)
        if size:
            raw = min(raw_bytes[array] * length, raw_bytes[array] * (position % length) + HUGE_PAGE_BYTES)
            total += max(size, raw if raw_bytes[array] else 0) + 2 * settings.frame.frame_specs[array].nbytes
    return total


def _raw_bytes(frame: FrameSpec) -> int:
    """Return the bytes of a frame that is stored uncompressed."""
    return frame.nbytes // frame.dtype.itemsize if frame.is_scaled else frame.nbytes
