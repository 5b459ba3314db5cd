"""What a training calls at every step goes through few Python functions: each takes as long as packing some rows."""

from __future__ import annotations

import numpy as np
import pytest

from framestow import FrameSpec, ReplayMemory
from oracles.python_calls import python_calls

FRAMES = np.arange(8, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4), np.uint8)
STACK = FRAMES[:5, 0][None]
STEP = [3], [0.5], [False], [False]


def called_of(name: str) -> list[str]:
    """The functions of one call, after a first one."""
    memory = ReplayMemory(100, FrameSpec((4, 4)), 4, stack=4, seed=0)
    memory.begin(FRAMES[0])
    memory.append(*STEP, FRAMES[1])
    whole = ReplayMemory(100, FrameSpec((4, 4, 4)), 4, seed=0)
    action, reward, terminated, truncated = STEP
    whole.add(STACK[:, :4], action, reward, STACK[:, 1:], terminated, truncated)
    calls = {
        "begin": lambda: memory.begin(FRAMES[2]),
        "append": lambda: memory.append(*STEP, FRAMES[2]),
        "add": lambda: whole.add(STACK[:, 1:], action, reward, FRAMES[2:6, 0][None], terminated, truncated),
        "sample": lambda: memory.sample(8),
    }
    memory.sample(8)
    return python_calls(calls[name])


@pytest.mark.parametrize(("name", "most"), [("begin", 6), ("append", 6), ("add", 6), ("sample", 9)])
def test_a_call_of_every_step_goes_through_few_functions(name, most):
    called = called_of(name)

    assert len(called) <= most, called
