"""A memory in a folder keeps its files and its RAM within its budget."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.prioritized import Prioritized
from oracles.watched_disk import WatchedDisk, as_the_disk

BUDGET = 16 * 2**20


def bytes_in(folder: Path) -> int:
    with os.scandir(folder) as files:  # quicker than pathlib, and it runs after every operation
        return sum(file.stat().st_size for file in files)


@pytest.mark.each_value
@pytest.mark.slow  # a budget has to be filled several times
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("flush_every_steps", [None, 700])
def test_files_and_ram_stay_within_the_budget_at_all_times(retention, flush_every_steps, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (512, 1, 48, 48), np.uint8)  # does not get smaller
    memory = ReplayMemory(
        10**6,
        FrameSpec((48, 48)),
        4,
        stack=4,
        retention=retention,
        max_bytes=BUDGET,
        directory=tmp_path,
        flush_every=None,
    )
    memory.begin(noise[0])
    largest, start = 0, 4_000
    for step in range(25_000):
        memory.append([0], [0.0], [False], [step % 200 == 199], noise[step % 512])
        if step % 200 == 199:
            memory.begin(noise[step % 512])
        if flush_every_steps and step % flush_every_steps == 0:
            memory.flush()
        if step > start and step % 16 == 0:
            largest = max(largest, memory.nbytes + bytes_in(tmp_path))

    assert 0.35 * BUDGET < largest <= BUDGET
    memory.close()


class MeasuringDisk(WatchedDisk):
    """Notes the most bytes that a memory takes in RAM and in its folder at any operation of the disk."""

    def __init__(self, memory: ReplayMemory, folder: Path) -> None:
        self.memory, self.folder, self.largest = memory, folder, 0

    def perform(self, operation, act):
        result = act(operation)
        self.largest = max(self.largest, self.memory.nbytes + bytes_in(self.folder))
        return result


@pytest.mark.each_value
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("num_numbers", [1, 200])
def test_steps_in_files_count_in_the_budget_also_if_their_rewards_change(retention, num_numbers, tmp_path):
    extras = {"state": (np.float32, (num_numbers,))}
    max_bytes = (4 if num_numbers == 1 else 8) * 2**20
    settings = {"directory": tmp_path, "flush_every": None, "max_bytes": max_bytes, "retention": retention}
    memory = ReplayMemory(10**6, FrameSpec((8, 8)), 4, stack=2, num_envs=4, extras=extras, **settings)
    frames, zeros, random = np.zeros((4, 8, 8), np.uint8), np.zeros(4, int), np.random.default_rng(0)
    state = {"state": np.ones((4, num_numbers), np.float32)}
    disk = MeasuringDisk(memory, tmp_path)
    with as_the_disk(disk):
        memory.begin(frames)
        while (oldest := memory.sampleable_indices()[:1]).size == 0 or oldest[0] < 500:
            for step in range(500):
                frames[:, step % 8] = random.integers(0, 256, 8)
                memory.append(zeros, zeros, zeros > 0, zeros > 0, frames, extras=state)
            memory.flush()
        for every in (1, 2, 1, 3):
            indices = memory.sampleable_indices()[::every]
            memory.set_rewards(indices, np.full(len(indices), every))
            memory.flush()
        memory.close()

    assert 0.3 * memory.max_bytes < disk.largest <= memory.max_bytes


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_a_flush_of_many_forgotten_steps_stays_within_the_budget(retention, tmp_path):
    settings = {"directory": tmp_path, "flush_every": None, "max_bytes": 2_500_000, "retention": retention, "seed": 0}
    memory = ReplayMemory(10**6, FrameSpec((2,), np.float32), 4, stack=1, **settings)
    frames = np.random.default_rng(0).random((5_000, 1, 2), np.float32)
    disk = MeasuringDisk(memory, tmp_path)
    with as_the_disk(disk):
        memory.begin(frames[0])
        while (oldest := memory.sampleable_indices()[:1]).size == 0 or oldest[0] == 0:
            for frame in frames:
                memory.append([0], [0.0], [False], [False], frame)
            memory.flush()
        memory.forget(memory.sampleable_indices()[:-5])
        memory.flush()
        memory.close()

    assert disk.largest <= memory.max_bytes


@pytest.fixture
def disk_without_syncs():
    with as_the_disk(WatchedDisk()):
        yield


def sample(memory):
    memory.sample(32)


def switch_the_sampler(memory):
    memory.sampler = Prioritized()


def change_the_newest_step(memory):
    memory.set_rewards(memory.sampleable_indices()[-1:], [1.0])


@pytest.mark.each_value
@pytest.mark.usefixtures("disk_without_syncs")
@pytest.mark.parametrize("change", [sample, switch_the_sampler, change_the_newest_step])
@pytest.mark.parametrize(("retention", "storage"), [("random", "packed"), ("fifo", "raw")])
def test_a_resumed_run_evicts_the_same_transitions_whatever_was_called_before(retention, storage, change, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (512, 1, 16, 16), np.uint8)
    settings = {"retention": retention, "storage": storage, "max_bytes": 3 * 2**20, "frames_per_segment": 20}
    settings |= {"seed": 0, "directory": tmp_path / "one", "flush_every": None}
    memory = ReplayMemory(10**5, FrameSpec((16, 16)), 4, **settings)

    def play(memory, num_steps):
        for step in range(num_steps):
            memory.append([0], [0.0], [False], [False], noise[step % 512])
            yield len(memory)

    memory.begin(noise[0])
    counts = list(play(memory, 5_000))
    assert counts[-1] < 4_900
    change(memory)
    list(play(memory, 10))
    memory.save(tmp_path / "other")
    resumed = ReplayMemory.open(tmp_path / "other", read_only=False, flush_every=None)

    assert list(play(memory, 300)) == list(play(resumed, 300))
    np.testing.assert_array_equal(memory.sampleable_indices(), resumed.sampleable_indices())
    memory.close()
    resumed.close()


@pytest.mark.parametrize("flush_every", [3600.0, None])
def test_files_and_ram_stay_within_the_budget_while_a_flush_writes_what_ram_still_has(flush_every, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (512, 1, 48, 48), np.uint8)
    settings = {"stack": 4, "max_bytes": BUDGET, "directory": tmp_path, "flush_every": flush_every}
    memory = ReplayMemory(10**6, FrameSpec((48, 48)), 4, **settings)
    disk = MeasuringDisk(memory, tmp_path)
    with as_the_disk(disk):
        memory.begin(noise[0])
        for step in range(4500):  # nothing is evicted yet
            memory.append([0], [0.0], [False], [False], noise[step % 512])
        memory.flush()
    memory.close()

    assert len(memory) == 4500
    assert disk.largest <= BUDGET


@pytest.mark.each_pair
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("storage", ["packed", "raw"])
@pytest.mark.parametrize("plain_frames", [0, 300])
def test_a_small_budget_has_room_for_the_open_segments_of_commits(retention, storage, plain_frames, tmp_path):
    noise, plain = (
        np.random.default_rng(0).integers(0, 256, (300, 1, 36, 36), np.uint8),
        np.zeros((1, 36, 36), np.uint8),
    )
    settings = {"retention": retention, "storage": storage, "max_bytes": 5_200_000, "flush_every": None}
    memory = ReplayMemory(10**6, FrameSpec((36, 36)), 4, stack=4, directory=tmp_path, **settings)
    disk = MeasuringDisk(memory, tmp_path)
    with as_the_disk(disk):
        memory.begin(noise[0])
        for step in range(5_000):
            phase = step % (300 + plain_frames)
            memory.append([0], [0.0], [False], [False], noise[phase] if phase < 300 else plain)
            if step % 100 == 0:
                memory.flush()
        memory.close()

    assert len(memory) < 4_900
    assert 0.35 * memory.max_bytes < disk.largest <= memory.max_bytes


def test_old_bytes_in_logs_take_a_small_part_of_a_small_budget(tmp_path):
    random, frame = np.random.default_rng(0), np.zeros((1, 84, 84), np.uint8)
    settings = {"stack": 4, "directory": tmp_path, "max_bytes": 2_700_000, "flush_every": None}
    memory = ReplayMemory(10**6, FrameSpec((84, 84)), 4, **settings)
    disk = MeasuringDisk(memory, tmp_path)
    with as_the_disk(disk):
        memory.begin(frame)
        for _ in range(5_000):
            frame[0, random.integers(84), :48] = random.integers(0, 256, 48)  # the rest is as before
            memory.append([0], [0.0], [False], [False], frame)
        memory.close()

    assert len(memory) < 4_900
    assert disk.largest <= memory.max_bytes
