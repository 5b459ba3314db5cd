"""Few Python calls lead from ``save`` to the disk and back, and from ``add`` to the store: a reader can follow them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import framestow
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory

SOURCE = str(Path(framestow.__file__).parent)
MOST_CALLS_OF_A_FIRST_SAVE = 192
MOST_CALLS_OF_A_LOAD = 141  # beside those that build the memory
MOST_CALLS_OF_A_FIRST_ADD = 76


def calls_of(action: Callable[[], object]) -> Counter[str]:
    """Return how often ``action`` enters each function of framestow, comprehensions apart (inlined from 3.12 on)."""
    calls: Counter[str] = Counter()

    def count(frame, event, _argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<"):
            calls[f"{code.co_filename.removeprefix(SOURCE)}:{code.co_firstlineno} {code.co_name}"] += 1

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def new_memory() -> ReplayMemory:
    return ReplayMemory(1_000, FrameSpec((84, 84)), 6, stack=4, num_envs=2)


@pytest.fixture
def memory(tmp_path: Path) -> ReplayMemory:
    memory = new_memory()
    memory.begin(np.zeros((2, 84, 84), np.uint8))
    for step in range(300):
        frames = np.full((2, 84, 84), step % 256, np.uint8)
        memory.append([1, 2], [0.0, 1.0], [False] * 2, [False] * 2, frames)
    memory.save(tmp_path / "before")  # imports what a save needs
    ReplayMemory.load(tmp_path / "before")
    return memory


def test_a_first_save_and_a_load_take_few_calls(memory: ReplayMemory, tmp_path: Path) -> None:
    folder = tmp_path / "memory"

    save = calls_of(lambda: memory.save(folder))
    load = calls_of(lambda: ReplayMemory.load(folder)) - calls_of(new_memory)

    assert save.total() <= MOST_CALLS_OF_A_FIRST_SAVE, save.most_common()
    assert load.total() <= MOST_CALLS_OF_A_LOAD, load.most_common()


def test_the_first_step_of_a_new_memory_takes_few_calls() -> None:
    frames = np.arange(5 * 84 * 84).reshape(84, 84, 5).astype(np.uint8)
    memories = [ReplayMemory(1_000, FrameSpec((84, 84, 4)), 6) for _ in range(2)]
    step = frames[..., :4], 3, 0.5, frames[..., 1:], False, False
    memories[0].add(*step)  # imports what a step needs

    add = calls_of(lambda: memories[1].add(*step))

    assert add.total() <= MOST_CALLS_OF_A_FIRST_ADD, add.most_common()
