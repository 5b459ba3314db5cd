"""KeyedStorage: a storage per array, with the same positions in all of them."""

from __future__ import annotations

import numpy as np
import pytest

from batteries.storage_battery import segment_numbers
from framestow.errors import DamagedSegmentError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import ObservationSpec, observation_spec
from framestow.storage.frame_storage import StorageInFiles
from framestow.storage.keyed_storage import KeyedStorage
from framestow.storage.storages import make_storage, usual_frames_per_segment
from oracles.ctrl_c import ctrl_c_at_line

SPACE = {
    "camera": FrameSpec((6, 7)),
    "depth": FrameSpec((4, 5), np.float32),
    "pose": FrameSpec((3,), np.float64),
    "seen": FrameSpec((5, 4), np.float32, is_scaled=True),
}
CAMERA, DEPTH, POSE, SEEN = range(4)  # the leaves, by key


def storage_of(
    num_streams: int, name: str = "packed", frames_per_segment: int = 8, step_bytes: int = 0
) -> KeyedStorage:
    spec = observation_spec(SPACE)
    storage = make_storage(name, spec, num_streams, frames_per_segment=frames_per_segment, step_bytes=step_bytes)
    assert isinstance(storage, KeyedStorage)
    return storage


def frames_of(stream: int, positions: range) -> tuple[np.ndarray, ...]:
    """Frames by leaf, stream and position; every third scaled frame is not k / 255."""
    parts = [np.stack([frame_of(leaf, stream, position) for position in positions]) for leaf in range(len(SPACE))]
    return tuple(parts)


def frame_of(leaf: int, stream: int, position: int) -> np.ndarray:
    spec = list(SPACE.values())[leaf]
    frame = np.random.default_rng((leaf, stream, position)).integers(0, 256, spec.shape).astype(spec.dtype)
    return frame if leaf != SEEN else frame / np.float32(255) + np.float32(1e-3 * (position % 3 == 0))


def fill(storage: KeyedStorage, stream: int, positions: range) -> None:
    for position in positions:
        storage.append(np.array([stream], np.int32), frames_of(stream, range(position, position + 1)))


def read(storage: KeyedStorage, stream: int, last: int, count: int) -> tuple[np.ndarray, ...]:
    spec = observation_spec(SPACE)
    out = spec.empty(1, count)
    storage.windows(np.array([stream], np.int32), np.array([last]), np.array([count], np.int32), out)
    return tuple(part[0] for part in out)


def assert_stored(storage: KeyedStorage, stream: int, positions: range) -> None:
    stored = read(storage, stream, positions[-1], len(positions))
    for expected, actual in zip(frames_of(stream, positions), stored, strict=True):
        np.testing.assert_array_equal(expected, actual)


@pytest.mark.parametrize("name", ["packed", "raw"])
def test_segments_of_each_leaf_are_addressed_by_separate_stream_numbers(name):
    storage, restored = storage_of(2, name), storage_of(2, name)
    fill(storage, 1, range(50))
    storage.evict(1, 20)

    for leaf in (CAMERA, DEPTH, POSE, SEEN):
        of_leaf = leaf * 2 + 1
        assert [2, 3, 4, 5] == storage.sealed_segments(of_leaf).tolist()
        for number in segment_numbers(storage, of_leaf):
            restored.restore(of_leaf, number, storage.segment(of_leaf, number))
    fill(restored, 1, range(50, 60))

    assert range(16, 60) == restored.stored_positions(1)
    assert_stored(restored, 1, range(16, 60))
    assert [] == restored.sealed_segments(DEPTH * 2).tolist()
    assert {"camera": 44, "depth": 44, "pose": 44, "seen": 44} == summed_by_key(restored.num_frames)


def summed_by_key(counts: dict[str, int]) -> dict[str, int]:
    keys = {name.partition(",")[0] for name in counts}
    return {key: sum(count for name, count in counts.items() if name.startswith(key)) for key in sorted(keys)}


