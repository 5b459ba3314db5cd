"""Tests of every frame storage; test modules subclass ``StorageContract`` for each implementation."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from framestow.errors import DamagedDataError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import STACK_PADDINGS, StackPadding
from framestow.storage.frame_storage import FrameSnapshot, FrameStorage
from oracles.patience import PATIENCE_S

PIXELS = FrameSpec((30, 40))
MakeStorage = Callable[..., FrameStorage]


def pixels_of(env_id: int, positions: range) -> np.ndarray:
    """Images that differ by environment and position, and compress."""
    frames = np.full((len(positions), *PIXELS.shape), env_id, np.uint8)
    for frame, position in zip(frames, positions, strict=True):
        frame[position % 30, position % 37 : position % 37 + 3] = 100 + position % 150
    return frames


def noise(num_frames: int) -> np.ndarray:
    """Images that do not compress."""
    return np.random.default_rng(0).integers(0, 256, (num_frames, *PIXELS.shape), dtype=np.uint8)


def segment_numbers(storage: FrameStorage, env_id: int) -> range:
    """Return the range of segment numbers from the oldest stored segment to the open one, evicted ones included."""
    stored, frames = storage.stored_positions(env_id), storage.frames_per_segment
    return range(stored.start // frames, -(-stored.stop // frames))


def append_evicting(storage: FrameStorage, frames: np.ndarray, num_kept: int) -> None:
    """Append to environment 0, and evict all but about the newest ``num_kept`` frames."""
    for frame in frames:
        storage.append(np.array([0], np.int32), frame[None])
        storage.evict(0, storage.stored_positions(0).stop - num_kept)


class StorageContract:
    make: MakeStorage
    spec = PIXELS

    def shown(self, pixels: np.ndarray, positions: range) -> np.ndarray:
        """Frames of ``self.spec`` with ``pixels``, at those positions."""
        return pixels.astype(self.spec.dtype).reshape(-1, *self.spec.shape)

    def frames_of(self, env_id: int, positions: range) -> np.ndarray:
        return self.shown(pixels_of(env_id, positions), positions)

    def fill(self, storage: FrameStorage, env_id: int, positions: range) -> None:
        for frame in self.frames_of(env_id, positions):
            storage.append(np.array([env_id], np.int32), frame[None])

    def read(
        self,
        storage: FrameStorage | FrameSnapshot,
        env_id: int,
        last: int,
        count: int,
        length: int | None = None,
        padding: StackPadding = "first_frame",
    ) -> np.ndarray:
        out = np.full((1, length or count, *self.spec.shape), 255, self.spec.dtype)
        storage.windows(np.array([env_id], np.int32), np.array([last]), np.array([count], np.int32), out, padding)
        return out[0]

    def test_every_window_has_the_appended_frames(self):
        storage = self.make(self.spec, 1)
        self.fill(storage, 0, range(300))
        expected = self.frames_of(0, range(300))

        for last in range(300):
            count = min(last + 1, 1 + last % 6)
            np.testing.assert_array_equal(expected[last - count + 1 : last + 1], self.read(storage, 0, last, count))

    @pytest.mark.parametrize("padding", STACK_PADDINGS)
    def test_a_short_window_is_padded_with_its_first_frame_or_with_zeros(self, padding):
        storage = self.make(self.spec, 1)
        self.fill(storage, 0, range(300))

        for last in range(300):
            count = min(last + 1, 1 + last % 6)
            frames = self.frames_of(0, range(last - count + 1, last + 1))
            before = np.zeros_like(frames[:1]) if padding == "zeros" else frames[:1]
            expected = np.concatenate([before.repeat(6 - count, axis=0), frames])
            assert expected.tobytes() == self.read(storage, 0, last, count, length=6, padding=padding).tobytes()

    @pytest.mark.parametrize("padding", STACK_PADDINGS)
    def test_windows_of_different_lengths_in_one_batch_are_padded_independently(self, padding):
        storage = self.make(self.spec, 1)
        self.fill(storage, 0, range(60))
        counts = np.arange(60, dtype=np.int32) % 5 + 1
        lasts = np.arange(60) // 5 * 5 + counts - 1
        out = np.full((60, 5, *self.spec.shape), 255, self.spec.dtype)

        storage.windows(np.zeros(60, np.int32), lasts, counts, out, padding)

        for row, (last, count) in enumerate(zip(lasts.tolist(), counts.tolist(), strict=True)):
            assert self.read(storage, 0, last, count, 5, padding).tobytes() == out[row].tobytes()

    def test_environments_grow_independently(self):
        storage = self.make(self.spec, 3)
        for env_id, num_frames in enumerate((5, 170, 64)):
            self.fill(storage, env_id, range(num_frames))

        assert [5, 170, 64] == [storage.stored_positions(env_id).stop for env_id in range(3)]
        out = np.empty((3, 2, *self.spec.shape), self.spec.dtype)
        storage.windows(np.array([2, 0, 1], np.int32), np.array([63, 4, 169]), np.full(3, 2, np.int32), out)
        expected = [
            self.frames_of(2, range(62, 64)),
            self.frames_of(0, range(3, 5)),
            self.frames_of(1, range(168, 170)),
        ]
        np.testing.assert_array_equal(np.stack(expected), out)

    def test_appended_frames_are_copied(self):
        storage = self.make(self.spec, 1)
        frames = self.frames_of(0, range(1))
        storage.append(np.array([0], np.int32), frames)
        frames[:] = 77

        np.testing.assert_array_equal(self.frames_of(0, range(1)), self.read(storage, 0, 0, 1))

    def test_evicted_frames_are_refused_and_the_others_stay_stored(self):
        storage = self.make(self.spec, 2)
        for env_id in (0, 1):
            self.fill(storage, env_id, range(900))

        storage.evict(0, 800)

        stored = storage.stored_positions(0)
        assert 0 < stored.start <= 800
        assert range(900) == storage.stored_positions(1)
        with pytest.raises(IndexError, match=str(stored.start)):
            self.read(storage, 0, stored.start, 2)
        for last in (stored.start, 800, 899):
            np.testing.assert_array_equal(self.frames_of(0, range(last, last + 1)), self.read(storage, 0, last, 1))

    def test_evicting_frees_memory(self):
        storage = self.make(self.spec, 1)

        append_evicting(storage, self.shown(noise(6_000), range(6_000)), num_kept=1000)

        # Six times as much was appended: the stored frames and two partly used blocks remain.
        assert sum(storage.nbytes.values()) < 1000 * self.spec.nbytes + 3 * 2**20

    def test_the_open_segment_is_never_evicted(self):
        storage = self.make(self.spec, 1)
        self.fill(storage, 0, range(5))

        storage.evict(0, 5)

        np.testing.assert_array_equal(self.frames_of(0, range(5)), self.read(storage, 0, 4, 5))

    @pytest.mark.parametrize(
        ("env_id", "last", "count"), [(0, 10, 1), (0, 3, 5), (0, -1, 1), (1, 0, 1), (0, 5, 0), (0, 5, 4)]
    )
    def test_a_window_that_is_not_stored_is_refused_before_anything_is_written(self, env_id, last, count):
        storage = self.make(self.spec, 2)
        self.fill(storage, 0, range(10))
        out = np.full((2, 3, *self.spec.shape), 255, self.spec.dtype)

        with pytest.raises(IndexError, match="window 1"):
            storage.windows(np.array([0, env_id], np.int32), np.array([9, last]), np.array([3, count], np.int32), out)

        assert (out == 255).all()

    @pytest.mark.parametrize(("num_frames", "evicted"), [(0, 0), (1, 0), (64, 0), (333, 0), (700, 500)])
    def test_a_storage_restored_from_segments_is_equal_and_accepts_more_frames(self, num_frames, evicted):
        storage, restored = self.make(self.spec, 2), self.make(self.spec, 2)
        self.fill(storage, 1, range(num_frames))
        storage.evict(1, evicted)

        for number in segment_numbers(storage, 1):
            restored.restore(1, number, storage.segment(1, number))
        self.fill(restored, 1, range(num_frames, num_frames + 90))

        stored = range(storage.stored_positions(1).start, num_frames + 90)
        assert stored == restored.stored_positions(1)
        assert storage.frames_per_segment * restored.open_segment(1) <= stored.stop
        for last in stored:
            np.testing.assert_array_equal(self.frames_of(1, range(last, last + 1)), self.read(restored, 1, last, 1))

    def test_bytes_that_are_not_a_segment_are_refused(self):
        storage, restored = self.make(self.spec, 1), self.make(self.spec, 1)
        self.fill(storage, 0, range(10))
        segment = storage.segment(0, 0)

        for offset in range(len(segment)):
            flipped = bytearray(segment)
            flipped[offset] ^= 1
            for damaged in (segment[:offset], bytes(flipped)):
                with pytest.raises(DamagedDataError):
                    restored.restore(0, 0, damaged)
        assert range(0) == restored.stored_positions(0)
        assert {0} == set(restored.num_frames.values())
        restored.restore(0, 0, segment)
        np.testing.assert_array_equal(self.frames_of(0, range(10)), self.read(restored, 0, 9, 10))

    def test_any_sealed_segment_can_be_evicted_and_the_others_are_read_counted_and_saved(self):
        storage, restored = (self.make(self.spec, 1, frames_per_segment=8) for _ in range(2))
        self.fill(storage, 0, range(83))
        storage.evict(0, before=24, first=8)
        storage.evict(0, before=47, first=33)  # segments 32 .. 39 and 40 .. 47 contain stored frames
        storage.evict(0, before=83, first=64)  # the open segment is not evicted
        gone = {*range(8, 24), *range(64, 80)}
        stored = [position for position in range(83) if position not in gone]

        for number in segment_numbers(storage, 0):
            if number * 8 not in gone:
                restored.restore(0, number, storage.segment(0, number))

        assert range(11) == segment_numbers(storage, 0) == segment_numbers(restored, 0)
        for each in (storage, restored):
            assert (range(83), 10) == (each.stored_positions(0), each.open_segment(0))
            assert len(stored) == sum(each.num_frames.values())
            for position in stored:
                expected = self.frames_of(0, range(position, position + 1))
                np.testing.assert_array_equal(expected, self.read(each, 0, position, 1))
            for last, count in ((8, 1), (8, 2), (15, 3), (24, 2), (64, 1), (79, 9), (82, 83)):
                with pytest.raises(IndexError, match="window 0 wants"):
                    self.read(each, 0, last, count)
            for number in (1, 2, 8, 9, 11, -1):
                with pytest.raises(IndexError, match=rf"segment {number} of environment 0 is not (held|stored)"):
                    each.segment(0, number)
        self.fill(restored, 0, range(83, 100))
        np.testing.assert_array_equal(self.frames_of(0, range(80, 100)), self.read(restored, 0, 99, 20))

    def test_only_an_older_snapshot_sees_an_evicted_segment(self):
        storage = self.make(self.spec, 1, frames_per_segment=8)
        self.fill(storage, 0, range(40))
        snapshot = storage.take_snapshot()

        storage.evict(0, before=24, first=8)
        later = storage.take_snapshot()

        np.testing.assert_array_equal(self.frames_of(0, range(40)), self.read(snapshot, 0, 39, 40))
        with pytest.raises(IndexError, match="window 0 wants"):
            self.read(later, 0, 39, 40)

    def test_an_environment_without_segments_continues_at_its_next_position(self):
        storage = self.make(self.spec, 1, frames_per_segment=8)
        self.fill(storage, 0, range(16))

        storage.evict(0, before=16)

        assert (range(16, 16), range(2, 2), 2) == (
            storage.stored_positions(0),
            segment_numbers(storage, 0),
            storage.open_segment(0),
        )
        with pytest.raises(IndexError, match=r"segment 2 of environment 0 is not (held|stored)"):
            storage.segment(0, 2)
        self.fill(storage, 0, range(16, 30))
        np.testing.assert_array_equal(self.frames_of(0, range(16, 30)), self.read(storage, 0, 29, 14))

    def test_sealed_segments_exclude_evicted_segments_and_the_open_one(self):
        storage = self.make(self.spec, 1)
        length = storage.frames_per_segment

        self.fill(storage, 0, range(4 * length + 1))
        storage.evict(0, 2 * length, first=length)

        assert [0, 2, 3] == storage.sealed_segments(0).tolist()
        assert [] == self.make(self.spec, 1).sealed_segments(0).tolist()

    def test_only_an_empty_environment_can_begin_at_a_later_segment(self):
        storage = self.make(self.spec, 2)
        length = storage.frames_per_segment

        storage.begin_at(1, 3)
        self.fill(storage, 1, range(3 * length, 3 * length + 2))

        np.testing.assert_array_equal(
            self.frames_of(1, range(3 * length, 3 * length + 2)), self.read(storage, 1, 3 * length + 1, 2)
        )
        with pytest.raises(ValueError, match="environment 1 cannot begin at segment 5"):
            storage.begin_at(1, 5)

    def test_a_segment_that_does_not_follow_is_refused_and_changes_nothing(self):
        storage, restored = (self.make(self.spec, 1, frames_per_segment=8) for _ in range(2))
        self.fill(storage, 0, range(21))
        restored.restore(0, 1, storage.segment(0, 1))

        for number in (0, 1):
            with pytest.raises(ValueError, match=f"segment {number} of environment 0 does not follow"):
                restored.restore(0, number, storage.segment(0, number))
        restored.restore(0, 2, storage.segment(0, 2))
        with pytest.raises(ValueError, match="nothing after one that is not full"):
            restored.restore(0, 3, storage.segment(0, 0))
        assert range(8, 21) == restored.stored_positions(0)
        np.testing.assert_array_equal(self.frames_of(0, range(8, 21)), self.read(restored, 0, 20, 13))

    def test_evicting_random_segments_for_long_leaks_no_memory(self):
        storage, rng = self.make(self.spec, 1, frames_per_segment=4), np.random.default_rng(0)
        frames, stored, most = self.frames_of(0, range(200)), list(range(50)), []
        self.fill(storage, 0, range(200))
        for round_number in range(1500):
            for frame in frames[:4]:
                storage.append(np.zeros(1, np.int32), frame[None])
            gone = stored.pop(int(rng.integers(len(stored))))
            stored.append(50 + round_number)
            storage.evict(0, before=4 * gone + 4, first=4 * gone)
            if round_number % 500 == 499:
                most.append(sum(storage.nbytes.values()))

        assert 200 == sum(storage.num_frames.values())
        assert max(most) <= 1.15 * most[0] + 2**20  # one partly used block more or less

    def test_a_snapshot_sees_the_frames_stored_at_its_start(self):
        storage = self.make(self.spec, 1)
        self.fill(storage, 0, range(400))
        snapshot = storage.take_snapshot()

        append_evicting(storage, self.frames_of(0, range(400, 900)), num_kept=200)
        later = storage.take_snapshot()

        assert storage.stored_positions(0).start > 256
        np.testing.assert_array_equal(self.frames_of(0, range(400)), self.read(snapshot, 0, 399, 400))
        np.testing.assert_array_equal(self.frames_of(0, range(895, 900)), self.read(later, 0, 899, 5))
        with pytest.raises(IndexError, match="399"):
            self.read(later, 0, 399, 400)

    def test_a_stopped_snapshot_is_refused(self):
        storage = self.make(self.spec, 1)
        self.fill(storage, 0, range(5))
        snapshot = storage.take_snapshot()
        snapshot.stop()
        snapshot.stop()

        with pytest.raises(ValueError, match="stopped"):
            self.read(snapshot, 0, 4, 1)

    @pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "dropped"])
    def test_evicted_frames_count_until_the_snapshot_stops(self, is_stopped):
        storage = self.make(self.spec, 1)
        append_evicting(storage, self.shown(noise(4000), range(4000)), num_kept=4000)
        before = sum(storage.nbytes.values())
        snapshot = storage.take_snapshot()

        storage.evict(0, 3900)
        kept = sum(storage.nbytes.values())
        if is_stopped:
            snapshot.stop()
        del snapshot

        assert kept >= 0.99 * before
        assert sum(storage.nbytes.values()) < 0.75 * kept

    def test_readers_get_correct_frames_during_writes(self):
        storage = self.make(self.spec, 2)
        for env_id in (0, 1):
            self.fill(storage, env_id, range(300))
        failures: list[BaseException] = []
        has_ended = threading.Event()

        def keep_snapshot(seed: int) -> None:
            rng = np.random.default_rng(seed)
            try:
                while not has_ended.is_set():
                    stops = [storage.stored_positions(env_id).stop for env_id in (0, 1)]
                    snapshot = storage.take_snapshot()
                    firsts = [storage.stored_positions(env_id).start for env_id in (0, 1)]
                    for _ in range(20):
                        env_id, count = int(rng.integers(2)), int(rng.integers(1, 7))
                        stored = range(firsts[env_id], stops[env_id])
                        if len(stored) < 10:  # the writer evicted frames between the two calls
                            continue
                        last = stored[
                            [count - 1, len(stored) - 1, int(rng.integers(count, len(stored)))][rng.integers(3)]
                        ]
                        expected = self.frames_of(env_id, range(last - count + 1, last + 1))
                        np.testing.assert_array_equal(expected, self.read(snapshot, env_id, last, count))
                    snapshot.stop()
            except BaseException as failure:
                failures.append(failure)

        readers = [threading.Thread(target=keep_snapshot, args=(seed,), daemon=True) for seed in range(2)]
        for reader in readers:
            reader.start()
        for position in range(300, 1200):
            for env_id in (0, 1):
                self.fill(storage, env_id, range(position, position + 1))
                storage.evict(env_id, position - 250)
        has_ended.set()
        for reader in readers:
            reader.join(PATIENCE_S)

        assert failures == []
        assert not any(reader.is_alive() for reader in readers)
