"""Estimate the memory that loading a store takes, before anything is allocated for it."""

from __future__ import annotations

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.step_fields import slot_record
from framestow.replay.steps.ring_steps import SPAN
from framestow.replay.steps.step_store import EPISODE_KEYS
from framestow.replay.store.format import Arrays
from framestow.replay.store.snapshot import NEXT_POSITIONS, OPEN_SEGMENTS, OPEN_SIZES, iterate_sealed_segments
from framestow.storage.files.block_log_reader import BlockLogReader

TRACK_BYTES, SEGMENT_BYTES, BLOCK_BYTES = 1024, 256, 128  # of the indices: of a track, a segment, a block of a log
HUGE_PAGE_BYTES = 2**21  # an uncompressed segment that is being filled takes pages of this size
PACKER_FRAMES = 6  # working memory of an array's packer


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
    state = 2 * sum(array.nbytes for array in arrays.values()) - arrays[OPEN_SEGMENTS].nbytes  # read, and made of it
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
    total = 0
    for key in iterate_sealed_segments(arrays):
        array = tracks.array_of(key.track)
        total += SEGMENT_BYTES
        if not stay_in_files[array]:
            size = log.find(key).size if key in log else 0
            total += max(size, raw_bytes[array] * length)
    for track, (position, size) in enumerate(zip(positions, sizes, strict=True)):
        array = tracks.array_of(track)
        if size:
            raw = min(raw_bytes[array] * length, raw_bytes[array] * (position % length) + HUGE_PAGE_BYTES)
            total += max(size, raw if raw_bytes[array] else 0) + 2 * settings.frame.frame_specs[array].nbytes
    return total


def _raw_bytes(frame: FrameSpec) -> int:
    """Return the bytes of a frame that is stored uncompressed."""
    return frame.nbytes // frame.dtype.itemsize if frame.is_scaled else frame.nbytes
