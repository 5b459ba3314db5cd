"""Observations of FrameStack and VectorFrameStack equal those of Gymnasium's and Baselines' wrappers."""

from __future__ import annotations

import re
from collections import deque
from functools import partial

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Dict, Discrete, Text
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation

from framestow import ReplayMemory
from framestow.envs import Recorder, SerialVectorEnv
from framestow.envs.recording.step_recording import take_row, take_rows
from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.observation_spec import map_arrays
from framestow.integrations.drop_in.paired_steps import PairedSteps
from framestow.integrations.gymnasium import FrameStack, LazyFrames, LazyFramesBatch, VectorFrameStack
from oracles.earlier_lazy_frames import BaselinesLazyFrames
from oracles.equal_vectors import assert_same
from oracles.numbered_frames import SHAPE, ListSink, NumberedEnv, frame_of
from oracles.random_env import SPACES, RandomEnv
from oracles.toy_vector import ToyVector, numbered_envs

gymnasium.register_envs(ale_py)

STEPS = 40
CUSTOM = {name: space.sample() for name, space in SPACES.items()}
PADDINGS = ["reset", "zero", "custom"]


def as_arrays(observation):
    return map_arrays(np.asarray, observation)


def padding_of(padding, name):
    return CUSTOM[name] if padding == "custom" else padding


def play(env, num_steps):
    """Return all observations of ``num_steps`` steps and their resets as arrays."""
    shown = [env.reset(seed=5)[0]]
    for number in range(num_steps):
        observation, reward, terminated, truncated, _ = env.step(number % 3)
        shown.append(as_arrays((observation, reward, terminated, truncated)))
        if terminated or truncated:
            shown.append(env.reset()[0])
    return [as_arrays(each) for each in shown]


@pytest.mark.each_pair
@pytest.mark.parametrize("stack_size", [1, 4])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", SPACES)
def test_observations_of_any_space_equal_those_of_frame_stack_observation(name, padding, stack_size):
    wrappers = [
        wrapper(RandomEnv(SPACES[name], seed=3), stack_size, padding_type=padding_of(padding, name))
        for wrapper in (FrameStackObservation, FrameStack)
    ]

    theirs, ours = [play(env, STEPS) for env in wrappers]

    assert_same(theirs, ours, name)
    assert wrappers[0].observation_space == wrappers[1].observation_space


@pytest.mark.parametrize("name", ["pixels", "channels", "bounded away from zero"])
def test_stacks_along_channels_equal_those_of_baselines(name):
    env, alike = FrameStack(RandomEnv(SPACES[name], seed=3), 4, axis="channels"), RandomEnv(SPACES[name], seed=3)
    frames = deque(maxlen=4)

    def baselines(frame, num_times=1):
        frames.extend([frame] * num_times)
        return BaselinesLazyFrames(list(frames))

    pairs = [(baselines(alike.reset()[0], 4), env.reset()[0])]
    for action in range(STEPS):
        frame, _, terminated, truncated, _ = alike.step(action)
        pairs.append((baselines(frame), env.step(action)[0]))
        if terminated or truncated:
            pairs.append((baselines(alike.reset()[0], 4), env.reset()[0]))

    for theirs, ours in pairs:
        assert_same(np.asarray(theirs), np.asarray(ours), name)
        assert (theirs.count(), len(theirs)) == (ours.count(), len(ours))
        assert_same(theirs.frame(-1), ours.frame(-1), name)
        assert np.asarray(ours) in env.observation_space


def test_a_new_last_axis_gives_the_same_stacks():
    first, last = (FrameStack(RandomEnv(SPACES["pixels"], seed=1), 3, axis=axis) for axis in ("first", "last"))
    observations = first.reset()[0], last.reset()[0]
    assert_same(np.moveaxis(observations[0], 0, -1), np.asarray(observations[1]), "pixels")
    assert (6, 5, 3) == last.observation_space.shape


def test_neighbouring_observations_share_their_frames_as_do_those_of_a_dict():
    env = FrameStack(RandomEnv(SPACES["dict"], seed=3, longest=100), 4)
    before, after = env.reset()[0], env.step(0)[0]

    assert np.shares_memory(before["camera"].frame(3), after["camera"].frame(2))
    assert np.shares_memory(before["arm"][0].frame(3), after["arm"][0].frame(2))
    assert all(isinstance(part, LazyFrames) for part in (after["camera"], *after["arm"]))


def test_an_environment_that_reuses_its_array_changes_no_older_observation():
    def stacked(wrapper):
        env = wrapper(NumberedEnv(lengths=(9,), reuses_its_array=True), 3)
        return [env.reset()[0], *(env.step(0)[0] for _ in range(4))]

    kept, theirs = stacked(FrameStack), stacked(FrameStackObservation)

    right = [[frame_of(0, 0, max(0, step - back)) for back in (2, 1, 0)] for step in range(5)]
    assert_same(np.array(right), np.array([np.asarray(observation) for observation in kept]), "ours")
    newest_alone = [[frame_of(0, 0, step)] * 3 for step in range(5)]
    assert_same(np.array(newest_alone), np.array(theirs), "Gymnasium's shows the array three times over")


