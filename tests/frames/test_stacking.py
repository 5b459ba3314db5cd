"""FrameStacker: stacks of the last frames, and their padding."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import STACK_PADDINGS, FrameStacker


def frames(*values: int) -> tuple[np.ndarray]:
    return (np.array(values, np.uint8).reshape(-1, 1, 1),)


def shown(stacker: FrameStacker) -> list[list[int]]:
    return stacker.stacks()[0][..., 0, 0].tolist()


@pytest.mark.parametrize(("padding", "before"), [("first_frame", 100), ("zeros", 0)])
@pytest.mark.parametrize("stack", [1, 2, 3, 4, 7])
def test_a_stack_is_the_last_frames_padded_by_the_first_one_or_by_zeros(stack, padding, before):
    stacker = FrameStacker(FrameSpec((1, 1)), stack, 1, padding)
    for _ in range(2):  # the ring has frames of the first episode during the second
        stacker.begin(np.array([0]), frames(100))
        for newest in range(20):
            if newest:
                stacker.append(np.array([0]), frames(100 + newest))

            expected = [before] * (stack - 1 - newest) + list(range(100, 101 + newest))[-stack:]
            assert [expected] == shown(stacker)


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.float32, np.float64])
def test_zero_padding_has_the_dtype_of_the_frames(dtype):
    stacker = FrameStacker(FrameSpec((2, 3), dtype), 3, 1, "zeros")
    frame = np.ones((1, 2, 3), dtype)
    stacker.begin(np.array([0]), (frame,))

    assert np.concatenate([np.zeros((2, 2, 3), dtype), frame]).tobytes() == stacker.stacks()[0].tobytes()


def test_an_unknown_padding_is_refused():
    with pytest.raises(ValueError, match="padding is 'edge': it must be 'first_frame' or 'zeros'"):
        FrameStacker(FrameSpec((1, 1)), 3, 1, "edge")


@pytest.mark.parametrize("padding", STACK_PADDINGS)
def test_environments_have_independent_stacks(padding):
    stacker = FrameStacker(FrameSpec((1, 1)), 3, 3, padding)
    stacker.begin(np.array([0, 2]), frames(10, 30))
    stacker.append(np.array([2]), frames(31))
    stacker.append(np.array([2, 0]), frames(32, 11))
    stacker.begin(np.array([0]), frames(50))

    young = [50, 50, 50] if padding == "first_frame" else [0, 0, 50]
    assert [young, [0, 0, 0], [30, 31, 32]] == shown(stacker)


def test_a_returned_stack_does_not_change_later():
    stacker = FrameStacker(FrameSpec((1, 1)), 2, num_envs=1)
    stacker.begin(np.array([0]), frames(1))
    [handed_out] = stacker.stacks()
    stacker.append(np.array([0]), frames(2))

    assert [1, 1] == handed_out[0, :, 0, 0].tolist()
    handed_out[:] = 9
    assert [[1, 2]] == shown(stacker)
