"""The storage contract test for each implementation and kind of frame, and segments moved between them."""

from __future__ import annotations

import threading
import time
from functools import partial

import numpy as np
import pytest

from contracts.storage_contract import PIXELS, StorageContract, append_evicting, noise, segment_numbers
from framestow.frames.frame_spec import FrameSpec
from framestow.storage.frame_storage import FrameStorage
from oracles.patience import PATIENCE_S

RawStorage = partial(FrameStorage, storage="raw")


class TestPackedStorage(StorageContract):
    make = FrameStorage


class TestRawStorage(StorageContract):
    make = staticmethod(RawStorage)  # Python 3.14 binds a partial, as a method


class TestPackedPicturesOfOtherDtypes(StorageContract):
    make = FrameStorage
    spec = FrameSpec((30, 40), np.int16)


class TestColumns(StorageContract):
    make = FrameStorage
    spec = FrameSpec((1200,), np.float32)


class TestScaledPixels(StorageContract):
    make = FrameStorage
    spec = FrameSpec((30, 40), np.float32, is_scaled=True)

    def shown(self, pixels, positions):
        return (pixels / np.float64(255)).astype(self.spec.dtype)


class TestScaledPixelsInARawStorage(TestScaledPixels):
    make = staticmethod(RawStorage)  # Python 3.14 binds a partial, as a method
    spec = FrameSpec((30, 40), np.float64, is_scaled=True)


class TestScaledPixelsWithOtherFramesAmongThem(TestScaledPixels):
    spec = FrameSpec((30, 40), np.float16, is_scaled=True)

    def shown(self, pixels, positions):
        frames = super().shown(pixels, positions)
        for frame, position in zip(frames, positions, strict=True):
            if position % 7 == 0 or 200 < position < 290:
                frame[3, position % 40] = 0.3
        return frames


class TestFloatsThatAreNeverScaledPixels(TestScaledPixels):
    def shown(self, pixels, positions):
        return pixels * np.float32(1 / 255) + np.float32(1e-3)


SPECS = {
    "pixels": PIXELS,
    "scaled": FrameSpec((6, 7), np.float32, is_scaled=True),
    "columns": FrameSpec((5,), np.float64),
    "pictures": FrameSpec((6, 7, 3), np.int32),
}


@pytest.mark.parametrize(("source", "target"), [("packed", "raw"), ("raw", "packed")])
@pytest.mark.parametrize("kind", SPECS)
def test_segments_of_one_storage_restore_into_the_other(kind, source, target):
    spec = SPECS[kind]
    storage, restored = FrameStorage(spec, 1, source), FrameStorage(spec, 1, target)
    frames = (np.random.default_rng(0).integers(0, 200, (500, *spec.shape)) / 255).astype(spec.dtype)
    frames[::9] += 1
    for position, frame in enumerate(frames):
        storage.append(np.zeros(1, np.int32), frame[None])
        storage.evict(0, position - 400)

    for number in segment_numbers(storage, 0):
        restored.restore(0, number, storage.segment(0, number))

    assert storage.stored_positions(0) == restored.stored_positions(0)
    assert sum(storage.num_frames.values()) == sum(restored.num_frames.values())
    for last in storage.stored_positions(0):
        out = np.empty((1, 1, *spec.shape), spec.dtype)
        restored.windows(np.zeros(1, np.int32), np.array([last]), np.ones(1, np.int32), out)
        np.testing.assert_array_equal(frames[last], out[0, 0])


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        (FrameSpec((84, 84)), {"packed": 1}),
        (FrameSpec((128,)), {"packed": 1}),
        (FrameSpec((10, 10, 4), np.bool_), {"packed": 1}),
        (FrameSpec((84, 84), np.float32), {"packed": 1}),
        (FrameSpec((84, 84), np.float32, is_scaled=True), {"k/255, as uint8": 1, "other floats, exact": 0}),
        (FrameSpec((7,), np.float32, is_scaled=True), {"raw": 1}),
        (FrameSpec((4,), np.float32), {"raw": 1}),
        (FrameSpec((1,), np.int64), {"raw": 1}),
    ],
)
def test_the_kind_of_frames_decides_how_they_are_stored(spec, counts):
    storage = FrameStorage(spec, 1)
    storage.append(np.zeros(1, np.int32), np.zeros((1, *spec.shape), spec.dtype))

    assert counts == storage.num_frames


@pytest.mark.parametrize("make", [FrameStorage, RawStorage])
def test_eviction_waits_for_a_snapshot_that_keeps_too_much_memory(make):
    storage = make(PIXELS, 1)
    append_evicting(storage, noise(1000), num_kept=1000)
    snapshot = storage.take_snapshot()
    writer = threading.Thread(target=append_evicting, args=(storage, noise(12_000), 1000), daemon=True)
    writer.start()
    before = -1
    while before != (before := storage.stored_positions(0).stop):
        time.sleep(0.3)

    assert writer.is_alive()
    assert sum(storage.nbytes.values()) < 1000 * PIXELS.nbytes + 12 * 2**20
    out = np.empty((1, 1000, *PIXELS.shape), np.uint8)
    snapshot.windows(np.zeros(1, np.int32), np.array([999]), np.array([1000], np.int32), out)
    np.testing.assert_array_equal(noise(1000), out[0])
    snapshot.stop()
    writer.join(PATIENCE_S)
    assert not writer.is_alive()