def test_ctrl_c_at_any_line_of_an_append_leaves_all_leaves_with_the_same_frames():
    number, is_interrupted, outcomes = 0, True, set()
    while is_interrupted:
        number += 1
        storage = storage_of(2)
        for position in range(7):
            storage.append(np.arange(2, dtype=np.int32), pair_of(position))
        try:
            with ctrl_c_at_line(number, packages=("framestow/storage",)):
                storage.append(np.arange(2, dtype=np.int32), pair_of(7))
            is_interrupted = False
        except KeyboardInterrupt:
            for stream in (0, 1):
                stops = {storage.stored_positions(leaf * 2 + stream).stop for leaf in range(4)}
                assert len(stops) == 1
                outcomes |= stops
                assert_stored(storage, stream, range(stops.pop()))

    assert {7, 8} == outcomes


def pair_of(position: int) -> tuple[np.ndarray, ...]:
    both = (frames_of(stream, range(position, position + 1)) for stream in (0, 1))
    return tuple(np.concatenate(of_leaf) for of_leaf in zip(*both, strict=True))


def test_an_older_reading_still_sees_evicted_frames_of_all_leaves():
    storage = storage_of(1)
    fill(storage, 0, range(40))
    reading = storage.start_reading()

    storage.evict(0, 24)
    out = observation_spec(SPACE).empty(1, 40)
    reading.windows(np.zeros(1, np.int32), np.array([39]), np.array([40], np.int32), out)
    reading.stop()

    for expected, actual in zip(frames_of(0, range(40)), out, strict=True):
        np.testing.assert_array_equal(expected, actual[0])
    assert [range(24, 40)] * 4 == [storage.stored_positions(leaf) for leaf in range(4)]
    with pytest.raises(IndexError):
        read(storage, 0, 23, 1)


def test_images_can_be_in_files_and_vectors_and_scaled_floats_stay_in_ram(tmp_path):
    storage = storage_of(3)
    fill(storage, 2, range(16))
    of_depth = DEPTH * 3 + 2
    segment = storage.segment(of_depth, 1)
    path = tmp_path / "segments"
    path.write_bytes(segment)

    storage.move_to_file(of_depth, 1, path, 0, len(segment))

    assert isinstance(storage, StorageInFiles)
    assert [True, True, False, False] == [storage.supports_files(leaf * 3 + 2) for leaf in range(4)]
    assert len(segment) == storage.disk_nbytes
    assert_stored(storage, 2, range(16))
    with pytest.raises(ValueError, match="segments of pose cannot be in files"):
        storage.move_to_file(POSE * 3 + 2, 1, path, 0, len(segment))
    path.write_bytes(segment[:-1] + bytes([segment[-1] ^ 1]))
    with pytest.raises(DamagedSegmentError) as caught:
        read(storage, 2, 15, 2)
    assert (2, 1) == (caught.value.stream, caught.value.segment)


def test_the_step_of_a_frame_is_charged_once_and_all_leaves_are_counted():
    plain, charging = storage_of(1), storage_of(1, step_bytes=1000)
    for storage in (plain, charging):
        fill(storage, 0, range(64))

    assert 64 * 1000 == charging.charged_bytes - plain.charged_bytes
    assert plain.charged_bytes >= sum(plain.nbytes.values()) == sum(plain.nbytes_by_key.values())


def test_segments_have_the_best_length_for_the_largest_leaf():
    largest = FrameSpec((480, 640, 3))
    spec = observation_spec({"a": FrameSpec((84, 84)), "b": largest, "c": FrameSpec((1,), np.int64)})

    assert isinstance(spec, ObservationSpec)
    assert usual_frames_per_segment(largest) == usual_frames_per_segment(spec)
    assert usual_frames_per_segment(largest) == make_storage("packed", spec, 1).frames_per_segment
