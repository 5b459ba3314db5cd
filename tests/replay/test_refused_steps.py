"""Bad input gets a clear error before anything is stored."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framestow.errors import InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.list_memory import ListMemory
from oracles.numbered_steps import numbered_memory

SHAPE = (4, 5)
GOOD = {
    "actions": np.array([0, 3]),
    "rewards": np.array([0.0, 1.0]),
    "terminated": np.array([False, False]),
    "truncated": np.array([False, True]),
    "frames": np.full((2, *SHAPE), 9, np.uint8),
    "env_ids": [2, 0],
}
BAD = {
    "a frame of another shape": (
        {"frames": np.zeros((2, 5, 4), np.uint8)},
        "frames have shape (2, 5, 4): 2 environments take (2, 4, 5); give one frame",
    ),
    "a stack instead of a frame": ({"frames": np.zeros((2, 4, *SHAPE), np.uint8)}, "(not a stack)"),
    "float frames": (
        {"frames": np.zeros((2, *SHAPE), np.float32)},
        "dtype float32: this memory stores uint8 and never",
    ),
    "signed frames": ({"frames": np.zeros((2, *SHAPE), np.int8)}, "never casts"),
    "an environment that does not exist": ({"env_ids": [0, 3]}, "this memory has environments 0 to 2"),
    "a negative environment": ({"env_ids": [0, -1]}, "this memory has environments 0 to 2"),
    "an environment beyond 32 bits": ({"env_ids": [0, 2**32]}, "this memory has environments 0 to 2"),
    "an environment named twice": ({"env_ids": [1, 1]}, "give each number once"),
    "a mask for environments": ({"env_ids": [True, False]}, "flatnonzero(mask)"),
    "a NaN reward": ({"rewards": [0.0, np.nan]}, "reward is nan at row 1"),
    "an infinite reward": ({"rewards": [np.inf, 0.0]}, "reward is inf at row 0"),
    "a reward beyond float32": ({"rewards": [3.5e38, 0.0]}, "reward is 3.5e+38 at row 0"),
    "a reward of True": ({"rewards": [True, False]}, "dtype bool"),
    "rewards of shape (n, 1)": ({"rewards": [[0.0], [1.0]]}, "rewards have shape (2, 1)"),
    "an action out of range": ({"actions": [0, 4]}, "action is 4 at row 1: actions run from 0 to 3"),
    "a negative action": ({"actions": [-1, 0]}, "action is -1 at row 0"),
    "an action beyond int64": ({"actions": [2**63, 2**63]}, "action is 9223372036854775808 at row 0"),
    "an action of True": ({"actions": [True, False]}, "actions have dtype bool"),
    "a fractional action": ({"actions": [0.0, 1.0]}, "actions have dtype float64"),
    "too many actions": ({"actions": [0, 1, 2]}, "actions have shape (3,)"),
    "flags that are numbers": ({"terminated": [0, 1]}, "terminated has shape (2,) and dtype int64"),
    "flags of another shape": ({"truncated": np.zeros((2, 1), bool)}, "truncated has shape (2, 1)"),
}


@pytest.mark.parametrize(("storage", "form"), [("packed", np.asarray), ("raw", list)], ids=["packed", "raw, lists"])
@pytest.mark.parametrize("case", BAD)
def test_a_refused_step_names_the_value_and_stores_nothing(case, storage, form):
    memory = ReplayMemory(20, FrameSpec(SHAPE), 4, stack=4, num_envs=3, storage=storage, discount=0.9)
    oracle = ListMemory(20, 3, 4, 0.9)
    for target in (memory, oracle):
        target.begin(np.zeros((3, *SHAPE), np.uint8), [0, 1, 2])
        target.append([1, 2, 3], [1.0, 2.0, 3.0], *np.zeros((2, 3), bool), np.ones((3, *SHAPE), np.uint8), [0, 1, 2])
    wrong, message = BAD[case]

    with pytest.raises(InvalidStepError, match=re.escape(message)):
        memory.append(**{**GOOD, **{name: form(values) for name, values in wrong.items()}})

    assert_memory_is_what_the_oracle_holds(memory, oracle)
    memory.append(**GOOD)
    oracle.append(**GOOD)
    assert_memory_is_what_the_oracle_holds(memory, oracle)


@pytest.mark.parametrize(
    ("frames", "message"),
    [(np.zeros(SHAPE, np.uint8), "frames have shape (4, 5)"), (np.zeros((1, *SHAPE)), "frames have dtype float64")],
)
def test_a_refused_begin_names_the_value(frames, message):
    memory = ReplayMemory(20, FrameSpec(SHAPE), 4, stack=4)

    with pytest.raises(InvalidStepError, match=re.escape(message)):
        memory.begin(frames)


@pytest.mark.parametrize(
    ("space", "stack", "way_out"),
    [
        ((4, 32, 40), None, "give whole stacks, or build the memory for frames of shape (32, 40) with stack=4, and"),
        (
            (32, 40),
            4,
            "give whole stacks, leave out stack= (it stacks frames of that space), or give single frames to be",
        ),
    ],
    ids=["of stacks", "of frames"],
)
def test_a_frame_where_a_stack_belongs_is_told_how_frames_are_given(space, stack, way_out):
    memory, frame = ReplayMemory(20, FrameSpec(space), 4, stack=stack), np.zeros((32, 40), np.uint8)

    takes = "one environment takes (4, 32, 40), and n environments (n, 4, 32, 40)"
    with pytest.raises(InvalidStepError, match=re.escape(f"observation has shape (32, 40): {takes}; {way_out}")):
        memory.add(frame, 0, 0.0, frame, False, False)

    assert len(memory) == 0


@pytest.mark.parametrize("is_dict", [False, True])
def test_add_without_a_next_observation_at_an_end_says_to_give_the_last_one(is_dict):
    observation, space = np.zeros(SHAPE, np.uint8), FrameSpec(SHAPE)
    memory = ReplayMemory(10, {"camera": space} if is_dict else space, 4)

    with pytest.raises(
        InvalidStepError, match=r"^next_observation is None: .*; give the last one that reset or step returned$"
    ):
        memory.add({"camera": observation} if is_dict else observation, 1, 0.5, None, True, False)

    assert len(memory) == 0


def test_append_without_a_frame_at_an_end_says_to_give_the_last_one():
    memory = ReplayMemory(10, FrameSpec(SHAPE), 4, stack=4)
    memory.begin(np.zeros((1, *SHAPE), np.uint8))

    with pytest.raises(InvalidStepError, match=r"^frames is None: .*; give the last one that reset or step returned$"):
        memory.append([1], [0.5], [True], [False], None)

    assert len(memory) == 0


def test_there_is_no_observation_before_an_environment_begins_an_episode(tmp_path):
    memory = numbered_memory(10, num_envs=2)
    for _ in range(2):
        with pytest.raises(InvalidStepError, match=r"no environment has begun an episode: .*; call begin\(...\) with"):
            memory.observations()

    memory.begin(np.full((1, 2, 3), 7, np.uint8), env_ids=[1])

    assert [0, 7] == memory.observations()[:, -1, 0, 0].tolist()
    memory.save(tmp_path)
    memory.clear()
    for later in (memory, ReplayMemory.load(tmp_path)):
        assert [0, 7] == later.observations()[:, -1, 0, 0].tolist()
