"""A memory that is written by one thread and sampled by others at the same time."""

from __future__ import annotations

import threading

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory
from oracles.numbered_steps import SHAPE

NUM_STEPS = 4000


def assert_consecutive(batch: Batch) -> None:
    """Every frame carries its step in all its bytes, so a torn or mixed window cannot look right."""
    windows = np.concatenate([batch.observation, batch.next_observation[:, -1:]], axis=1)
    steps = windows.reshape(len(batch), 4, -1).astype(int)
    assert (steps == steps[:, :, :1]).all()
    assert ((steps[:, 1:, 0] - steps[:, :-1, 0]) % 251 == 1).all()
    assert (batch.action == steps[:, 2, 0]).all()


def test_samples_stay_whole_while_another_thread_appends_and_evicts():
    memory = ReplayMemory(500, FrameSpec(SHAPE), 251, stack=3, seed=0)
    failures: list[BaseException] = []
    has_ended = threading.Event()

    def frame(step: int) -> np.ndarray:
        return np.full((1, *SHAPE), step % 251, np.uint8)

    memory.begin(frame(0))
    for step in range(2):  # until no window is padded
        memory.append([step], [0.0], [False], [False], frame(step + 1))

    def read() -> None:
        try:
            while not has_ended.is_set():
                batch = memory.sample(16)
                if batch.index.min() >= 2:
                    assert_consecutive(batch)
        except BaseException as failure:
            failures.append(failure)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for step in range(2, NUM_STEPS):
        memory.append([step % 251], [0.0], [False], [False], frame(step + 1))
    has_ended.set()
    for reader in readers:
        reader.join(timeout=10)

    assert failures == []
    assert not any(reader.is_alive() for reader in readers)
