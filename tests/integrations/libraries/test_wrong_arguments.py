"""Each argument of a drop-in is refused by name, value and rule where it is given, before anything is stored.

The tables of Tianshou and TorchRL are in ``test_tianshou.py`` and ``test_torchrl_seams.py``.
"""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.integrations import classic, cleanrl
from framestow.integrations import gymnasium as wrappers
from framestow.integrations import stable_baselines3 as sb3
from oracles.wrong_values import Call, Made, assert_wrong_values_are_refused, each_argument

SHAPE = (4, 6, 5)
NAN = float("nan")
PICTURES, ACTIONS = Box(0, 255, SHAPE, np.uint8), Discrete(4)
VECTOR = Box(-1, 1, (2,), np.float32)
GOALS = Dict({"observation": VECTOR, "achieved_goal": VECTOR, "desired_goal": VECTOR})
ROWS = {
    "buffer_size": 10,
    "observation_space": PICTURES,
    "action_space": ACTIONS,
    "device": "cpu",
    "n_envs": 1,
    "optimize_memory_usage": False,
    "handle_timeout_termination": True,
    "frame_stack": None,
    "threads": 1,
    "storage": "packed",
    "directory": None,
    "flush_every": None,
    "max_bytes": None,
}
# An array has a shape and a dtype, which is all that CleanRL's buffer reads of a space.
WHERE_TAKES = {"directory": "None", "flush_every": "None 2.5", "frame_stack": "None"}
A_FOLDER = {"directory": "'a'"}
ROWS_TAKE = {"optimize_memory_usage": "True", "handle_timeout_termination": "True", "max_bytes": "None", **WHERE_TAKES}
ROWS_REFUSE = {
    "buffer_size": [-5, 1e6],
    "observation_space": [(84, 84), {"camera": PICTURES}, Tuple([PICTURES]), Dict({"camera": Dict({"a": PICTURES})})],
    "action_space": [4],
}
STEP = {
    "obs": np.zeros((1, *SHAPE), np.uint8),
    "next_obs": np.zeros((1, *SHAPE), np.uint8),
    "action": np.array([1]),
    "reward": np.array([0.5]),
    "done": np.array([False]),
    "infos": [{}],
}
# The originals take numbers of one environment without an axis, and booleans as rewards.
STEP_TAKES = {"action": "0 [1]", "reward": "0 -1 2.5 True [1]", "done": "0 True [1]"}
STEP_REFUSES = {
    "obs": [np.zeros(SHAPE[1:], np.uint8), np.zeros((2, *SHAPE), np.uint8)],
    "action": [4, np.zeros(2, int)],
    "done": [2, 0.5, "False", np.zeros(2, bool)],
    "infos": [[{}, {}], {}],
}


def filled(kind, num_rows=3):
    buffer = kind(**ROWS)
    for _ in range(num_rows):
        buffer.add(**STEP)
    return buffer


def prioritized(num_steps=8):
    buffer = cleanrl.PrioritizedReplayBuffer(**PRIORITIZED)
    for number in range(num_steps):
        stacks = [
            np.arange(first, first + 4, dtype=np.uint8)[:, None, None].repeat(6, 1).repeat(5, 2)
            for first in (number, number + 1)
        ]
        buffer.add(stacks[0], 1, 0.5, stacks[1], False)
    return buffer


def sampled_with(beta):
    buffer = prioritized()
    buffer.beta = beta
    buffer.sample(2)


PRIORITIZED = {
    "capacity": 10,
    "obs_shape": SHAPE,
    "device": "cpu",
    "n_step": 3,
    "gamma": 0.9,
    "alpha": 0.6,
    "beta": 0.4,
    "eps": 1e-6,
    "num_envs": 1,
    "frame_stack": None,
    "threads": 1,
    "storage": "packed",
    "directory": None,
    "flush_every": None,
}
BERKELEY = {"size": 10, "frame_history_len": 4, "lander": False, "storage": "packed", "threads": 1, "seed": 0}
FRAME = np.zeros((6, 5, 1), np.uint8)


