"""A memory in a folder keeps its files and its RAM within its budget."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory

BUDGET = 16 * 2**20


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
            in_files = sum(path.stat().st_size for path in tmp_path.iterdir())
            largest = max(largest, memory.nbytes + in_files)

    assert 0.35 * BUDGET < largest <= BUDGET
    memory.close()
