"""``add`` takes a step of one environment or of several: the axes of the observation say which, never their sizes."""

from __future__ import annotations

import contextlib
import itertools
import re

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

from framestow import FrameSpec, ReplayMemory
from framestow.errors import InvalidStepError

SIDE = 6
PICTURE = Box(0, 255, (SIDE, SIDE), np.uint8)
SPACES = {
    "array": PICTURE,
    "Dict with a number": Dict({"camera": PICTURE, "lives": Discrete(6)}),
    "Tuple": Tuple((PICTURE, Box(-1, 1, (3,), np.float32))),
    "stacks": Box(0, 255, (4, 32, 32), np.uint8),
}
ACTIONS = {"Discrete": Discrete(4), "MultiDiscrete": MultiDiscrete([4, 4]), "Box": Box(-9, 9, (2,), np.float32)}
STEPS = {  # whether the observation has the axis of environments, num_envs, env_ids, number of rows
    "one environment": (False, 1, None, 1),
    "one of three": (False, 3, 1, 1),
    "one of three, with its axis": (True, 3, [2], 1),
    "all of one": (True, 1, None, 1),
    "all of two": (True, 2, None, 2),
}
FORMS = ["scalar", "0-d", "one row", "two rows"]
PYTHON = {"bool": bool, "int": int, "float": float}
KINDS = [*PYTHON, "np.bool_", "np.int64", "np.float32", "torch.bool", "torch.int64", "torch.float32"]


def is_taken(argument, form, kind, num_rows):
    """The plain table."""
    has_shape = form == "two rows" if num_rows == 2 else form != "two rows"
    kind = kind.split(".")[-1].rstrip("_0123456789")
    kinds = {
        "terminated": ["bool", "int", "float"],
        "truncated": ["bool", "int", "float"],
        "reward": ["int", "float"],
        "action": ["int"],
        "extra": ["bool", "int", "float"],
    }
    return has_shape and kind in kinds[argument]


def formed(value, form, kind):
    """Return ``value`` (a number, or an array of one action) in a form and a kind."""
    rows = {"scalar": 0, "0-d": 0, "one row": 1, "two rows": 2}[form]
    array = np.array([value] * rows if rows else value)
    library, _, dtype = kind.rpartition(".")
    if library == "torch":
        torch = pytest.importorskip("torch")
        return torch.tensor(array, dtype=getattr(torch, dtype))
    array = array.astype(PYTHON.get(kind, dtype))
    if form == "0-d":
        return array
    return array.tolist() if kind in PYTHON else array[()]


