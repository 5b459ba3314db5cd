"""Stacks of the last frames, and their padding."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import FrameStacker


def frames(*values: int) -> np.ndarray:
    return np.array(values, np.uint8).reshape(-1, 1, 1)


def shown(stacker: FrameStacker) -> list[list[int]]:
    return stacker.stacks()[..., 0, 0].tolist()


@pytest.mark.parametrize("stack", [1, 2, 3, 4, 7])
def test_a_stack_is_the_last_frames_padded_by_the_first_one(stack):
    stacker = FrameStacker(FrameSpec((1, 1)), stack, num_streams=1)
    stacker.begin(np.array([0]), frames(0))
    for newest in range(20):
        if newest:
            stacker.append(np.array([0]), frames(newest))

        assert [[max(0, newest - back) for back in range(stack - 1, -1, -1)]] == shown(stacker)


def test_streams_begin_and_grow_apart():
    stacker = FrameStacker(FrameSpec((1, 1)), 3, num_streams=3)
    stacker.begin(np.array([0, 2]), frames(10, 30))
    stacker.append(np.array([2]), frames(31))
    stacker.append(np.array([2, 0]), frames(32, 11))
    stacker.begin(np.array([0]), frames(50))

    assert [[50, 50, 50], [0, 0, 0], [30, 31, 32]] == shown(stacker)
    assert [True, False, True] == stacker.has_begun.tolist()


def test_a_stack_handed_out_is_the_callers_own():
    stacker = FrameStacker(FrameSpec((1, 1)), 2, num_streams=1)
    stacker.begin(np.array([0]), frames(1))
    handed_out = stacker.stacks()
    stacker.append(np.array([0]), frames(2))

    assert [1, 1] == handed_out[0, :, 0, 0].tolist()
    handed_out[:] = 9
    assert [[1, 2]] == shown(stacker)
