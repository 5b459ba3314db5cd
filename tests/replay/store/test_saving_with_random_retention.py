"""Saving and flushing a memory with random eviction: holes, and blocks that move to other files."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.open_store import OpenStore
from framestow.replay.store.writer import StoreWriter
from oracles.store_files import log_file

SHAPE = (8, 8)
NUM_ENVS = 2


def new_memory(**settings) -> ReplayMemory:
    return ReplayMemory(
        1000,
        FrameSpec(SHAPE),
        4,
        num_envs=NUM_ENVS,
        retention="random",
        frames_per_segment=20,
        seed=3,
        **{"stack": 4} | settings,
    )


def play(memory: ReplayMemory, num_steps: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    memory.begin(random.integers(0, 256, (NUM_ENVS, *SHAPE), dtype=np.uint8))
    for _ in range(num_steps):
        frames = random.integers(0, 256, (NUM_ENVS, *SHAPE), dtype=np.uint8)
        going = np.zeros(NUM_ENVS, np.bool_)
        memory.append(random.integers(0, 4, NUM_ENVS), random.random(NUM_ENVS), going, going, frames)


def assert_equal(one: ReplayMemory, other: ReplayMemory) -> None:
    one.inner.parts.check()
    other.inner.parts.check()
    indices = one.sampleable_indices()
    np.testing.assert_array_equal(indices, other.sampleable_indices())
    mine, others = one.get(indices), other.get(indices)
    for name in ("observation", "action", "reward", "discount", "next_observation"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(others, name))


@pytest.mark.parametrize("in_files", [False, True])
def test_a_memory_with_holes_is_restored_and_evicts_the_same_segments(in_files, tmp_path):
    memory = new_memory()
    for step in range(6):
        play(memory, 400, seed=step)
        memory.save(tmp_path / "memory")

    again = ReplayMemory.open(tmp_path / "memory", read_only=False, flush_every=None) if in_files else None
    again = again or ReplayMemory.load(tmp_path / "memory")

    assert_equal(memory, again)
    for target in (memory, again):
        play(target, 700, seed=9)
    assert_equal(memory, again)
    again.close()


def test_logs_stay_small_with_random_eviction(tmp_path):
    memory = new_memory()
    sizes = []
    with StoreWriter(tmp_path / "memory", file_bytes=20_000) as writer:
        writer.continue_from(None)
        for step in range(60):
            play(memory, 150, seed=step)
            writer.commit(memory.inner.parts, ())
            sizes.append(sum(file.stat().st_size for file in (tmp_path / "memory").glob("frames-*.log")))

    live = sum(
        len(memory.inner.frames.segment(track, number))
        for track in range(NUM_ENVS)
        for number in memory.inner.frames.sealed_segments(track).tolist()
    )
    assert max(sizes[20:]) < 3 * live
    assert_equal(memory, ReplayMemory.load(tmp_path / "memory"))


def test_segments_that_move_to_another_file_are_read_there(tmp_path, monkeypatch):
    memory, other = new_memory(), new_memory()
    monkeypatch.setattr("framestow.replay.store.open_store.FILE_BYTES", 20_000)
    directory = OpenStore.create_or_resume(memory.inner.parts, tmp_path / "memory")
    for step in range(40):
        for target in (memory, other):
            play(target, 150, seed=step)
        directory.flush()

    assert memory.report().disk_bytes > 40_000
    assert len(list((tmp_path / "memory").glob("frames-*.log"))) < 12
    assert not log_file(tmp_path / "memory", "frames").exists()
    assert_equal(memory, other)
    directory.close()
