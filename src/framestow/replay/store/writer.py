"""Writes a store: what is new since its last commit, then a manifest that says so."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import FramestowError
from framestow.replay.eviction import evict_unreferenced_frames
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.store.format import (
    FRAMES,
    KIND,
    LOCK,
    STEPS,
    VERSION,
    Manifest,
    checked_manifest,
    manifest_content,
)
from framestow.replay.store.snapshot import Moment, held_runs, state_name, take_moment, write_state
from framestow.replay.timelines.timeline import StepKey
from framestow.storage.files.block_format import BlockKey, BlockPlace
from framestow.storage.files.block_log import FILE_BYTES, BlockLogWriter
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import (
    generations,
    next_generation,
    remove_manifest,
    remove_unfinished,
    write_manifest,
)
from framestow.storage.files.writer_lock import WriterLock

FEW = 32  # blocks that may be copied while the memory waits
MAX_ROUNDS = 16  # where a memory seals faster than the disk writes, it has to wait in the end

Numbers = npt.NDArray[np.int64]  # of sealed blocks of one stream, ascending


class Sealed(NamedTuple):
    """One kind of a memory's sealed blocks: they never change, and are sealed in the order of their numbers."""

    numbers: Callable[[], list[Numbers]]
    """Those that are held, of each stream; asked with the memory's lock held."""
    copy: Callable[[int, int], bytes]
    """The bytes of the block of a stream and number; ``IndexError`` if it is not held."""


class NewBlocks:
    """Brings one log up to what a memory holds, in three calls; what it appended is in ``appended``.

    ``append_sealed`` keeps the memory waiting for a block at a time, ``take_rest``, with the lock held, for the few
    that were sealed since; ``append_rest`` does not.
    """

    def __init__(self, log: BlockLogWriter, sealed: Sealed, lock: RLock) -> None:
        self._log, self._sealed, self._lock = log, sealed, lock
        self._seen: list[int] = []  # by stream: all that are held below this number are in the log
        self._rest: list[tuple[BlockKey, bytes]] = []
        self._held: list[Numbers] = []
        self.appended: list[BlockKey] = []

    def append_sealed(self) -> None:
        """Append what is held, until nearly all of it is in the log."""
        for _ in range(MAX_ROUNDS):
            with self._lock:
                held = self._sealed.numbers()
            lacking = self._lacking(held)
            for key in _keys_of(lacking):
                with self._lock:
                    try:
                        block = self._sealed.copy(*key)
                    except IndexError:
                        continue  # it left meanwhile
                self._append(key, block)
            if sum(map(len, lacking)) <= FEW:
                return

    def take_rest(self) -> list[Numbers]:
        """Copy what was sealed since; hold the memory's lock. Gives all blocks that are held."""
        self._held = self._sealed.numbers()
        self._rest = [(key, self._sealed.copy(*key)) for key in _keys_of(self._lacking(self._held))]
        return self._held

    def append_rest(self) -> None:
        """Append those, and let the log need none but those that are held."""
        for key, block in self._rest:
            self._append(key, block)
        for stream, held in enumerate(self._held):
            unneeded = np.setdiff1d(self._log.numbers(stream), held, assume_unique=True)
            self._log.drop(BlockKey(stream, number) for number in unneeded.tolist())

    def _append(self, key: BlockKey, block: bytes) -> None:
        self._log.append(key, block)
        self.appended.append(key)

    def _lacking(self, held: list[Numbers]) -> list[Numbers]:
        """Those of ``held`` that are not in the log, nor were seen before."""
        if not self._seen:
            self._seen = [0] * len(held)
            new = [np.setdiff1d(held[stream], self._log.numbers(stream), True) for stream in range(len(held))]
        else:
            new = [numbers[np.searchsorted(numbers, seen) :] for numbers, seen in zip(held, self._seen, strict=True)]
        for stream, numbers in enumerate(held):
            if len(numbers):
                self._seen[stream] = int(numbers[-1]) + 1
        return new


def _keys_of(numbers: list[Numbers]) -> Iterator[BlockKey]:
    return (BlockKey(stream, int(number)) for stream, of_stream in enumerate(numbers) for number in of_stream)


_OF_ONE_GENERATION = re.compile(r"state\.\d{6,}(\.repaired)?\.npz")


