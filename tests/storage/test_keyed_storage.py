"""Observations of several arrays: all arrays have the same positions."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.storage_contract import segment_numbers
from framestow.errors import DamagedSegmentError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import observation_spec
from framestow.storage.frame_storage import FrameStorage, usual_frames_per_segment

SPACE = {
    "camera": FrameSpec((6, 7)),
    "depth": FrameSpec((4, 5), np.float32),
    "pose": FrameSpec((3,), np.float64),
    "seen": FrameSpec((5, 4), np.float32, is_scaled=True),
}
CAMERA, DEPTH, POSE, SEEN = range(4)  # the arrays, by key


def storage_of(num_envs: int, name: str = "packed", frames_per_segment: int = 8, step_bytes: int = 0) -> FrameStorage:
    spec = observation_spec(SPACE)
    return FrameStorage(spec, num_envs, name, frames_per_segment=frames_per_segment, step_bytes=step_bytes)


def frames_of(env_id: int, positions: range) -> tuple[np.ndarray, ...]:
    """Frames by array, environment and position; every third scaled frame is not k / 255."""
    parts = [np.stack([frame_of(array, env_id, position) for position in positions]) for array in range(len(SPACE))]
    return tuple(parts)


def frame_of(array: int, env_id: int, position: int) -> np.ndarray:
    spec = list(SPACE.values())[array]
    frame = np.random.default_rng((array, env_id, position)).integers(0, 256, spec.shape).astype(spec.dtype)
    return frame if array != SEEN else frame / np.float32(255) + np.float32(1e-3 * (position % 3 == 0))


def fill(storage: FrameStorage, env_id: int, positions: range) -> None:
    for position in positions:
        storage.append(np.array([env_id], np.int32), frames_of(env_id, range(position, position + 1)))


def read(storage: FrameStorage, env_id: int, last: int, count: int) -> tuple[np.ndarray, ...]:
    spec = observation_spec(SPACE)
    out = tuple(frame.empty(1, count) for frame in spec.frame_specs)
    storage.windows(np.array([env_id], np.int32), np.array([last]), np.array([count], np.int32), out)
    return tuple(part[0] for part in out)


def assert_stored(storage: FrameStorage, env_id: int, positions: range) -> None:
    stored = read(storage, env_id, positions[-1], len(positions))
    for expected, actual in zip(frames_of(env_id, positions), stored, strict=True):
        np.testing.assert_array_equal(expected, actual)


@pytest.mark.parametrize("name", ["packed", "raw"])
def test_segments_of_each_array_are_addressed_by_separate_tracks(name):
    storage, restored = storage_of(2, name), storage_of(2, name)
    fill(storage, 1, range(50))
    storage.evict(1, 20)

    for array in (CAMERA, DEPTH, POSE, SEEN):
        track = array * 2 + 1
        assert [2, 3, 4, 5] == storage.sealed_segments(track).tolist()
        for number in segment_numbers(storage, track):
            restored.restore(track, number, storage.segment(track, number))
    fill(restored, 1, range(50, 60))

    assert range(16, 60) == restored.stored_positions(1)
    assert_stored(restored, 1, range(16, 60))
    assert [] == restored.sealed_segments(DEPTH * 2).tolist()
    assert {"camera": 44, "depth": 44, "pose": 44, "seen": 44} == summed_by_key(restored.num_frames)


def summed_by_key(counts: dict[str, int]) -> dict[str, int]:
    keys = {name.partition(",")[0] for name in counts}
    return {key: sum(count for name, count in counts.items() if name.startswith(key)) for key in sorted(keys)}


def test_frames_that_do_not_fit_one_array_change_no_array():
    storage = storage_of(1)
    fill(storage, 0, range(3))
    frames = frames_of(0, range(3, 4))

    for wrong in (frames[:3], (*frames[:3], frames[3][:, :2]), frames[0], (*frames[:3], None)):
        with pytest.raises((TypeError, ValueError), match="frames "):
            storage.append(np.zeros(1, np.int32), wrong)

    assert [range(3)] * 4 == [storage.stored_positions(array) for array in range(4)]


def test_an_older_snapshot_still_sees_evicted_frames_of_all_arrays():
    storage = storage_of(1)
    fill(storage, 0, range(40))
    snapshot = storage.take_snapshot()

    storage.evict(0, 24)
    out = tuple(frame.empty(1, 40) for frame in observation_spec(SPACE).frame_specs)
    snapshot.windows(np.zeros(1, np.int32), np.array([39]), np.array([40], np.int32), out)
    snapshot.stop()

    for expected, actual in zip(frames_of(0, range(40)), out, strict=True):
        np.testing.assert_array_equal(expected, actual[0])
    assert [range(24, 40)] * 4 == [storage.stored_positions(array) for array in range(4)]
    with pytest.raises(IndexError):
        read(storage, 0, 23, 1)


@pytest.mark.parametrize("name", ["packed", "raw"])
def test_segments_of_all_arrays_but_raw_images_can_be_in_files(tmp_path, name):
    storage, restored = storage_of(3, name), storage_of(3, name)
    fill(storage, 2, range(16))
    path, sizes, charged = tmp_path / "segments", [], storage.charged_bytes
    for array in range(4):
        segment = storage.segment(array * 3 + 2, 1)
        path.write_bytes(path.read_bytes() + segment if path.exists() else segment)
        sizes.append(len(segment))

    are_in_files = [storage.supports_files(array * 3 + 2) for array in range(4)]
    for array, (size, is_in_file) in enumerate(zip(sizes, are_in_files, strict=True)):
        place = (array * 3 + 2, 1, path, sum(sizes[:array]), size)
        if is_in_file:
            storage.move_to_file(*place)
            restored.restore_in_file(*place, 8)
        else:
            restored.restore(array * 3 + 2, 1, storage.segment(array * 3 + 2, 1))

    assert [name == "packed", name == "packed", True, name == "packed"] == are_in_files
    assert sum(size for size, is_in_file in zip(sizes, are_in_files, strict=True) if is_in_file) == storage.disk_nbytes
    assert charged == storage.charged_bytes
    assert_stored(storage, 2, range(16))
    assert_stored(restored, 2, range(8, 16))
    assert storage.num_frames["seen, other floats, exact"] == 6
    assert restored.num_frames["seen, other floats, exact"] == 3
    with pytest.raises(ValueError, match="segment 0 of environment 2 has "):
        storage.move_to_file(POSE * 3 + 2, 0, path, 0, 30)
    content = path.read_bytes()
    at = sum(sizes[:POSE]) + 30
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    for each in (storage, restored):
        with pytest.raises(DamagedSegmentError) as caught:
            read(each, 2, 15, 2)
        assert (2, 1) == (caught.value.env_id, caught.value.segment)


def test_the_step_of_a_frame_is_charged_once_and_all_arrays_are_counted():
    plain, charging = storage_of(1), storage_of(1, step_bytes=1000)
    for storage in (plain, charging):
        fill(storage, 0, range(64))

    assert 64 * 1000 == charging.charged_bytes - plain.charged_bytes
    assert plain.charged_bytes >= sum(plain.nbytes.values()) == sum(plain.nbytes_by_key.values())


def test_segments_have_the_best_length_for_the_largest_leaf():
    largest = FrameSpec((480, 640, 3))
    spec = observation_spec({"a": FrameSpec((84, 84)), "b": largest, "c": FrameSpec((1,), np.int64)})

    assert usual_frames_per_segment(observation_spec(largest)) == usual_frames_per_segment(spec)
    assert usual_frames_per_segment(observation_spec(largest)) == FrameStorage(spec, 1).frames_per_segment
