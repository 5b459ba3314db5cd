"""A memory says its settings, and a folder's memory with other settings is refused by the argument that differs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

from framestow import FrameSpec, ReplayMemory
from framestow.errors import IncompatibleError

PICTURE = Box(0, 255, (4, 32, 32), np.uint8)
SETTINGS = {
    "capacity": 5000,
    "observation_space": PICTURE,
    "action_space": Discrete(6),
    "num_envs": 2,
    "n_step": 3,
    "discount": 0.9,
    "seed": 7,
    "retention": "random",
    "storage": "packed",
    "max_bytes": 10**8,
}
KNOWN = [*SETTINGS, "stack", "directory"]


def test_a_memory_says_every_setting_as_it_was_given(tmp_path):
    with ReplayMemory(**SETTINGS, directory=tmp_path) as memory:
        assert SETTINGS | {"stack": 4, "directory": tmp_path.resolve()} == {
            name: getattr(memory, name) for name in KNOWN
        }
        assert memory.observation_space is PICTURE


@pytest.mark.parametrize("name", KNOWN)
def test_no_setting_can_be_changed(name):
    memory = ReplayMemory(**SETTINGS)
    with pytest.raises(AttributeError):
        setattr(memory, name, 1)


def test_the_defaults_are_said_too():
    memory = ReplayMemory(100, FrameSpec((84, 84)), np.int64(4), stack=3)
    said = {name: getattr(memory, name) for name in KNOWN if name != "seed"}
    assert said == {
        "capacity": 100,
        "observation_space": FrameSpec((84, 84)),
        "action_space": 4,
        "stack": 3,
        "num_envs": 1,
        "n_step": 1,
        "discount": 0.99,
        "retention": "fifo",
        "storage": "packed",
        "max_bytes": None,
        "directory": None,
    }


SPACES = {
    "Box": PICTURE,
    "Dict": Dict({"camera": PICTURE, "lives": Discrete(5), "arm": Dict({"joints": Box(-1, 1, (7,), np.float32)})}),
    "Tuple": Tuple((Box(0, 1, (40, 40), np.float32), Discrete(3))),
    "specs": {"camera": FrameSpec((64, 64, 3)), "joints": FrameSpec((7,), np.float32)},
}
ACTIONS = {
    "Discrete": (Discrete(6), 6),
    "another start": (Discrete(6, start=-2), None),
    "MultiDiscrete": (MultiDiscrete([3, 4]), None),
    "Box": (Box(-1, 1, (7,), np.float32), None),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize(("action_space", "loaded_as"), ACTIONS.values(), ids=ACTIONS)
def test_the_spaces_of_a_loaded_memory_build_an_equal_one(space, action_space, loaded_as, tmp_path):
    memory = ReplayMemory(100, space, action_space)
    memory.save(tmp_path)
    loaded = ReplayMemory.load(tmp_path)

    again = ReplayMemory(100, loaded.observation_space, loaded.action_space)
    again.save(tmp_path / "again")

    assert memory.inner.settings == again.inner.settings
    if loaded_as is not None:
        assert loaded_as == loaded.action_space
    if space is SPACES["specs"]:
        assert space == loaded.observation_space


@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("seed", [None, 3])
def test_the_seed_that_was_drawn_gives_the_same_draws_again(seed, retention):
    memory = ReplayMemory(400, FrameSpec((2, 2)), 4, stack=1, seed=seed, retention=retention, frames_per_segment=8)
    again = ReplayMemory(
        400, FrameSpec((2, 2)), 4, stack=1, seed=memory.seed, retention=retention, frames_per_segment=8
    )
    for one in (memory, again):
        one.begin(np.zeros((1, 2, 2), np.uint8))
        for step in range(900):
            one.append([step % 4], [0.0], [False], [False], np.full((1, 2, 2), step % 256, np.uint8))

    assert memory.sample(64).index.tolist() == again.sample(64).index.tolist()
    assert memory.sampleable_indices().tolist() == again.sampleable_indices().tolist()
    assert seed in (None, memory.seed)


def test_the_seed_of_a_loaded_generator_is_not_known(tmp_path):
    ReplayMemory(100, PICTURE, 4, seed=3).save(tmp_path)
    assert ReplayMemory.load(tmp_path).seed is None


GIVEN = {"capacity": 100, "observation_space": PICTURE, "action_space": Discrete(6)}
OTHERS = {
    "action_space": ({"action_space": 4}, "4", "6"),
    "observation_space": (
        {"observation_space": Box(0, 255, (4, 40, 40), np.uint8)},
        repr(FrameSpec((4, 40, 40))),
        repr(FrameSpec((4, 32, 32))),
    ),
    "observation_space and stack": (
        {"observation_space": Box(0, 255, (32, 32), np.uint8), "stack": 4},
        repr(FrameSpec((32, 32))),
        repr(FrameSpec((4, 32, 32))),
    ),
    "stack": ({"stack": 2}, "2", "None"),
    "stack_axis": ({"stack_axis": "none"}, "'none'", "(0, 4)"),
    "num_envs": ({"num_envs": 2}, "2", "1"),
    "extras": ({"extras": {"log_prob": np.float32}}, "'log_prob float32'", "'none'"),
}


@pytest.mark.parametrize(("case", "others"), OTHERS.items(), ids=OTHERS)
def test_a_folders_memory_with_other_settings_is_refused_by_the_argument_and_both_values(case, others, tmp_path):
    changed, given, stored = others
    with ReplayMemory(**GIVEN, directory=tmp_path):
        pass

    message = f"^{case.split()[0]} is {re.escape(given)}: the memory in .* has {re.escape(stored)}; give the same value"
    with pytest.raises(IncompatibleError, match=message):
        ReplayMemory(**GIVEN | changed, directory=tmp_path)
