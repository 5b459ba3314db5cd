"""Copy a memory for a store: its new blocks to the logs, and its small, changing state as arrays.

The state is copied under the memory's lock. Its time does not depend on the number of stored transitions: sealed
segments of frames and sealed blocks of steps never change, and the logs store them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.replay.forked_locks import ForkSafeLock
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.steps.step_stores import AnySteps
from framestow.replay.store.format import Arrays
from framestow.storage.files.block_format import BlockKey, pack_key, pack_keys, split_keys, unpack_keys
from framestow.storage.files.block_log import BlockLogWriter

FEW_BLOCKS = 32  # may be copied while the memory waits
MAX_ROUNDS = 16  # a memory that seals blocks faster than the disk writes waits after these
PackedKeys = npt.NDArray[np.int64]  # of blocks, ascending (``pack_keys``)
NO_VERSIONS: Mapping[tuple[int, int], int] = MappingProxyType({})

# Names of arrays in the state of a commit; they are part of the format.
OPEN_SEGMENTS, OPEN_SIZES = "frames.open_segments", "frames.open_sizes"
VERSIONS = "steps.versions"
NEXT_POSITIONS, SEGMENT_SPANS, SPAN_COUNTS = "frames.next_positions", "frames.runs", "frames.run_counts"


class Snapshot(NamedTuple):
    """A memory without its sealed segments of frames and sealed blocks of steps."""

    memory: dict[str, Any]
    """Settings, sampler and generator from ``MemoryParts.state``."""
    arrays: Arrays
    """Arrays of the step store, of the sampler and of the storage: docs/store-format.md says what each is."""
    num_transitions: int


def update_logs(logs: tuple[BlockLogWriter, BlockLogWriter], parts: MemoryParts) -> tuple[Snapshot, list[BlockKey]]:
    """Append a memory's new blocks to the logs; return a snapshot, and the segments of frames that were appended."""
    storage, steps = parts.frames, parts.steps
    frames = BlockCopier(logs[0], parts.lock, partial(sealed_segments, parts), storage.segment)
    copy_steps = lambda *key: steps.step_block(key)  # noqa: E731
    blocks = BlockCopier(logs[1], parts.lock, partial(sealed_steps, steps), copy_steps, steps.block_versions)
    copiers = frames, blocks
    for copier in copiers:
        copier.append_sealed()
    with parts.lock:
        parts.check_segments()
        for copier in copiers:
            copier.copy_rest()
        snapshot = take_snapshot(parts, frames.stored, blocks.stored)
    for copier in copiers:
        copier.append_rest()
    return snapshot, frames.appended


def sealed_segments(parts: MemoryParts) -> PackedKeys:
    """Return the packed keys of the sealed segments of frames, ascending."""
    numbers = list(map(parts.frames.sealed_segments, parts.settings.tracks.all))
    return pack_keys(np.repeat(np.arange(len(numbers)), list(map(len, numbers))), np.concatenate(numbers))


def sealed_steps(steps: AnySteps) -> PackedKeys:
    """Return the packed keys of the sealed blocks of steps, ascending."""
    tracks, numbers = np.array(steps.list_sealed_steps(), np.int64).reshape(-1, 2).T
    return np.sort(pack_keys(tracks, numbers))


class BlockCopier:
    """Copies the sealed blocks of a memory that a log lacks, in three calls; ``appended`` lists them.

    ``list_keys`` returns the packed keys of the stored blocks, which are sealed in ascending order in each track.
    ``copy`` returns the bytes of a block; it raises ``IndexError`` if the block was evicted. ``versions`` has the
    blocks that were changed after they were sealed: another version is another block. It is read under the lock.

    ``append_sealed`` locks the memory for one block at a time. ``copy_rest``, with the lock held, copies the few blocks
    that were sealed meanwhile. ``append_rest`` needs no lock.
    """

    def __init__(
        self,
        log: BlockLogWriter,
        lock: ForkSafeLock,
        list_keys: Callable[[], PackedKeys],
        copy: Callable[[int, int], bytes],
        versions: Mapping[tuple[int, int], int] = NO_VERSIONS,
    ) -> None:
        self._log, self._lock, self._list_keys, self._copy, self._versions = log, lock, list_keys, copy, versions
        rows = log.table.rows()
        changed = rows.versions > 0
        self._known = rows.keys  # blocks that the log has, or that were listed before, and their versions above 0
        self._listed: dict[tuple[int, int], int] = dict(
            zip(unpack_keys(rows.keys[changed]), rows.versions[changed].tolist(), strict=True)
        )
        # Blocks with their versions, copied under the lock, to be appended without it.
        self._rest: list[tuple[BlockKey, bytes, int]] = []
        self.stored = self._known[:0]  # all blocks that the memory had at the snapshot
        self.appended: list[BlockKey] = []  # what this save wrote, in the order of the log

    def append_sealed(self) -> None:
        """Append the stored blocks until at most ``FEW_BLOCKS`` are missing."""
        for _ in range(MAX_ROUNDS):
            missing = self._list_missing()
            for key in missing:
                with self._lock:
                    try:
                        copied = self._copy_block(key)
                    except IndexError:
                        continue  # evicted meanwhile
                self._append(*copied)
            if len(missing) <= FEW_BLOCKS:
                return

    def copy_rest(self) -> None:
        """Copy the blocks sealed since. The caller holds the memory's lock."""
        self._rest = [self._copy_block(key) for key in self._list_missing()]

    def append_rest(self) -> None:
        """Append the copied blocks, and remove evicted blocks from the log."""
        for copied in self._rest:
            self._append(*copied)
        self._log.remove(unpack_keys(np.setdiff1d(self._log.table.rows().keys, self.stored, assume_unique=True)))

    def _copy_block(self, key: BlockKey) -> tuple[BlockKey, bytes, int]:
        return key, self._copy(*key), self._versions.get(key, 0)

    def _append(self, key: BlockKey, block: bytes, version: int) -> None:
        self._log.append(key, block, version)
        self.appended.append(key)

    def _list_missing(self) -> list[BlockKey]:
        """List the stored blocks; return those that are neither in the log nor were listed before, in their version.

        A block that changes while a save runs is listed again: a commit has bytes and versions of one moment.
        """
        with self._lock:
            self.stored, versions = self._list_keys(), dict(self._versions)
        changed = {key for key, _ in versions.items() ^ self._listed.items()}
        is_known = np.isin(self.stored, self._known, assume_unique=True)
        is_known &= ~np.isin(self.stored, [pack_key(BlockKey(*key)) for key in changed])
        self._known, self._listed = self.stored, versions
        return list(unpack_keys(self.stored[~is_known]))