def test_a_stacked_environment_can_be_recreated_from_its_spec():
    env = FrameStack(gymnasium.make("CartPole-v1"), 3, padding_type="zero", axis="last")

    again = gymnasium.make(env.spec)

    assert isinstance(again, FrameStack)
    assert env.observation_space == again.observation_space
    assert ("zero", "last", 3) == (again.padding_type, again.axis, again.stack_size)
    assert_same(np.asarray(env.reset(seed=1)[0]), np.asarray(again.reset(seed=1)[0]), "reset")


def makers(name, num_envs, wrapper=None):
    def made(seed):
        env = RandomEnv(SPACES[name], seed)
        return env if wrapper is None else wrapper(env)

    return [partial(made, seed) for seed in range(num_envs)]


VECTORS = {
    "sync": lambda env_fns, mode: SyncVectorEnv(env_fns, autoreset_mode=mode),
    "sync without copies": lambda env_fns, mode: SyncVectorEnv(env_fns, autoreset_mode=mode, copy=False),
    "serial": SerialVectorEnv,
}


def play_vector(env, num_steps):
    """Everything that so many steps answer, as arrays, and which rows of ``final_obs`` there are; all is kept first."""
    mode = env.metadata["autoreset_mode"]
    answers = [env.reset(seed=1)[0]]
    for number in range(num_steps):
        observations, *others, infos = env.step(np.full(env.num_envs, number % 3))
        ended = others[1] | others[2]
        final = [infos["final_obs"][row] for row in np.flatnonzero(ended)] if "final_obs" in infos else []
        answers += [observations, *others, *final]
        if mode is AutoresetMode.DISABLED and ended.any():
            answers.append(env.reset(options={"reset_mask": ended})[0])
    return [as_arrays(answer) for answer in answers]


@pytest.mark.each_pair
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kind", VECTORS)
@pytest.mark.parametrize("name", ["pixels", "discrete", "dict"])
def test_each_row_of_a_vector_equals_frame_stack_observation(name, kind, mode):
    padding = "zero" if name == "dict" else "reset"
    wrapped = makers(name, 3, lambda env: FrameStackObservation(env, 4, padding_type=padding))
    theirs = SyncVectorEnv(wrapped, autoreset_mode=mode)
    ours = VectorFrameStack(VECTORS[kind](makers(name, 3), mode), 4, padding_type=padding)

    assert_same(play_vector(theirs, STEPS), play_vector(ours, STEPS), kind)
    assert theirs.single_observation_space == ours.single_observation_space
    assert theirs.observation_space == ours.observation_space


def test_a_masked_reset_changes_neither_the_options_nor_the_other_stacks():
    env = VectorFrameStack(SyncVectorEnv([NumberedEnv] * 2, autoreset_mode=AutoresetMode.DISABLED), 3)
    env.reset()
    before = env.step([0, 0])[0]
    mask = np.array([True, False])
    options = {"reset_mask": mask, "other": 1}

    after, _ = env.reset(options=options)

    assert {"reset_mask": mask, "other": 1} == options
    assert_same(np.stack([frame_of(0, 1, 0)] * 3), np.asarray(after[0]), "reset")
    assert_same(np.asarray(before[1]), np.asarray(after[1]), "untouched")


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_lost_episode_adds_no_frame_to_a_stack(mode):
    def toy():
        return ToyVector(numbered_envs([(4, 5), (3, 8)], [("terminated", "truncated")] * 2), mode, [(0, 3), (1, 7)])

    recorder, ours = Recorder(toy(), ListSink(2, stack=3)), VectorFrameStack(toy(), 3)

    assert_same(play_vector(recorder, 30), play_vector(ours, 30), mode.name)


def test_a_kept_observation_of_a_vector_keeps_only_its_own_frames():
    env = VectorFrameStack(SyncVectorEnv([NumberedEnv] * 3), 4)
    before, after = env.reset()[0], env.step([0] * 3)[0]

    assert isinstance(after, LazyFramesBatch)
    assert np.shares_memory(before[1].frame(3), after[1].frame(2))
    assert all(frame.flags.owndata and frame.shape == SHAPE for lazy in after for frame in lazy)


