"""A memory of noise with an end every 17 steps, which the loaders draw from."""

from __future__ import annotations

import numpy as np

from framestow import FrameSpec, ReplayMemory

SHAPE = (12, 7)


def filled(num_steps: int = 60) -> ReplayMemory:
    memory = ReplayMemory(50, FrameSpec(SHAPE), 4, stack=3, seed=0)
    memory.begin(_frame(0))
    for step in range(1, num_steps):
        append(memory, step)
    return memory


def append(memory: ReplayMemory, step: int) -> None:
    has_ended = step % 17 == 0
    memory.append([step % 4], [step / 8], [has_ended], [False], _frame(step))
    if has_ended:
        memory.begin(_frame(step + 5000))


def _frame(step: int) -> np.ndarray:
    return np.random.default_rng(step).integers(0, 256, (1, *SHAPE), dtype=np.uint8)
