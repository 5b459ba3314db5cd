"""Evicting segments in any order frees their bytes: the remaining ones move together and read as before."""

from __future__ import annotations

import numpy as np

from framestow._core import FrameStore

SIDE, FRAMES, NUM_SEGMENTS = 40, 16, 400  # pixels; frames per segment; segments
MIB = 1 << 20


class FilledEnvs:
    """Two environments of noise, which packing cannot shrink."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.frame_sequence = self.random.integers(
            0, 256, (997, SIDE, SIDE), np.uint8
        )  # frame p of environment e is p + 300 e of it
        self.packed = FrameStore(2, [(SIDE, SIDE, 1)], FRAMES)
        self.here: list[tuple[int, int]] = []
        self.num_segments = 0
        for _ in range(NUM_SEGMENTS):
            self.add_segment()

    def frames(self, env_id: int, number: int) -> np.ndarray:
        return self.frame_sequence[
            (np.arange(number * FRAMES, (number + 1) * FRAMES) + 300 * env_id) % len(self.frame_sequence)
        ]

    def add_segment(self) -> None:
        env_id, number = self.num_segments % 2, self.num_segments // 2
        self.packed.append(np.full(FRAMES, env_id, np.int32), self.frames(env_id, number))
        self.here.append((env_id, number))
        self.num_segments += 1

    def drop_any(self) -> None:
        env_id, number = self.here.pop(int(self.random.integers(len(self.here))))
        self.packed.evict(env_id, (number + 1) * FRAMES, number * FRAMES)

    def assert_reads(self, read, here: list[tuple[int, int]]) -> None:
        env_ids, numbers = (np.array(column) for column in zip(*here, strict=True))
        out = np.empty((len(here), FRAMES, SIDE, SIDE), np.uint8)
        lasts = (numbers + 1) * FRAMES - 1
        read(env_ids.astype(np.int32), lasts.astype(np.int64), np.full(len(here), FRAMES, np.int32), out)
        np.testing.assert_array_equal(np.stack([self.frames(*key) for key in here]), out)


def test_bytes_stay_near_the_stored_bytes_while_segments_are_evicted_in_any_order():
    filled = FilledEnvs()
    live = NUM_SEGMENTS * FRAMES * SIDE * SIDE

    largest = 0
    for _ in range(1500):
        filled.drop_any()
        filled.add_segment()
        largest = max(largest, filled.packed.sealed_nbytes)

    # An eighth of the full blocks and one may be dead; the newest, a spare and one being emptied are added.
    assert live < largest < live * 8 / 7 + 4 * MIB
    filled.assert_reads(filled.packed.windows, filled.here)


def test_a_snapshot_sees_the_frames_of_its_start_even_if_they_moved_or_were_evicted_since():
    filled = FilledEnvs()
    for _ in range(300):
        filled.drop_any()
        filled.add_segment()
    before = list(filled.here)

    snapshot = filled.packed.take_snapshot()
    for _ in range(100):
        filled.drop_any()
        filled.add_segment()

    filled.assert_reads(snapshot.windows, before)
    snapshot.stop()
    filled.assert_reads(filled.packed.windows, filled.here)


def test_all_bytes_are_freed_when_all_segments_are_evicted():
    filled = FilledEnvs()
    for _ in range(200):
        filled.drop_any()

    while filled.here:
        filled.drop_any()

    assert filled.packed.sealed_nbytes <= 2 * MIB  # the newest block, and a spare one