REFUSED = [
    (partial(FrameStack, NumberedEnv(), 0), "stack_size is 0: it must be at least 1; give 4"),
    (
        partial(FrameStack, NumberedEnv(), 4, padding_type="zeros"),
        "padding_type is 'zeros': it must be 'reset', 'zero' or an observation of Box(0, 255, (2, 3), uint8)",
    ),
    (
        partial(FrameStack, NumberedEnv(), 4, axis="middle"),
        "axis is 'middle': it must be one of 'first', 'last', 'channels'",
    ),
    (
        partial(FrameStack, RandomEnv(Dict({"mission": Text(5)}), 0), 4),
        "observation space Text(1, 5, charset=",
    ),
    (partial(FrameStack, RandomEnv(Discrete(3), 0), 4, axis="channels"), "observation space Discrete(3) with axis="),
    (partial(FrameStack, SyncVectorEnv([NumberedEnv]), 4), "env is SyncVectorEnv(num_envs=1): a vector environment"),
    (partial(VectorFrameStack, NumberedEnv(), 4), "env is <NumberedEnv instance>: not a vector environment; use"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_invalid_stacks_are_refused_at_construction(make, message):
    with pytest.raises(InvalidSettingsError, match=f"^{re.escape(message)}"):
        make()


class LyingEnv(NumberedEnv):
    """Shows ``lie`` after the first step."""

    lie = np.zeros(SHAPE, np.int64)

    def step(self, action):
        return (self.lie, *super().step(action)[1:])


@pytest.mark.parametrize("lie", [np.zeros(SHAPE, np.int64), np.zeros(3, np.uint8)])
def test_observations_that_do_not_match_the_space_are_refused_and_never_cast(lie):
    env = LyingEnv()
    env.lie = lie
    env = FrameStack(env, 3)
    env.reset()

    message = f"observation is {lie.dtype} of shape {lie.shape}: the observation space requires uint8 of shape (2, 3); "
    with pytest.raises(InvalidStepError, match=f"^{re.escape(message)}correct the environment"):
        env.step(0)


@pytest.mark.parametrize("make", [lambda: FrameStack(NumberedEnv(), 3), lambda: VectorFrameStack(toy_of_two(), 3)])
def test_a_step_before_the_first_reset_is_refused(make):
    env = make()

    with pytest.raises(InvalidStepError, match=r": step needs (an open episode|open episodes); call reset\(\) first$"):
        env.step([0, 0])

    env.reset()
    env.step(np.array([0, 0])[: getattr(env, "num_envs", 1)] if hasattr(env, "num_envs") else 0)


def toy_of_two():
    return SyncVectorEnv([NumberedEnv, NumberedEnv])


def test_a_memory_accepts_lazy_frames_like_arrays():
    env = VectorFrameStack(SyncVectorEnv(makers("dict", 2), autoreset_mode=AutoresetMode.SAME_STEP), 3)
    memories = [ReplayMemory(100, env.single_observation_space, 3, stack=1, num_envs=2, seed=0) for _ in range(2)]
    observations, _ = env.reset()
    for memory, change in zip(memories, (as_arrays, lambda lazy: lazy), strict=True):
        memory.begin(change(observations))
    for _ in range(30):
        observations, rewards, terminated, truncated, infos = env.step([0, 1])
        ended = np.flatnonzero(terminated | truncated)
        true = [infos["final_obs"][row] if row in ended else take_row(observations, row) for row in range(2)]
        led_to = [map_arrays(lambda *rows: np.stack(rows), *true), map_arrays(lambda *rows: list(rows), *true)]
        for memory, frames, again in zip(memories, led_to, (as_arrays(observations), observations), strict=True):
            memory.append([0, 1], rewards, terminated, truncated, frames)
            if ended.size:
                memory.begin(take_rows(again, ended), ended)

    arrays, lazy = (memory.get(memory.sampleable_indices()) for memory in memories)
    assert_same(arrays.observation, lazy.observation, "observation")
    assert_same(arrays.next_observation, lazy.next_observation, "next_observation")


def test_a_drop_in_accepts_lazy_frames_like_arrays():
    env = VectorFrameStack(SyncVectorEnv([lambda: NumberedEnv(lengths=(50,))] * 2), 3)
    feeds = [PairedSteps(env.single_observation_space, 3, capacity=100, action_space=3, num_envs=2) for _ in range(2)]
    observations, _ = env.reset()
    for _ in range(20):
        following, rewards, terminated, truncated, _ = env.step([0, 1])
        feeds[0].add(np.asarray(observations), [0, 1], rewards, np.asarray(following), terminated, truncated)
        feeds[1].add(observations, [0, 1], rewards, list(following), terminated, truncated)
        observations = following

    arrays, lazy = (feed.transitions(feed.indices(np.arange(20)[:, None], [0, 1]).ravel()) for feed in feeds)
    assert 3 == feeds[1].memory.stack
    assert_same(arrays.observation, lazy.observation, "observation")
    assert_same(arrays.next_observation, lazy.next_observation, "next_observation")
