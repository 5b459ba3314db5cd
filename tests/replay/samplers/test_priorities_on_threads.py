"""One thread writes, others draw, and others tell priorities, all at once."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from framestow import FrameSpec, Prioritized, ReplayMemory
from oracles.patience import PATIENCE_S

CAPACITY, NUM_ENVS, NUM_STEPS = 500, 4, 1500
NUM_DRAWN = 300  # different transitions, before it ends
ERROR = 0.25  # the only priority of all updates


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_a_writer_samplers_and_updaters_at_once_leave_each_transition_its_priority(retention):
    memory = ReplayMemory(
        CAPACITY,
        FrameSpec((2, 2)),
        4,
        stack=2,
        num_envs=NUM_ENVS,
        n_step=2,
        retention=retention,
        frames_per_segment=8,
        sampler=Prioritized(alpha=1.0, beta=1.0, epsilon=0.0),
        seed=0,
    )
    frames = np.zeros((NUM_ENVS, 2, 2), np.uint8)
    memory.begin(frames)
    write(memory, frames, 20)
    failures: list[BaseException] = []
    drawn: list[int] = []
    has_ended = threading.Event()

    def learn() -> None:
        try:
            while not has_ended.is_set():
                batch = memory.sample(32)
                assert set(batch.weight.tolist()) <= {1.0, ERROR}
                memory.update_priorities(batch.index, np.full(32, -ERROR))
                drawn.append(int(batch.index[16]))
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=learn, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    write(memory, frames, NUM_STEPS)
    while len(set(drawn)) < NUM_DRAWN and not failures:
        write(memory, frames, 50)
    has_ended.set()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert not failures
    memory.inner.parts.check()
    _, arrays = memory.inner.parts.notified_sampler.state()
    indices = np.concatenate([np.arange(first, first + count) for first, count in arrays["sampler.runs"].tolist()])
    assert memory.sampleable_indices().tolist() == indices.tolist()
    assert {1.0, ERROR} >= set(arrays["sampler.weights"].tolist())
    assert len(memory) > 100


def write(memory: ReplayMemory, frames: np.ndarray, num_steps: int) -> None:
    random = np.random.default_rng(num_steps)
    nothing = np.zeros(NUM_ENVS, np.bool_)
    actions, rewards = np.zeros(NUM_ENVS, np.int64), np.zeros(NUM_ENVS)
    for _ in range(num_steps):
        truncated = random.random(NUM_ENVS) < 0.05
        memory.append(actions, rewards, nothing, truncated, frames)
        if truncated.any():
            memory.begin(frames[truncated], np.flatnonzero(truncated))
