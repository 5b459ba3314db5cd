"""Segments in files are read like those in RAM, and damaged bytes never become frames."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from pathlib import Path

import numpy as np
import pytest

from contracts.storage_contract import PIXELS, StorageContract
from framestow.errors import DamagedDataError, DamagedSegmentError
from framestow.frames.frame_spec import FrameSpec
from framestow.storage.frame_storage import FrameStorage
from oracles.hostile_folders import NO_FILES, Outside, bounded
from oracles.segment_codec import SegmentCodec

FRAMES, ENV_ID = 8, 0  # frames per segment
SHIFT = 5  # bytes before the first segment of a file


def frame_sequence(num_frames: int, seed: int = 0, is_noise: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if is_noise:
        return rng.integers(0, 256, (num_frames, *PIXELS.shape), dtype=np.uint8)
    frames = np.full((num_frames, *PIXELS.shape), seed, np.uint8)
    for position, frame in enumerate(frames):
        frame[rng.integers(30), position % 37 : position % 37 + 3] = rng.integers(256)
    return frames


def filled(frames: np.ndarray, **options) -> FrameStorage:
    storage = FrameStorage(PIXELS, 1, frames_per_segment=FRAMES, **options)
    for frame in frames:
        storage.append(np.zeros(1, np.int32), frame[None])
    return storage


def written(storage: FrameStorage, path: Path) -> list[tuple[int, int]]:
    """Write the sealed segments to a file; return offset and size of each."""
    spans = []
    with path.open("wb") as file:
        file.write(bytes(SHIFT))
        for number in range(storage.open_segment(ENV_ID)):
            segment = storage.segment(ENV_ID, number)
            spans.append((file.tell(), len(segment)))
            file.write(segment)
    return spans


def moved(frames: np.ndarray, path: Path, **options) -> tuple[FrameStorage, list[tuple[int, int]]]:
    storage = filled(frames, **options)
    spans = written(storage, path)
    for number, (offset, size) in enumerate(spans):
        storage.move_to_file(ENV_ID, number, path, offset, size)
    return storage, spans


def restored(frames: np.ndarray, path: Path) -> tuple[FrameStorage, list[tuple[int, int]]]:
    spans = written(filled(frames), path)
    storage = FrameStorage(PIXELS, 1, frames_per_segment=FRAMES)
    for number, (offset, size) in enumerate(spans):
        storage.restore_in_file(ENV_ID, number, path, offset, size, FRAMES)
    return storage, spans


def window(storage, last: int, count: int) -> np.ndarray:
    out = np.full((1, count, *PIXELS.shape), 7, np.uint8)
    storage.windows(np.zeros(1, np.int32), np.array([last]), np.array([count], np.int32), out)
    return out[0]


def num_open_files(path: Path) -> int:
    return sum(os.path.realpath(f"/proc/self/fd/{name}") == str(path) for name in os.listdir("/proc/self/fd"))


class MovesAtOnce(FrameStorage):
    """Move each sealed segment to one of two files, and every fifth to the other file later."""

    def __init__(self, spec: FrameSpec, num_envs: int, **options) -> None:
        super().__init__(spec, num_envs, **options)
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder)
        self._files = [Path(folder, name) for name in ("one", "two")]
        self._moved = [0] * num_envs

    def append(self, env_ids, frames):
        super().append(env_ids, frames)
        for env_id in env_ids.tolist():
            self.move_what_is_sealed(env_id)

    def restore(self, env_id, number, segment):
        super().restore(env_id, number, segment)
        self._moved[env_id] = number
        self.move_what_is_sealed(env_id)

    def move_what_is_sealed(self, env_id):
        for number in range(self._moved[env_id], self.open_segment(env_id)):
            self.put(env_id, number, self._files[0])
            if number % 5 == 4:
                self.put(env_id, number - 3, self._files[1])
        self._moved[env_id] = self.open_segment(env_id)

    def put(self, env_id, number, path):
        try:
            segment = self.segment(env_id, number)
        except IndexError:  # evicted
            return
        with path.open("ab") as file:
            offset = file.tell()
            file.write(segment)
        self.move_to_file(env_id, number, path, offset, len(segment))


class TestSegmentsInFiles(StorageContract):
    make = MovesAtOnce

    @pytest.mark.skip(reason="a snapshot of a file takes no memory")
    def test_evicted_frames_count_until_the_snapshot_stops(self):
        pass


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("make", [moved, restored])
def test_windows_of_segments_in_files_are_those_of_segments_in_ram(tmp_path, make, threads):
    frames = frame_sequence(61)
    storage, _ = make(frames, tmp_path / "log") if make is restored else make(frames, tmp_path / "log", threads=threads)
    stored = storage.stored_positions(ENV_ID)

    for count in (1, 5, 20):
        for last in stored[count - 1 :]:
            np.testing.assert_array_equal(frames[last - count + 1 : last + 1], window(storage, last, count))
    for number in range(len(frames) // FRAMES):
        assert filled(frames).segment(ENV_ID, number) == storage.segment(ENV_ID, number)


def test_a_large_batch_is_read_by_several_threads(tmp_path):
    frames = frame_sequence(400, is_noise=True)
    storage, _ = moved(frames, tmp_path / "log", threads=4)
    lasts = np.random.default_rng(0).integers(4, 400, 1200)
    out = np.empty((1200, 5, *PIXELS.shape), np.uint8)

    storage.windows(np.zeros(1200, np.int32), lasts, np.full(1200, 5, np.int32), out)

    np.testing.assert_array_equal(frames[lasts[:, None] + np.arange(-4, 1)], out)


def test_moving_to_a_file_frees_ram_and_files_are_counted_separately(tmp_path):
    frames = frame_sequence(3000, is_noise=True)
    before = filled(frames).nbytes

    storage, spans = moved(frames, tmp_path / "log")

    assert sum(size for _, size in spans) == storage.disk_nbytes
    assert before["frames"] > 3000 * PIXELS.nbytes > 2 * storage.nbytes["frames"]
    assert filled(frames).disk_nbytes == 0
    storage.evict(ENV_ID, 1600)
    assert sum(size for _, size in spans[200:]) == storage.disk_nbytes


def test_a_snapshot_still_sees_evicted_segments_in_ram_and_in_files(tmp_path):
    frames = frame_sequence(80)
    storage = filled(frames)
    spans = written(storage, tmp_path / "log")
    snapshot = storage.take_snapshot()
    for number, (offset, size) in enumerate(spans[:6]):
        storage.move_to_file(ENV_ID, number, tmp_path / "log", offset, size)
    storage.evict(ENV_ID, 80)
    (tmp_path / "log").unlink()

    out = np.empty((1, 80, *PIXELS.shape), np.uint8)
    snapshot.windows(np.zeros(1, np.int32), np.array([79]), np.array([80], np.int32), out)

    np.testing.assert_array_equal(frames, out[0])


@pytest.mark.parametrize("kind", NO_FILES)
def test_native_code_opens_files_only_and_follows_no_link(kind, tmp_path):
    storage, outside, path = filled(frame_sequence(8)), Outside(tmp_path / "home"), tmp_path / "log"
    segment = storage.segment(ENV_ID, 0)
    outside.plant("second name", path, segment)
    outside.plant(kind, path)

    with bounded(), pytest.raises(DamagedDataError, match=f"^{path}: it is a link, or no file: put the file itself"):
        storage.move_to_file(ENV_ID, 0, path, 0, len(segment))
    with bounded(), pytest.raises(DamagedDataError, match=f"^{path}: it is a link, or no file: put the file itself"):
        FrameStorage(PIXELS, 1, frames_per_segment=FRAMES).restore_in_file(ENV_ID, 0, path, 0, len(segment), FRAMES)

    outside.check()
    np.testing.assert_array_equal(frame_sequence(8), window(storage, 7, 8))


def test_a_file_is_opened_once_and_closed_with_its_last_segment(tmp_path):
    storage, spans = moved(frame_sequence(40), tmp_path / "log")
    other = tmp_path / "other"
    shutil.copy(tmp_path / "log", other)
    snapshot = storage.take_snapshot()

    assert (1, 0) == (num_open_files(tmp_path / "log"), num_open_files(other))
    for number, (offset, size) in enumerate(spans[:3]):
        storage.move_to_file(ENV_ID, number, other, offset, size)
    assert (1, 1) == (num_open_files(tmp_path / "log"), num_open_files(other))
    storage.evict(ENV_ID, 40)
    assert (1, 1) == (num_open_files(tmp_path / "log"), num_open_files(other))
    snapshot.stop()
    assert (0, 0) == (num_open_files(tmp_path / "log"), num_open_files(other))
    assert 0 == storage.disk_nbytes


def test_a_removed_or_replaced_file_is_still_read_unchanged(tmp_path):
    frames, path = frame_sequence(40), tmp_path / "log"
    removed, _ = moved(frames, path)
    path.unlink()
    replaced, _ = moved(frames, path)
    written(filled(frame_sequence(40, seed=1)), tmp_path / "new")
    (tmp_path / "new").replace(path)

    for storage in (removed, replaced):
        np.testing.assert_array_equal(frames, window(storage, 39, 40))


@pytest.mark.parametrize("make", [moved, restored])
def test_every_changed_byte_of_a_segment_in_a_file_is_found(tmp_path, make):
    path, frames = tmp_path / "log", frame_sequence(24)
    storage, spans = make(frames, path)
    offset, size = spans[1]
    content = path.read_bytes()
    fault = f"{path}, offset {offset}: segment 1 of environment 0: "
    for byte in range(size):
        with path.open("r+b") as file:
            file.seek(offset + byte)
            file.write(bytes([content[offset + byte] ^ 1 << byte % 8]))

        with pytest.raises(DamagedSegmentError, match=re.escape(fault)) as raised:
            window(storage, 15, 1)
        with pytest.raises(DamagedSegmentError, match=re.escape(fault)):
            storage.segment(ENV_ID, 1)

        assert (0, 1) == (raised.value.env_id, raised.value.segment)
        np.testing.assert_array_equal(frames[:8], window(storage, 7, 8))
        path.write_bytes(content)
    np.testing.assert_array_equal(frames, window(storage, 23, 24))


@pytest.mark.parametrize("make", [moved, restored])
def test_a_truncated_file_raises_and_its_other_segments_are_read(tmp_path, make):
    path, frames = tmp_path / "log", frame_sequence(40)
    storage, spans = make(frames, path)

    for length in range(path.stat().st_size - 1, -1, -7):
        os.truncate(path, length)
        for number, (offset, size) in enumerate(spans):
            last = number * FRAMES + 5
            if offset + size <= length:
                np.testing.assert_array_equal(frames[last - 2 : last + 1], window(storage, last, 3))
            else:
                with pytest.raises(
                    DamagedDataError, match=f"offset {offset}: segment {number} of environment 0: the file ends"
                ):
                    window(storage, last, 3)


@pytest.mark.parametrize("make", [moved, restored])
def test_a_valid_segment_of_other_frames_at_the_same_offset_is_refused(tmp_path, make):
    path, frames = tmp_path / "log", frame_sequence(24, is_noise=True)  # stored raw, so all segments have the same size
    storage, spans = make(frames, path)
    np.testing.assert_array_equal(frames, window(storage, 23, 24))
    assert 1 == len({size for _, size in spans})

    path.write_bytes(path.read_bytes()[: spans[1][0]] + written_bytes(frame_sequence(16, seed=1, is_noise=True)))

    np.testing.assert_array_equal(frames[:8], window(storage, 7, 8))
    with pytest.raises(DamagedSegmentError, match="segment 1 of environment 0: another segment stands there"):
        window(storage, 15, 1)


def written_bytes(frames: np.ndarray) -> bytes:
    codec = SegmentCodec(PIXELS)
    return b"".join(codec.pack(frames[first : first + FRAMES]) for first in range(0, len(frames), FRAMES))


def test_a_segment_of_other_frames_is_refused_when_it_is_read(tmp_path):
    path = tmp_path / "log"
    longer, other = (
        SegmentCodec(PIXELS).pack(frame_sequence(9)),
        SegmentCodec(FrameSpec((40, 30))).pack(frame_sequence(8).reshape(8, 40, 30)),
    )
    for segment in (longer, other):
        path.write_bytes(segment)
        storage = FrameStorage(PIXELS, 1, frames_per_segment=FRAMES)
        storage.restore_in_file(ENV_ID, 3, path, 0, len(segment), FRAMES)

        with pytest.raises(DamagedSegmentError, match="segment 3 of environment 0: its header belongs to other frames"):
            window(storage, 30, 2)


def test_damage_in_one_window_of_a_batch_names_the_segment_in_any_thread(tmp_path):
    path, frames = tmp_path / "log", frame_sequence(400, is_noise=True)
    storage, spans = moved(frames, path, threads=4)
    with path.open("r+b") as file:
        file.seek(spans[30][0] + 100)
        file.write(b"damage")
    lasts = np.arange(4, 400)
    out = np.empty((len(lasts), 5, *PIXELS.shape), np.uint8)

    with pytest.raises(DamagedSegmentError) as raised:
        storage.windows(np.zeros(len(lasts), np.int32), lasts, np.full(len(lasts), 5, np.int32), out)

    assert 30 == raised.value.segment


@pytest.mark.parametrize("kind", ["sealed", "evicted", "open"])
def test_a_segment_that_cannot_move_to_a_file_is_refused_and_unchanged(tmp_path, kind):
    frames = frame_sequence(44)
    storage = filled(frames)
    spans = written(storage, tmp_path / "log")
    storage.evict(ENV_ID, FRAMES)
    number = {"sealed": 2, "evicted": 0, "open": 5}[kind]

    if kind == "sealed":
        with pytest.raises(
            ValueError, match=f"segment 2 of environment 0 has {spans[2][1]} bytes: it must have as many"
        ):
            storage.move_to_file(ENV_ID, 2, tmp_path / "log", 0, 9)
        with pytest.raises(FileNotFoundError) as raised:
            storage.move_to_file(ENV_ID, 2, tmp_path / "missing", *spans[2])
        assert str(tmp_path / "missing") == raised.value.filename
    else:
        with pytest.raises(IndexError, match=f"segment {number} of environment 0 is not stored"):
            storage.move_to_file(ENV_ID, number, tmp_path / "log", 0, 30)

    assert (0, 0) == (storage.disk_nbytes, num_open_files(tmp_path / "log"))
    np.testing.assert_array_equal(frames[8:], window(storage, 43, 36))


def test_a_segment_that_cannot_be_restored_in_a_file_is_refused_and_changes_nothing(tmp_path):
    storage, spans = restored(frame_sequence(24), tmp_path / "log")

    for number, fault in (
        (2, "segment 2 of environment 0 does not follow"),
        (-1, "segment -1 of environment 0 does not follow"),
    ):
        with pytest.raises(ValueError, match=fault):
            storage.restore_in_file(ENV_ID, number, tmp_path / "log", *spans[0], FRAMES)
    with pytest.raises(ValueError, match="segment 4 of track 0 has 7 frames: only full segments of 8 frames"):
        storage.restore_in_file(ENV_ID, 4, tmp_path / "log", *spans[0], 7)
    with pytest.raises(ValueError, match="segment 4 of environment 0 has 3 bytes: it must have more than 24"):
        storage.restore_in_file(ENV_ID, 4, tmp_path / "log", 0, 3, FRAMES)
    with pytest.raises(FileNotFoundError):
        storage.restore_in_file(ENV_ID, 4, tmp_path / "missing", *spans[0], FRAMES)

    assert (range(24), sum(size for _, size in spans)) == (storage.stored_positions(ENV_ID), storage.disk_nbytes)


def test_appending_after_segments_in_a_file_works_as_after_segments_in_ram(tmp_path):
    frames = frame_sequence(80)
    in_ram = filled(frames)

    storage, spans = restored(frames[:40], tmp_path / "log")
    for frame in frames[40:]:
        storage.append(np.zeros(1, np.int32), frame[None])

    for number in range(10):
        assert in_ram.segment(ENV_ID, number) == storage.segment(ENV_ID, number)
    os.truncate(tmp_path / "log", spans[-1][0])  # the next one cannot be based on it
    damaged, _ = moved(frames[:40], tmp_path / "log")
    os.truncate(tmp_path / "log", spans[-1][0])
    for frame in frames[40:]:
        damaged.append(np.zeros(1, np.int32), frame[None])
    np.testing.assert_array_equal(frames[40:], window(damaged, 79, 40))