def berkeley(num_frames=3):
    buffer = classic.ReplayBuffer(**BERKELEY)
    for _ in range(num_frames):
        buffer.store_effect(buffer.store_frame(FRAME), 1, 1.0, False)
    return buffer


def stored_effect(**effect):
    buffer = berkeley(1)
    buffer.store_frame(FRAME)
    buffer.store_effect(**effect)


NNABLA = {"capacity": 10, "stacked_frames": 4, "storage": "packed", "threads": 1, "seed": 0}
STACK = np.zeros(SHAPE, np.uint8)
EXPERIENCE = {"s": STACK, "a": 1, "r": 1.0, "non_terminal": 1.0, "s_next": STACK}


def nnabla(num_experiences=3):
    buffer = classic.MemoryEfficientAtariBuffer(**NNABLA)
    buffer.append_all([tuple(EXPERIENCE.values())] * num_experiences)
    return buffer


def appended_to(num_experiences):
    return lambda **experience: nnabla(num_experiences).append(tuple(experience.values()))


class Frames(gymnasium.Env):
    """Returns the frames that it is given, the first one at the reset."""

    observation_space, action_space = Box(0, 255, FRAME.shape, np.uint8), ACTIONS

    def __init__(self, first=FRAME, second=FRAME):
        self.first, self.second = first, second

    def reset(self, *, seed=None, options=None):
        return self.first, {}

    def step(self, action):
        return self.second, 0.0, False, False, {}


def observed(first, second):
    env = wrappers.FrameStack(Frames(first, second), 2)
    env.reset()
    env.step(0)


