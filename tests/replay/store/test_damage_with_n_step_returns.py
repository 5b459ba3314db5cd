"""Transitions of a damaged store keep their values, even if an n-step return spans several blocks."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.repair import repair_store
from replay.store.test_repair import damage_block

SHAPE = (4, 5)


def played(retention: str) -> ReplayMemory:
    random = np.random.default_rng(0)
    settings = {"stack": 3, "num_envs": 2, "n_step": 5, "retention": retention, "frames_per_segment": 64, "seed": 0}
    memory = ReplayMemory(3000, FrameSpec(SHAPE), 4, **{"stack": 4} | settings)
    memory.begin(random.integers(0, 256, (2, *SHAPE), dtype=np.uint8))
    for _ in range(2500):
        terminated, truncated, cut_off = random.random((3, 2)) < 0.01
        frames = random.integers(0, 256, (2, *SHAPE), dtype=np.uint8)
        memory.append(random.integers(0, 4, 2), random.normal(size=2), terminated, truncated, frames)
        ended = terminated | truncated | cut_off
        if ended.any():
            memory.begin(random.integers(0, 256, (ended.sum(), *SHAPE), dtype=np.uint8), np.flatnonzero(ended))
    return memory


def values_of(memory: ReplayMemory) -> dict[int, tuple]:
    batch = memory.get(memory.sampleable_indices())
    return {
        index: (batch.reward[row], batch.discount[row], batch.terminated[row], batch.next_observation[row].tobytes())
        for row, index in enumerate(batch.index.tolist())
    }


@pytest.mark.each_value
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("log", ["steps", "frames"])
def test_no_return_with_a_damaged_step_or_frame_is_sampled(retention, log, tmp_path):
    memory, whole = played(retention), tmp_path / "whole"
    memory.save(whole)
    before = values_of(memory)

    for number in (1, 0) if retention == "fifo" else (20, 25, 30):  # with stored blocks before them in their tracks
        store = Path(shutil.copytree(whole, tmp_path / f"damaged {number}"))
        damage_block(store, log, 1, number)
        repair_store(store)
        repaired = ReplayMemory.load(store)
        repaired.inner.parts.check()

        after = values_of(repaired)

        assert 0 < len(after) < len(before)
        assert after == {index: before[index] for index in after}
