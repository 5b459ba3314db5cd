"""Which frames a drop-in takes its observations for; with the libraries, their own buffers say what comes back."""

import re
from itertools import pairwise

import numpy as np
import pytest

from framestow import FrameSpec
from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.integrations.drop_in.paired_steps import PairedSteps


def fed(space, frame_stack=None):
    return PairedSteps(space, frame_stack, capacity=12, action_space=5)


def test_a_stack_that_does_not_divide_the_channels_is_refused():
    with pytest.raises(
        InvalidSettingsError, match=r"frame_stack is 3: observations of shape \(4, 32, 33\) have 4 channels"
    ):
        fed(FrameSpec((4, 32, 33)), frame_stack=3)


def test_a_vector_beside_pictures_may_be_no_stack():
    space = {"camera": FrameSpec((4, 32, 33)), "speed": FrameSpec((3,), np.float32), "wheels": FrameSpec((8,))}

    steps = fed(space, frame_stack=4)

    kept = {array.key: array.frame.shape for array in steps.memory.inner.settings.frame.arrays}
    assert {"camera": (32, 33), "speed": (3,), "wheels": (2,)} == kept


@pytest.mark.parametrize("frame_stack", [None, 1, 3])
def test_colours_are_restored_whatever_frame_stack_takes_them_for(frame_stack):
    steps, nobody = fed(FrameSpec((32, 33, 3)), frame_stack), np.zeros(1, bool)
    black, red = np.zeros((1, 32, 33, 3), np.uint8), np.full((1, 32, 33, 3), [200, 1, 2], np.uint8)
    for now, after in pairwise([black, black, black, red, black]):
        steps.add(now, [0], [0.0], after, nobody, nobody)

    batch = steps.transitions(steps.indices([0, 1, 2, 3], 0))

    np.testing.assert_array_equal(np.concatenate([black, black, black, red]), batch.observation)
    np.testing.assert_array_equal(np.concatenate([black, black, red, black]), batch.next_observation)


@pytest.mark.parametrize(("name", "stored", "asked"), [("capacity", 12, 24), ("n_step", 1, 2), ("discount", 0.9, 0.5)])
def test_a_buffer_of_other_settings_does_not_resume_and_names_the_import(name, stored, asked, tmp_path):
    settings = {"capacity": 12, "action_space": 5, "n_step": 1, "discount": 0.9, "flush_every": None}
    PairedSteps(FrameSpec((4, 4)), directory=tmp_path, **settings).memory.close()

    message = (
        f"{name} is {asked}: the memory in {tmp_path} has {stored}; give the same value, another directory, or a new "
        f"memory: framestow import memory {tmp_path} --to NEW"
    )
    with pytest.raises(IncompatibleError, match=re.escape(message)):
        PairedSteps(FrameSpec((4, 4)), directory=tmp_path, **settings | {name: asked})
