"""Spaces that no single environment has, and spaces that take far more bytes than they need."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import batch_space

from framestow import FrameSpec, ReplayMemory
from framestow.errors import InvalidSettingsError, ObservationWarning


def vector_spaces(*spaces, num_envs=3):
    return [batch_space(space, num_envs) for space in spaces]


PICTURE, JOINTS = Box(0, 255, (32, 32), np.uint8), Box(-1, 1, (5,), np.float32)


@pytest.mark.parametrize("space", [PICTURE, Dict({"camera": PICTURE, "lives": Discrete(4)}), Tuple((PICTURE, JOINTS))])
@pytest.mark.parametrize("settings", [{}, {"stack": 4}])
def test_the_spaces_of_a_vector_environment_are_refused(space, settings):
    message = r"^observation_space is .* and action_space .*: .* 3 .*; .*env\.single_observation_space"
    observation_space, action_space = vector_spaces(space, Discrete(6))

    with pytest.raises(InvalidSettingsError, match=message):
        ReplayMemory(100, observation_space, action_space, num_envs=3, **settings)


ONE_ENVIRONMENT_S_SPACES = {
    "another number of environments": [*vector_spaces(PICTURE, Discrete(6)), {"num_envs": 2}],
    "a single environment": [*vector_spaces(PICTURE, Discrete(6)), {"num_envs": 1}],
    "unequal actions": [*vector_spaces(PICTURE), MultiDiscrete([3, 3, 4]), {"num_envs": 3}],
    "buttons": [*vector_spaces(PICTURE), MultiBinary(3), {"num_envs": 3}],
    "an axis that is named": [*vector_spaces(PICTURE, Discrete(6)), {"num_envs": 3, "stack_axis": 0}],
    "another part": [(batch_space(PICTURE, 3), JOINTS), MultiDiscrete([6] * 3), {"num_envs": 3}],
}


@pytest.mark.parametrize(
    ("observation_space", "action_space", "settings"), ONE_ENVIRONMENT_S_SPACES.values(), ids=ONE_ENVIRONMENT_S_SPACES
)
def test_spaces_that_may_be_those_of_one_environment_build_a_memory(
    observation_space, action_space, settings, tmp_path
):
    memory = ReplayMemory(100, observation_space, action_space, **settings)
    memory.save(tmp_path)
    assert memory.inner.settings == ReplayMemory.load(tmp_path).inner.settings


@pytest.mark.parametrize(
    ("space", "name", "shape"),
    [
        (FrameSpec((7056,), np.float32), "", r"\(84, 84\)"),
        (Box(0, 1, (5000,), np.float64), "", r"\(height, width\)"),
        ({"camera": FrameSpec((4096,), np.float16), "joints": JOINTS}, r"\['camera'\]", r"\(64, 64\)"),
    ],
)
def test_a_long_vector_of_floats_is_warned_of_when_the_memory_is_built_and_at_no_load(space, name, shape, tmp_path):
    with pytest.warns(ObservationWarning, match=f"^observation_space{name} is a vector.*the shape {shape};") as warned:
        memory = ReplayMemory(1_000_000, space, 4)

    memory.save(tmp_path)
    ReplayMemory.load(tmp_path)
    assert [__file__] == [each.filename for each in warned]


@pytest.mark.parametrize(
    ("settings", "full"),
    [({}, "26.3 GiB"), ({"max_bytes": "2G"}, "1.9 GiB")],
)
def test_the_warning_of_a_long_vector_says_what_a_full_memory_takes(settings, full):
    with pytest.warns(ObservationWarning, match=f"27.6 KiB a step, and {full} in a full memory"):
        ReplayMemory(1_000_000, FrameSpec((7056,), np.float32), 4, **settings)


@pytest.mark.parametrize(
    ("space", "settings"),
    [
        (FrameSpec((4095,), np.float32), {}),
        (FrameSpec((7056,)), {}),
        (FrameSpec((84, 84), np.float32), {}),
        (FrameSpec((7056,), np.float32), {"storage": "raw"}),
    ],
)
def test_other_spaces_are_warned_of_nothing(space, settings):
    ReplayMemory(1000, space, 4, **settings)


def test_a_space_of_single_numbers_is_refused_with_a_space_that_takes_them():
    space = Discrete(5)
    with pytest.raises(
        InvalidSettingsError, match=r"^observation_space is Discrete\(5\): its observations are single num"
    ):
        ReplayMemory(100, space, 3)

    memory = ReplayMemory(100, {"state": space}, 3)  # what the message says
    memory.add({"state": 4}, 1, 0.5, {"state": np.int64(2)}, True, False)
    assert memory.sample(1).observation["state"].tolist() == [4]