STACKED = {"stack_size": 4, "padding_type": "reset", "axis": "first"}
CALLS = {
    "cleanrl.ReplayBuffer": Call(cleanrl.ReplayBuffer, ROWS, ROWS_TAKE, ROWS_REFUSE | {"device": ["gpu"]}, A_FOLDER),
    "cleanrl.ReplayBuffer.add": Call(
        lambda **step: filled(cleanrl.ReplayBuffer, 1).add(**step), STEP, STEP_TAKES, STEP_REFUSES
    ),
    "cleanrl.ReplayBuffer.sample": Call(
        lambda **given: filled(cleanrl.ReplayBuffer).sample(**given), {"batch_size": 4}
    ),
    "cleanrl.PrioritizedReplayBuffer": Call(
        cleanrl.PrioritizedReplayBuffer,
        PRIORITIZED,
        {"obs_shape": "[1]", "gamma": "0", "alpha": "0 2.5", "beta": "0", "eps": "0 2.5"} | WHERE_TAKES,
        {"gamma": [-0.1, 1.1], "device": ["gpu"]},
        A_FOLDER,
    ),
    "cleanrl.PrioritizedReplayBuffer.add": Call(
        lambda **step: prioritized(1).add(**step),
        {name: STEP[name] for name in ("obs", "action", "reward", "next_obs", "done")},
        {"action": "0 [1]", "reward": "0 -1 2.5 [1]", "done": "0 True [1]"},
        {"done": [2, 0.5, "False"]},
    ),
    "cleanrl.PrioritizedReplayBuffer.sample": Call(lambda **given: prioritized().sample(**given), {"batch_size": 4}),
    "cleanrl.PrioritizedReplayBuffer.beta": Call(sampled_with, {"beta": 0.5}, {"beta": "0"}),
    "sb3.ReplayBuffer": Call(sb3.ReplayBuffer, ROWS, ROWS_TAKE, ROWS_REFUSE | {"device": ["gpu"]}, A_FOLDER),
    "sb3.ReplayBuffer.add": Call(
        lambda **step: filled(sb3.ReplayBuffer, 1).add(**step), STEP, STEP_TAKES, STEP_REFUSES
    ),
    "sb3.ReplayBuffer.sample": Call(lambda **given: filled(sb3.ReplayBuffer).sample(**given), {"batch_size": 4}),
    "sb3.NStepReplayBuffer": Call(
        lambda **settings: sb3.NStepReplayBuffer(**ROWS, **settings), {"n_steps": 3, "gamma": 0.9}, {"gamma": "0"}
    ),
    "sb3.DictReplayBuffer": Call(sb3.DictReplayBuffer, {**ROWS, "observation_space": GOALS}, ROWS_TAKE, skips=A_FOLDER),
    "sb3.HerReplayBuffer": Call(
        lambda **settings: sb3.HerReplayBuffer(**{**ROWS, "observation_space": GOALS}, **settings),
        {"env": None, "n_sampled_goal": 4, "goal_selection_strategy": "future", "copy_info_dict": False},
        {"env": "None", "n_sampled_goal": "0", "copy_info_dict": "True"},
    ),
    "classic.ReplayBuffer": Call(
        classic.ReplayBuffer, BERKELEY, {"lander": "True", "seed": "0 None"}, {"storage": ["zip"], "threads": [65]}
    ),
    "classic.ReplayBuffer.store_frame": Call(lambda **given: berkeley(1).store_frame(**given), {"frame": FRAME}),
    "classic.ReplayBuffer.store_frame of a first frame": Call(
        lambda frame: berkeley(0).store_frame(frame), {"frame": FRAME}, {"frame": "[1]"}
    ),
    "classic.ReplayBuffer.store_effect": Call(
        stored_effect,
        {"idx": 1, "action": 1, "reward": 1.0, "done": False, "truncated": False, "last_frame": FRAME},
        {
            "idx": "[1]",
            "action": "0 -1 True [1]",
            "reward": "0 -1 2.5 True [1]",
            "done": "0 True [1]",
            "truncated": "0 True [1]",
            "last_frame": "None",
        },
        {"done": ["False", NAN, 2, 0.5], "truncated": ["False", NAN, 2, 0.5], "action": [2**31]},
    ),
    "classic.ReplayBuffer.sample": Call(lambda **given: berkeley(8).sample(**given), {"batch_size": 2}),
    "classic.ReplayBuffer.can_sample": Call(
        lambda **given: berkeley(8).can_sample(**given), {"batch_size": 2}, {"batch_size": "0"}
    ),
    "classic.MemoryEfficientAtariBuffer": Call(
        classic.MemoryEfficientAtariBuffer, NNABLA, {"seed": "0 None"}, {"storage": ["zip"], "threads": [65]}
    ),
    "classic.MemoryEfficientAtariBuffer.append of a first one": Call(
        appended_to(0),
        EXPERIENCE,
        {"a": "0 -1 2.5 [1] array", "r": "0 -1 2.5 True [1]", "non_terminal": "0 True [1]"},
        {"non_terminal": [2, 0.5]},
    ),
    "classic.MemoryEfficientAtariBuffer.append": Call(
        appended_to(2), EXPERIENCE, {"a": "0 -1", "r": "0 -1 2.5 True [1]", "non_terminal": "0 True [1]"}
    ),
    "classic.MemoryEfficientAtariBuffer.append of a whole one": Call(
        lambda experience: nnabla(1).append(experience), {"experience": tuple(EXPERIENCE.values())}
    ),
    "classic.MemoryEfficientAtariBuffer.append_all": Call(
        lambda experiences: nnabla(1).append_all(experiences), {"experiences": [tuple(EXPERIENCE.values())]}
    ),
    "classic.MemoryEfficientAtariBuffer[...]": Call(lambda index: nnabla()[index], {"index": 1}, {"index": "0"}),
    "classic.MemoryEfficientAtariBuffer.sample": Call(
        lambda **given: nnabla().sample(**given), {"num_samples": 2, "num_steps": 2}
    ),
    "classic.MemoryEfficientAtariBuffer.sample_indices": Call(
        lambda **given: nnabla().sample_indices(**given), {"indices": [0, 1], "num_steps": 2}, {"indices": "0 [1]"}
    ),
    "gymnasium.FrameStack": Call(wrappers.FrameStack, {"env": Frames(), **STACKED}, unchecked="padding_type"),
    "gymnasium.VectorFrameStack": Call(
        wrappers.VectorFrameStack,
        {"env": Made(lambda: gymnasium.vector.SyncVectorEnv([Frames])), **STACKED, "autoreset_mode": None},
        {"autoreset_mode": "None"},
        unchecked="padding_type",
    ),
    "gymnasium.LazyFrames": Call(
        wrappers.LazyFrames, {"frames": [FRAME, FRAME], "axis": "first"}, {"frames": "[1] array"}
    ),
    "gymnasium.LazyFramesBatch": Call(
        wrappers.LazyFramesBatch, {"observations": [wrappers.LazyFrames([FRAME])]}, refuses={"observations": [[FRAME]]}
    ),
    "gymnasium.FrameStack.step": Call(observed, {"first": FRAME, "second": FRAME}),
}