class StoreWriter:
    """The one writer of a folder, from taking its lock until ``close``.

    ``commit`` writes what the memory holds and the store does not, in three phases, so that the memory is kept waiting
    only for copies of small pieces::

        1. blocks sealed so far     one by one: copied under the memory's lock, appended without it; until few are left
        2. the moment               under the lock: what is small, and copies of the few that were sealed meanwhile
        3. the commit               those appended, logs synced; state file; manifest; then what is unneeded goes

    What leaves the memory between 1 and 2 was written in vain and is not named. Whatever breaks a commit off, at
    whatever line, the next one begins from what the disk says: what was in RAM about the files is not believed then.
    """

    def __init__(self, folder: Path, *, file_bytes: int = FILE_BYTES, files: FileSystem = DISK) -> None:
        files.make_folder(folder)
        self.folder = folder
        self._file_bytes, self._disk = file_bytes, files
        self._lock = WriterLock(folder / LOCK, f"memory {folder}", "close that one, or give another folder")
        self._base: Manifest | None = None  # what the logs go on from
        self._num_frame_streams = 0
        self._attempt = ""  # the commit that was begun last
        self._logs: tuple[BlockLogWriter, BlockLogWriter] | None = None  # frames and steps; none after a failure
        self.generations: dict[int, Manifest] = {}
        """Those that stay until a commit lets them go: the newest, and the older ones that it keeps."""
        self.left_over: dict[Path, int] = {}
        """What a crash had left behind the last commit, and the bytes of it that were cut off or removed."""
        self.new_places: list[BlockKey] = []
        """Segments of frames whose bytes lie somewhere new since whoever asks cleared it."""

    def read_generations(self) -> None:
        """Learn what the folder holds.

        Raises ``DamagedDataError`` naming a manifest that is not as it was written, ``IncompatibleError`` for one of
        another version.
        """
        there, self.generations = generations(self.folder, self._disk), {}
        if there:
            newest = checked_manifest(self.folder, there[-1], self._disk)
            kept = [number for number in newest.kept if number in there]  # others a crash did not get to remove
            self.generations = {number: checked_manifest(self.folder, number, self._disk) for number in kept}
            self.generations[newest.generation] = newest

    @property
    def newest(self) -> Manifest | None:
        """The newest generation, ``None`` while there is none."""
        return self.generations[max(self.generations)] if self.generations else None

    @property
    def file_bytes(self) -> int:
        """Bytes of the logs and of the newest generation's state."""
        state = 0 if self._base is None else int(self._base.state["bytes"])
        return state + sum(log.file_bytes for log in self._logs or ())

    @property
    def pinned(self) -> set[int]:
        """The generations that stay through commits that do not say otherwise."""
        if self._base is None:
            return set()
        return {*self._base.kept, *([self._base.generation] if self._base.is_pinned else [])}

    def with_commit(self, *commits: str) -> Manifest | None:
        """The newest generation that one of ``commits`` made, if it is still there."""
        made = [number for number, manifest in self.generations.items() if manifest.commit in commits]
        return self.generations[max(made)] if made else None

    def begin(self, base: Manifest | None) -> None:
        """Go on from the generation ``base``, which holds what the memory held then; with ``None`` write all anew."""
        self._base = base
        self.left_over |= dict.fromkeys((self.folder / name for name in remove_unfinished(self.folder, self._disk)), 0)
        frames = self._open_log(FRAMES, base)
        try:
            self._logs = frames, self._open_log(STEPS, base)
        except BaseException:
            frames.close()
            raise

    def commit(
        self, parts: MemoryParts, kept: Collection[int], *, is_pinned: bool = False, is_closed: bool = False
    ) -> Manifest:
        """Write a generation, on the disk when this returns; of the older ones those with numbers ``kept`` stay.

        Raises ``OSError`` if the disk refuses; then the newest generation is what it was, or, where only the last sync
        failed, perhaps this one.
        """
        logs, self._logs = self._recovered(), None  # put back when nothing broke it off
        try:
            manifest = self._commit(logs, parts, set(kept), is_pinned, is_closed)
        except BaseException:
            for log in logs:
                log.close()
            with suppress(OSError, FramestowError):  # a full disk gets its room back
                self._tidy(self._recovered())
            raise
        self._logs = logs
        return manifest

    def place(self, key: BlockKey) -> BlockPlace:
        """Where the frames of a sealed segment lie; ``KeyError`` if they are not in the store."""
        return self._recovered()[0].place(key)

    def forget_before(self, generation: int) -> None:
        """Let the generations before ``generation`` go, and what only they need; the newest stays.

        Raises ``FileNotFoundError`` if ``generation`` is not there itself.
        """
        logs = self._recovered()
        self._check_is_there(generation)
        self.generations = {number: one for number, one in self.generations.items() if number >= generation}
        self._tidy(logs)

    def keep_only(self, generation: int) -> None:
        """Go on from ``generation`` (instead of ``begin``) and let all others go, newer ones too.

        Raises ``FileNotFoundError`` if it is not there.
        """
        self._check_is_there(generation)
        self.generations = {generation: self.generations[generation]}
        self.begin(self.generations[generation])
        self._tidy(self._recovered())

    def close(self) -> None:
        """Close the files and let go of the lock. Closing again does nothing."""
        for log in self._logs or ():
            log.close()
        self._logs = None
        self._lock.close()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _check_is_there(self, generation: int) -> None:
        if generation not in self.generations:
            raise FileNotFoundError(
                f"{self.folder}: there is no generation {generation}, only {sorted(self.generations)}; nothing is "
                "forgotten"
            )

    def _open_log(self, name: str, base: Manifest | None) -> BlockLogWriter:
        if base is None:
            return BlockLogWriter.create(self.folder, name, file_bytes=self._file_bytes, files=self._disk)
        kept = [getattr(manifest, name) for manifest in self.generations.values() if manifest is not base]
        state = getattr(base, name)
        log = BlockLogWriter.open(self.folder, name, state, kept, file_bytes=self._file_bytes, files=self._disk)
        self.left_over |= log.left_over
        return log

    def _recovered(self) -> tuple[BlockLogWriter, BlockLogWriter]:
        """The logs; where something broke off, as of the last commit that reached the disk, that one or one before."""
        if self._logs is None:
            self.read_generations()
            self.begin(self.with_commit(self._attempt, self._base.commit if self._base else ""))
            assert self._logs is not None
            frames, streams = self._logs[0], range(self._num_frame_streams)
            self.new_places = [BlockKey(stream, number) for stream in streams for number in frames.numbers(stream)]
        assert self._logs is not None
        return self._logs

    def _commit(
        self,
        logs: tuple[BlockLogWriter, BlockLogWriter],
        parts: MemoryParts,
        kept: set[int],
        is_pinned: bool,
        is_closed: bool,
    ) -> Manifest:
        self._num_frame_streams = parts.settings.num_frame_streams
        moment, segments, new = _copy_over(logs, parts)
        frames, steps = logs
        new += frames.compact()
        steps.compact()
        generation, self._attempt = next_generation(self.folder, self._disk), secrets.token_hex(16)
        manifest = Manifest(
            generation=generation,
            commit=self._attempt,
            memory=moment.memory,
            frames_per_segment=parts.storage.frames_per_segment,
            num_transitions=moment.num_transitions,
            frames=frames.sync(),
            steps=steps.sync(),
            state={},
            kept=sorted(kept & set(self.generations)),
            is_pinned=is_pinned,
            is_closed=is_closed,
        )
        arrays = moment.arrays | held_runs(segments)
        manifest = write_state(self.folder, state_name(generation), manifest, arrays, self._disk)
        content = manifest_content(manifest)
        write_manifest(self.folder, KIND, VERSION, content, generation=generation, files=self._disk)
        self._base = manifest
        self.generations = {number: self.generations[number] for number in manifest.kept} | {generation: manifest}
        self.new_places += new
        self._tidy(logs)
        return manifest

    def _tidy(self, logs: tuple[BlockLogWriter, BlockLogWriter]) -> None:
        """Remove what no generation that stays needs; what resists stays for the next time."""
        stay = self.generations.values()
        with suppress(OSError):
            for number in set(generations(self.folder, self._disk)) - set(self.generations):
                remove_manifest(self.folder, number, self._disk)
            self._disk.sync_folder(self.folder)  # manifests go before what they name
            needed = {manifest.state["name"] for manifest in stay}
            for name in self._disk.names(self.folder):
                if _OF_ONE_GENERATION.fullmatch(name) and name not in needed:
                    self._disk.remove(self.folder / name)
            for log, states in zip(logs, ([one.frames for one in stay], [one.steps for one in stay]), strict=True):
                log.remove_unneeded(states)


