"""The storage battery over each implementation, and snapshots of one read by the other."""

from __future__ import annotations

import numpy as np
import pytest

from batteries.storage_battery import SPEC, StorageBattery, fill, frames_of, read
from framestow.storage.packed import PackedStorage
from framestow.storage.raw_ring import RawRing


class TestPackedStorage(StorageBattery):
    make = PackedStorage


class TestRawRing(StorageBattery):
    make = RawRing


@pytest.mark.parametrize(("source", "target"), [(PackedStorage, RawRing), (RawRing, PackedStorage)])
def test_segments_of_one_storage_fill_the_other(source, target):
    storage, restored = source(SPEC, 1), target(SPEC, 1)
    fill(storage, 0, range(500))
    storage.evict(0, 400)

    restored.restore(0, storage.held(0).start, list(storage.segments(0)))

    for last in storage.held(0):
        np.testing.assert_array_equal(frames_of(0, range(last, last + 1)), read(restored, 0, last, 1))
