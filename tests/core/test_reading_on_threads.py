"""Several threads read one batch with the same frames and errors, also after a fork."""

from __future__ import annotations

import os
import struct
import subprocess
import sys

import numpy as np
import pytest

from framestow._core import FrameStore, checksum
from framestow.errors import DamagedDataError

SIDE, NUM_FRAMES, SEGMENT_FRAMES = 84, 120, 16
HEADER_BYTES, CHECKSUM_BYTES = 24, 4
WINDOWS, LENGTH = 400, 5  # 14 MB: at least a MiB for each of 8 threads


def filled_store(threads: int = 1) -> FrameStore:
    """Return two environments of a moving square; the second never seals a segment."""
    packed = FrameStore(2, [(SIDE, SIDE, 1)], SEGMENT_FRAMES, threads=threads)
    for env_id, num_frames in enumerate((NUM_FRAMES, SEGMENT_FRAMES - 1)):
        for position in range(num_frames):
            frame = np.full((1, SIDE, SIDE), 10 * env_id, np.uint8)
            frame[0, position % 70 : position % 70 + 9, env_id : position % 60 + 9] = position
            packed.append(np.array([env_id], np.int32), frame)
    return packed


def read_batch(packed: FrameStore) -> np.ndarray:
    rng = np.random.default_rng(0)
    env_ids = rng.integers(2, size=WINDOWS).astype(np.int32)
    last_positions = rng.integers(LENGTH - 1, np.where(env_ids == 0, NUM_FRAMES, SEGMENT_FRAMES - 1))
    counts = rng.integers(1, LENGTH + 1, WINDOWS).astype(np.int32)
    out = np.full((WINDOWS, LENGTH, SIDE, SIDE), 255, np.uint8)
    packed.windows(env_ids, last_positions, counts, out)
    return out


@pytest.mark.parametrize("threads", [2, 3, 8, 64])
def test_any_number_of_threads_reads_what_one_reads(threads):
    np.testing.assert_array_equal(read_batch(filled_store()), read_batch(filled_store(threads)))


@pytest.mark.each_pair
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("is_raw", [False, True], ids=["packed", "raw"])
@pytest.mark.parametrize("first_byte", [0, 1], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("distance", [None, 1, LENGTH], ids=["one window a row", "overlapping pairs", "pairs"])
def test_a_batch_too_large_for_a_cache_has_the_frames(threads, is_raw, first_byte, distance):
    """It is written past the caches where its frames are aligned, but for the first windows of pairs."""
    rng = np.random.default_rng(1)
    frames = np.zeros((64, SIDE, SIDE), np.uint8)
    frames[:, :9] = rng.integers(0, 256, (64, 9, SIDE))
    store = FrameStore(1, [(SIDE, SIDE, 1, is_raw)], SEGMENT_FRAMES, threads=threads)
    store.append(np.zeros(len(frames), np.int32), frames)
    lasts = rng.integers(LENGTH - 1, len(frames), WINDOWS)
    if distance is not None:  # of the second half's windows, as next observations have it
        lasts = np.minimum(np.concatenate([lasts[: WINDOWS // 2], lasts[: WINDOWS // 2] + distance]), len(frames) - 1)
    memory = np.full(WINDOWS * LENGTH * SIDE * SIDE + 64, 255, np.uint8)
    begin = -memory.ctypes.data % 64 + first_byte
    out = memory[begin : begin + WINDOWS * LENGTH * SIDE * SIDE].reshape(WINDOWS, LENGTH, SIDE, SIDE)
    assert out.nbytes > 2**23

    store.windows(np.zeros(WINDOWS, np.int32), lasts, np.full(WINDOWS, LENGTH, np.int32), out)

    np.testing.assert_array_equal(frames[lasts[:, None] + np.arange(1 - LENGTH, 1)], out)
    assert {255} == set(memory[:begin].tolist()) | set(memory[begin + out.size :].tolist())


@pytest.mark.parametrize("threads", [-1, 0, 65])
def test_an_impossible_number_of_threads_is_refused(threads):
    with pytest.raises(ValueError, match=f"threads is {threads}: it must be 1 to 64"):
        filled_store(threads)


def test_damage_found_by_a_helper_thread_is_raised_in_the_caller():
    threads = 4
    segments = [filled_store().segment(0, number) for number in range(NUM_FRAMES // SEGMENT_FRAMES)]
    packed = FrameStore(2, [(SIDE, SIDE, 1)], SEGMENT_FRAMES, threads=threads)
    for number, segment in enumerate(segments):
        damaged = bytearray(segment)
        if number > 0:  # the first group begins far after the end
            damaged[HEADER_BYTES : HEADER_BYTES + 4] = struct.pack("<I", 2**32 - 1)
        damaged[:CHECKSUM_BYTES] = struct.pack("<I", checksum(damaged[CHECKSUM_BYTES:]))
        packed.restore(0, number, bytes(damaged))
    # All windows except the first few have damaged segments.
    last_positions = np.maximum(np.arange(WINDOWS) - 8, 0) % (NUM_FRAMES - SEGMENT_FRAMES)
    last_positions = np.where(last_positions > 0, last_positions // SEGMENT_FRAMES * SEGMENT_FRAMES, 0)
    ones = np.ones(WINDOWS, np.int32)
    out = np.empty((WINDOWS, LENGTH, SIDE, SIDE), np.uint8)

    with pytest.raises(DamagedDataError, match="group of a segment begins behind"):
        packed.windows(np.zeros(WINDOWS, np.int32), last_positions, ones, out)


FORKING = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")  # the test forks a process with threads on purpose
from test_reading_on_threads import filled_store, read_batch
packed = filled_store(threads=3)
expected = read_batch(packed)
child = os.fork()
same = (read_batch(packed) == expected).all()
if child == 0:
    os._exit(0 if same else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) + (not same))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_reads_on_its_own_threads():
    here = os.path.dirname(__file__)

    ended = subprocess.run([sys.executable, "-c", FORKING], cwd=here, timeout=60, check=False)

    assert ended.returncode == 0