@pytest.mark.parametrize(("call", "name"), each_argument(CALLS))
def test_a_wrong_argument_is_refused_with_its_value(call, name):
    assert_wrong_values_are_refused(call, name)


def test_a_time_limit_that_is_no_flag_is_refused():
    with pytest.raises(InvalidStepError, match=r"^TimeLimit.truncated is \['no'\]: it must be True or False"):
        filled(sb3.ReplayBuffer, 1).add(**STEP | {"infos": [{"TimeLimit.truncated": "no"}]})


@pytest.mark.parametrize("observation", [np.zeros((1, 2)), {}, {"observation": np.zeros((1, 2), np.float32)}], ids=str)
def test_dict_observations_without_a_key_are_refused(observation):
    buffer = sb3.DictReplayBuffer(**{**ROWS, "observation_space": GOALS})

    with pytest.raises(InvalidStepError, match=r"^observations have the keys \w+: the observation space has achieved_"):
        buffer.add(**STEP | {"obs": observation})
    assert 0 == buffer.pos


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [[value] for value in list(STEP.values())[:5]],
        [[value] for value in list(STEP.values())[:5]] + [[]],
        [5] * 6,
    ],
    ids=["none", "five", "of two lengths", "no lists"],
)
def test_rows_of_several_lengths_are_refused_before_the_first_is_stored(rows):
    buffer = filled(cleanrl.ReplayBuffer, 0)

    with pytest.raises(InvalidStepError, match=rf"^extend was given {len(rows)} arguments of \[.*\] values: "):
        buffer.extend(*rows)
    assert 0 == buffer.pos


@pytest.mark.parametrize(
    ("space", "observations"),
    [
        (Discrete(5), [3, [3], [[3]], np.int64(3)]),
        (PICTURES, [np.full(SHAPE, 7), np.full((1, *SHAPE), 7), np.full((1, 1, *SHAPE), 7)]),
        (Box(0, 255, (6, 5, 1), np.uint8), [np.full((6, 5), 7), np.full((1, 6, 5), 7)]),
    ],
)
def test_an_observation_of_one_environment_may_lack_axes_of_length_1(space, observations):
    for observation in observations:
        buffer = cleanrl.ReplayBuffer(10, space, ACTIONS, "cpu")

        buffer.add(observation, observation, **{name: STEP[name] for name in ("action", "reward", "done", "infos")})

        assert np.unique(observation).tolist() == np.unique(buffer.sample(3).observations).tolist()


def test_a_number_that_the_original_takes_as_a_float_is_refused_with_the_way_to_write_it():
    with pytest.raises(
        InvalidSettingsError, match=re.escape("size is 1000000.0: it must be a whole number, write 1_000_000; ")
    ):
        classic.ReplayBuffer(1e6, 4)