def observation_of(space, num_rows):
    """Return an observation of a space, with an axis of ``num_rows`` unless that is 0."""
    if isinstance(space, Dict):
        return {key: observation_of(part, num_rows) for key, part in space.items()}
    if isinstance(space, Tuple):
        return tuple(observation_of(part, num_rows) for part in space)
    one = np.asarray(space.sample())
    return np.stack([one] * num_rows) if num_rows else one[()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_a_step_is_taken_in_every_form_of_the_table_and_refused_in_every_other(space, kind):
    wrong = []
    for name, (has_axis, num_envs, env_ids, num_rows) in STEPS.items():
        memory = ReplayMemory(500, space, 4, num_envs=num_envs, extras={"extra": np.float32})
        observation = observation_of(space, num_rows if has_axis else 0)
        for argument, form in itertools.product(["action", "reward", "terminated", "truncated", "extra"], FORMS):
            step = {"action": 2, "reward": 0.5, "terminated": False, "truncated": False, "extra": 0.25}
            if num_rows == 2:
                step = {key: [value] * 2 for key, value in step.items()}
            step[argument] = formed(1, form, kind)
            extras, before = {"extra": step.pop("extra")}, len(memory)
            with contextlib.suppress(InvalidStepError):
                memory.add(observation, next_observation=observation, env_ids=env_ids, extras=extras, **step)
            num_stored = len(memory) - before
            if num_stored != num_rows * is_taken(argument, form, kind, num_rows):
                wrong.append((name, argument, form, num_stored))
            elif num_stored:
                batch = memory.get(memory.sampleable_indices()[-num_rows:])
                stored = batch.extras["extra"] if argument == "extra" else getattr(batch, argument)
                wrong += [(name, argument, form, stored.tolist())] * (stored.tolist() != [1] * num_rows)
    assert [] == wrong


@pytest.mark.parametrize("action_space", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("library", ["Python", "NumPy", "torch"])
def test_an_action_of_any_space_needs_no_axis_of_environments(action_space, library):
    action = np.asarray(action_space.sample())
    convert = {"Python": lambda given: given.tolist(), "NumPy": np.asarray, "torch": None}[library]
    convert = convert or pytest.importorskip("torch").as_tensor
    memory = ReplayMemory(10, PICTURE, action_space)
    picture = observation_of(PICTURE, 0)

    memory.add(picture, convert(action), 0, picture, 0, 0)
    memory.add(picture[None], convert(action[None]), [0], picture[None], [0], [0])

    np.testing.assert_array_equal([action, action], memory.get([0, 1]).action)


NO_FLAGS = [0.5, 2, -1, np.nan, [2]]


@pytest.mark.parametrize(
    ("library", "value"),
    [
        *itertools.product(["Python", "NumPy", "torch"], NO_FLAGS),
        *(("Python", value) for value in (None, "False", [None])),
    ],
)
def test_a_flag_that_is_neither_true_nor_false_is_refused_with_its_value(value, library):
    given = value
    if library != "Python":
        given = np.array(value) if library == "NumPy" else pytest.importorskip("torch").tensor(value)
    memory, picture = ReplayMemory(10, PICTURE, 4), observation_of(PICTURE, 0)
    shown = value[0] if value == [2] else value

    message = re.escape(f"truncated is {shown!r}: it must be True or False (1 or 0)")
    with pytest.raises(InvalidStepError, match=message):
        memory.add(picture, 0, 0.0, picture, False, given)
    assert 0 == len(memory)


PICTURES = np.zeros((3, SIDE, SIDE), np.uint8)
WRONG_STEPS = {
    "swapped reward and flag": (
        {},
        {"reward": True},
        "reward is True, of dtype bool: rewards are numbers; convert them, or check the order of the arguments",
    ),
    "a row too many": (
        {},
        {"reward": [0.0, 0.0]},
        "reward has shape (2,): the observation is of one environment, which takes () or (1,); give that of one",
    ),
    "no number of its environment": (
        {"num_envs": 3},
        {},
        "observation has shape (6, 6): it is of one environment, and this memory has 3; give env_ids=i",
    ),
    "two numbers": (
        {"num_envs": 3},
        {"env_ids": [0, 1]},
        "env_ids is [0, 1]: the observation of shape (6, 6) is of one environment; give its number alone",
    ),
    "no environment": ({"num_envs": 3}, {"env_ids": []}, "env_ids is []: the observation of shape (6, 6) is of one"),
    "a next observation with the axis": (
        {},
        {"next_observation": PICTURES[:1]},
        "next_observation has shape (1, 6, 6), of several environments, and observation (6, 6), of one: all arrays",
    ),
    "an axis too few": (
        {},
        {"observation": PICTURES[0, 0]},
        "observation has shape (6,): one environment takes (6, 6), and n environments (n, 6, 6); give observations",
    ),
    "an axis too many": ({}, {"observation": PICTURES[None]}, "observation has shape (1, 3, 6, 6): one environment"),
    "other sides": ({}, {"observation": PICTURES[0, 1:]}, "observation has shape (5, 6): one environment takes (6, 6)"),
    "too many environments": (
        {},
        {"observation": PICTURES, "next_observation": PICTURES},
        "observation has shape (3, 6, 6): 1 environment takes (1, 6, 6); give observations",
    ),
    "an environment that is text": ({}, {"env_ids": "one"}, "env_ids is 'one': it must be a list of environment"),
}


@pytest.mark.parametrize(("settings", "wrong", "message"), WRONG_STEPS.values(), ids=WRONG_STEPS)
def test_a_refused_step_is_named_in_the_shape_that_was_given(settings, wrong, message):
    memory = ReplayMemory(10, PICTURE, 4, **settings)
    step = {"observation": PICTURES[0], "next_observation": PICTURES[1]}
    step |= {"action": 0, "reward": 0.0, "terminated": False, "truncated": False}

    with pytest.raises(InvalidStepError, match=re.escape(message)):
        memory.add(**step | wrong)
    assert 0 == len(memory)


def test_the_part_of_an_observation_that_differs_is_named():
    memory = ReplayMemory(10, {"camera": PICTURE, "joints": FrameSpec((3,))}, 4)
    one, several = (
        {"camera": PICTURES[0], "joints": np.zeros(3, np.uint8)},
        {"camera": PICTURES[0], "joints": PICTURES[:1, 0, :3]},
    )

    message = (
        "next_observation['joints'] has shape (1, 3), of several environments, and observation['camera'] (6, 6), of one"
    )
    with pytest.raises(InvalidStepError, match=re.escape(message)):
        memory.add(one, 0, 0.0, several, False, False)


@pytest.mark.parametrize(
    ("settings", "action_space", "step"),
    [
        ({"num_envs": 3}, Box(-1, 1, (3, 2), np.float32), {"action": np.zeros((3, 2), np.float32)}),
        ({"num_envs": 1}, MultiDiscrete([4, 4, 4]), {"action": [0, 0, 0]}),
        ({"num_envs": 1}, Discrete(4), {"action": [0, 0, 0]}),
    ],
)
def test_the_first_step_of_a_vector_environment_whose_spaces_were_given_names_those_of_one(
    settings, action_space, step
):
    memory = ReplayMemory(10, Box(0, 255, PICTURES.shape, np.uint8), action_space, **settings)
    step |= {"reward": np.zeros(3), "terminated": np.zeros(3, bool), "truncated": np.zeros(3, bool)}

    with pytest.raises(InvalidStepError, match=r"env\.single_observation_space and env\.single_action_space"):
        memory.add(observation=PICTURES, next_observation=PICTURES, **step)


def test_a_vector_environments_action_space_alone_is_named():
    memory = ReplayMemory(10, PICTURE, MultiDiscrete([4, 4, 4]), num_envs=3)
    zeros = np.zeros(3)

    with pytest.raises(InvalidStepError, match=r"actions have shape \(3,\): 3 .*env\.single_action_space"):
        memory.add(PICTURES, np.zeros(3, int), zeros, PICTURES, zeros, zeros)