def file_bytes(settings: MemorySettings) -> int:
    """Bytes of a log file before the next one begins: a small part of a budget, since files go as a whole."""
    return FILE_BYTES if settings.max_bytes is None else max(2**20, min(FILE_BYTES, settings.max_bytes // 16))


def _copy_over(
    logs: tuple[BlockLogWriter, BlockLogWriter], parts: MemoryParts
) -> tuple[Moment, list[Numbers], list[BlockKey]]:
    """Bring the logs up to what the memory is at one moment.

    Give that, the sealed segments that it holds then, and those that were appended.
    """
    streams, num_streams = range(parts.settings.num_frame_streams), parts.settings.num_envs
    of_frames = Sealed(lambda: [parts.storage.sealed_segments(stream) for stream in streams], parts.storage.segment)
    of_steps = Sealed(
        lambda: _by_stream(parts.timeline.sealed_steps(), num_streams),
        lambda stream, number: parts.timeline.step_block((stream, number)),
    )
    frames, steps = (
        NewBlocks(log, sealed, parts.lock) for log, sealed in zip(logs, (of_frames, of_steps), strict=True)
    )
    frames.append_sealed()
    steps.append_sealed()
    with parts.lock:
        evict_unreferenced_frames(parts.storage, parts.timeline)
        parts.check_segments()
        moment = take_moment(parts)
        segments = frames.take_rest()
        steps.take_rest()
    frames.append_rest()
    steps.append_rest()
    return moment, segments, frames.appended


def _by_stream(keys: list[StepKey], num_streams: int) -> list[Numbers]:
    """The numbers of the blocks of each stream, ascending."""
    streams, numbers = np.array(sorted(keys), np.int64).reshape(-1, 2).T
    return np.split(numbers, np.searchsorted(streams, np.arange(1, num_streams)))