def take_snapshot(parts: MemoryParts, sealed: PackedKeys, sealed_blocks: PackedKeys) -> Snapshot:
    """Copy the small state of a memory with these sealed segments and blocks of steps. Hold ``parts.lock``."""
    storage, length = parts.frames, parts.frames.frames_per_segment
    positions = [storage.next_position(track) for track in parts.settings.tracks.all]
    open_segments = [
        storage.segment(track, position // length) if position % length else b""
        for track, position in enumerate(positions)
    ]
    memory, sampler_arrays = parts.state()
    step_arrays = {name: np.array(array) for name, array in parts.steps.state().items()}
    arrays = step_arrays | frame_arrays(positions, open_segments, sealed) | sampler_arrays
    versions = [
        (*key, version)
        for key, version in parts.steps.block_versions.items()
        if pack_key(BlockKey(*key)) in sealed_blocks
    ]
    arrays[VERSIONS] = np.array(versions, np.int64).reshape(-1, 3)
    return Snapshot(memory, arrays, len(parts.steps))


def frame_arrays(positions: npt.ArrayLike, open_segments: list[bytes], sealed: PackedKeys) -> Arrays:
    """Return the arrays of frames: next positions and open segments by track, and sealed segments as spans.

    A span has consecutive numbers:

    >>> from framestow.storage.files.block_format import pack_keys
    >>> sealed = pack_keys([0, 0, 0, 0, 1], np.array([3, 4, 5, 9, 7]))
    >>> arrays = frame_arrays([100, 80, 0], [b"a", b"", b""], sealed)
    >>> arrays["frames.runs"].tolist(), arrays["frames.run_counts"].tolist()
    ([[3, 5], [9, 9], [7, 7]], [2, 1, 0])
    """
    breaks = np.flatnonzero(np.diff(sealed) != 1)
    firsts, lasts = np.append(0, breaks + 1)[: len(sealed)], np.append(breaks, -1)[: len(sealed)]
    tracks, numbers = split_keys(sealed[np.stack([firsts, lasts], axis=1)])
    return {
        NEXT_POSITIONS: np.array(positions, np.int64),
        OPEN_SIZES: np.array([len(segment) for segment in open_segments], np.int64),
        OPEN_SEGMENTS: np.frombuffer(b"".join(open_segments), np.uint8),
        SEGMENT_SPANS: numbers,
        SPAN_COUNTS: np.bincount(tracks[:, 0], minlength=len(open_segments)),
    }


def open_segments(arrays: Arrays) -> list[tuple[int, npt.NDArray[np.uint8]]]:
    """Return for each track of frames its next position and its open segment, which is empty if it has none.

    >>> open_segments(frame_arrays([2, 8], [b"a", b""], np.zeros(0, np.int64)))
    [(2, array([97], dtype=uint8)), (8, array([], dtype=uint8))]
    """
    segments = np.split(arrays[OPEN_SEGMENTS], np.cumsum(arrays[OPEN_SIZES])[:-1])
    return list(zip(arrays[NEXT_POSITIONS].tolist(), segments, strict=True))


def list_sealed_segments(arrays: Arrays) -> PackedKeys:
    """Return the packed keys of the sealed segments that a state names, ascending.

    >>> from framestow.storage.files.block_format import pack_keys
    >>> arrays = frame_arrays(
    ...     [100, 80], [b"a", b""], pack_keys([0, 0, 1], np.array([3, 4, 9]))
    ... )
    >>> [tuple(key) for key in unpack_keys(list_sealed_segments(arrays))]
    [(0, 3), (0, 4), (1, 9)]
    """
    tracks = np.repeat(np.arange(len(arrays[SPAN_COUNTS])), arrays[SPAN_COUNTS])
    firsts, lasts = arrays[SEGMENT_SPANS].T
    lengths = lasts - firsts + 1
    before = np.cumsum(lengths) - lengths  # segments of the spans before
    numbers = np.arange(lengths.sum()) + np.repeat(firsts - before, lengths)
    return pack_keys(np.repeat(tracks, lengths), numbers)
