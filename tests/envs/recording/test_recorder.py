"""The Recorder stores steps without resets, with their true frames, in every autoreset mode."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Text, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from framestow.envs import Recorder, SerialVectorEnv, finished_games
from framestow.errors import EnvironmentFailedError, InvalidSettingsError, InvalidStepError
from framestow.replay.memory import ReplayMemory
from oracles.numbered_frames import NUM_ACTIONS, SHAPE, ListSink, NumberedEnv, frame_of

MODES = list(AutoresetMode)
LENGTHS = [(2, 5), (3,), (1, 1, 4)]
ENDINGS = [("terminated", "truncated"), ("truncated",), ("both", "terminated")]
ENVS = range(3)


def numbered_envs(**settings):
    return [
        lambda env_id=env_id, lengths=lengths, endings=endings: NumberedEnv(env_id, lengths, endings, **settings)
        for env_id, (lengths, endings) in enumerate(zip(LENGTHS, ENDINGS, strict=True))
    ]


def ours(mode, **settings):
    return SerialVectorEnv(numbered_envs(**settings), mode)


def gymnasiums(mode, **settings):
    return SyncVectorEnv(numbered_envs(**settings), autoreset_mode=mode)


def gymnasiums_without_copies(mode, **settings):
    return SyncVectorEnv(numbered_envs(**settings), autoreset_mode=mode, copy=False)


def action_for(stack: np.ndarray) -> int:
    """A policy that looks at the whole stack: a wrong frame in it leads to another action."""
    return int((stack.astype(np.int64) * np.arange(1, stack.size + 1).reshape(stack.shape)).sum() % NUM_ACTIONS)


def play(recorder: Recorder, is_enough: int | Callable[[], bool]) -> None:
    """Play by the policy for so many calls of step, or until it is enough."""
    observations, _ = recorder.reset()
    for call in itertools.count(1):
        actions = [action_for(stack) for stack in observations]
        observations, _, terminated, truncated, _ = recorder.step(actions)
        ended = terminated | truncated
        if recorder.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            observations, _ = recorder.reset(options={"reset_mask": ended})
        if is_enough() if callable(is_enough) else call == is_enough:
            return


def expected_log(env_id: int, num_steps: int) -> list[tuple]:
    """What an environment on its own tells, written down by hand."""
    sink = ListSink(1)
    env = NumberedEnv(env_id, LENGTHS[env_id], ENDINGS[env_id])
    sink.begin([env.reset()[0]])
    for _ in range(num_steps):
        if sink.has_ended(0):
            sink.begin([env.reset()[0]])
        action = action_for(sink.stacked(0))
        frame, reward, terminated, truncated, _ = env.step(action)
        sink.append([action], [reward], [terminated], [truncated], [frame])
    return sink.log[0]


def ours_with_reused_arrays(mode):
    return ours(mode, reuses_its_array=True)


@pytest.mark.parametrize("make", [ours, ours_with_reused_arrays, gymnasiums, gymnasiums_without_copies])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_records_the_steps_of_the_environments(mode, make):
    sink = ListSink(3)
    recorder = Recorder(make(mode), sink)

    play(recorder, 60)

    for env_id in ENVS:
        num_steps = sink.num_steps(env_id)
        expected = expected_log(env_id, num_steps)
        assert num_steps > 30
        assert expected == sink.log[env_id][: len(expected)]
        assert all(entry[0] == "begin" for entry in sink.log[env_id][len(expected) :])


def test_with_same_step_the_policy_sees_the_next_episode_and_final_obs_is_a_stack():
    recorder = Recorder(ours(AutoresetMode.SAME_STEP), ListSink(3, stack=2))
    recorder.reset()

    observations, _, terminated, truncated, infos = recorder.step([0, 0, 0])

    assert np.array_equal([frame_of(2, 1, 0)] * 2, observations[2])
    assert (terminated.tolist(), truncated.tolist()) == ([False, False, True], [False, False, True])
    assert infos["_final_obs"].tolist() == [False, False, True]
    assert np.array_equal([frame_of(2, 0, 0), frame_of(2, 0, 1)], infos["final_obs"][2])
    assert infos["final_obs"][0] is None


def test_the_spaces_are_those_of_the_stacks():
    recorder = Recorder(ours(AutoresetMode.NEXT_STEP), ListSink(3, stack=4))
    observations, _ = recorder.reset()

    assert Box(0, 255, (4, *SHAPE), np.uint8) == recorder.single_observation_space
    assert recorder.observation_space.contains(observations)
    assert recorder.action_space == recorder.env.action_space
    assert recorder.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert recorder.unwrapped is recorder.env


class DenseFinalVector(VectorEnv):
    """Hands final observations out as ALE's vector does: a dense array, no mask, other rows as they happen to be."""

    metadata: ClassVar[dict] = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self):
        self.inner = ours(AutoresetMode.SAME_STEP)
        self.num_envs = 3
        for name in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
            setattr(self, name, getattr(self.inner, name))

    def reset(self, *, seed=None, options=None):
        return self.inner.reset(seed=seed, options=options)

    def step(self, actions):
        frames, rewards, terminated, truncated, infos = self.inner.step(actions)
        dense = np.full((3, *SHAPE), 255, np.uint8)  # poison
        for env_id in np.flatnonzero(terminated | truncated):
            dense[env_id] = infos["final_obs"][env_id]
        return frames, rewards, terminated, truncated, {"final_obs": dense}


def test_rows_of_unfinished_environments_in_a_dense_final_obs_are_never_read():
    sink = ListSink(3)

    play(Recorder(DenseFinalVector(), sink), 60)

    for env_id in ENVS:
        expected = expected_log(env_id, sink.num_steps(env_id))
        assert expected == sink.log[env_id][: len(expected)]


class WithoutFinalVector(DenseFinalVector):
    def __init__(self, final):
        super().__init__()
        self.final = final

    def step(self, actions):
        return *self.inner.step(actions)[:4], dict(self.final)


@pytest.mark.parametrize(
    "final", [{}, {"final_obs": np.full(3, None, object), "_final_obs": np.array([True, True, False])}]
)
def test_an_ended_episode_without_its_final_observation_is_refused(final):
    sink = ListSink(3)
    recorder = Recorder(WithoutFinalVector(final), sink)
    recorder.reset()

    with pytest.raises(InvalidStepError, match=re.escape("environments [2] have ended without final_obs")):
        recorder.step([0, 0, 0])

    assert [sink.num_steps(env_id) for env_id in ENVS] == [0, 0, 0]


class SharedMetadataVector(DenseFinalVector):
    """Writes its mode into the dictionary of the class, as ALE's vector does."""

    metadata: ClassVar[dict] = {}

    def __init__(self, mode):
        super().__init__()
        self.inner = ours(mode)
        self.autoreset_mode = self.metadata["autoreset_mode"] = mode

    def step(self, actions):
        return self.inner.step(actions)


def test_metadata_shared_by_a_class_does_not_mislead():
    vectors = [SharedMetadataVector(mode) for mode in MODES]
    for vector in vectors:
        sink = ListSink(3)
        play(Recorder(vector, sink), 30)
        expected = expected_log(0, sink.num_steps(0))

        assert expected == sink.log[0][: len(expected)]


def test_an_environment_that_does_not_tell_its_mode_is_refused_unless_the_caller_does():
    vector = DenseFinalVector()
    vector.metadata = {}
    message = "has no autoreset mode: the recorder needs it to know which steps are resets; pass autoreset_mode"

    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        Recorder(vector, ListSink(3))

    assert Recorder(vector, ListSink(3), autoreset_mode="SameStep").autoreset_mode is AutoresetMode.SAME_STEP


def test_a_memory_with_another_number_of_environments_is_refused():
    with pytest.raises(InvalidSettingsError, match="memory has num_envs 2: the vector environment has 3 environments"):
        Recorder(ours(AutoresetMode.NEXT_STEP), ListSink(2))


def test_observations_that_cannot_be_stacked_are_refused():
    vector = DenseFinalVector()
    vector.single_observation_space = Tuple((Box(0, 1), Text(3)))

    with pytest.raises(InvalidSettingsError, match=r"observation space is Text.*: a recorder stacks Box"):
        Recorder(vector, ListSink(3))


def test_a_masked_reset_begins_only_the_masked_and_keeps_the_callers_options():
    sink = ListSink(3)
    recorder = Recorder(gymnasiums(AutoresetMode.DISABLED), sink)
    recorder.reset()
    before, *_ = recorder.step([0, 0, 0])
    options = {"reset_mask": np.array([False, False, True])}

    after, _ = recorder.reset(options=options)

    assert list(options) == ["reset_mask"]
    assert np.array_equal(before[:2], after[:2])
    assert np.array_equal([frame_of(2, 1, 0)] * 4, after[2])
    with pytest.raises(InvalidStepError, match="must have 3 booleans"):
        recorder.reset(options={"reset_mask": np.array([True])})


def test_with_autoreset_disabled_a_step_after_the_end_is_refused_before_anything_moves():
    recorder = Recorder(gymnasiums(AutoresetMode.DISABLED), ListSink(3))
    recorder.reset()
    recorder.step([0, 0, 0])

    with pytest.raises(InvalidStepError, match=re.escape("environments [2] have ended")):
        recorder.step([0, 0, 0])

    assert [env.num_steps for env in recorder.env.envs] == [1, 1, 1]


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(InvalidStepError, match=re.escape("environments [0, 1, 2] have no running episode")):
        Recorder(ours(AutoresetMode.NEXT_STEP), ListSink(3)).step([0, 0, 0])


def test_an_environment_that_raises_does_not_change_the_memory_and_a_reset_continues():
    sink = ListSink(3)
    envs = [lambda: NumberedEnv(0, (9,), raises_at=2), *numbered_envs()[1:]]
    recorder = Recorder(SerialVectorEnv(envs), sink)
    recorder.reset()
    recorder.step([0, 0, 0])
    before = [list(log) for log in sink.log]

    with pytest.raises(EnvironmentFailedError, match="environment 0 raised KeyError at action 3"):
        recorder.step([3, 0, 0])

    assert before == sink.log
    with pytest.raises(InvalidStepError, match=re.escape("environments [0, 1, 2] have no running episode")):
        recorder.step([0, 0, 0])
    recorder.reset()
    recorder.step([0, 0, 0])


def test_finished_games_are_reported_in_every_mode():
    class Scored(NumberedEnv):
        def step(self, action):
            frame, reward, terminated, truncated, info = super().step(action)
            told = {"episode": {"r": 10.0 * self.env_id, "l": self.step_number}} if self.is_over else {}
            return frame, reward, terminated, truncated, info | told

    for mode in MODES:
        vector = SerialVectorEnv([lambda s=s: Scored(s, (s + 1,)) for s in ENVS], mode)
        vector.reset()

        assert finished_games(vector.step([0, 0, 0])[4]) == [(0, 0.0, 1)]
        if mode is AutoresetMode.DISABLED:
            vector.reset(options={"reset_mask": np.array([True, False, False])})
        expected = [(1, 10.0, 2)] if mode is AutoresetMode.NEXT_STEP else [(0, 0.0, 1), (1, 10.0, 2)]
        assert expected == finished_games(vector.step([0, 0, 0])[4])


class PoolLike(DenseFinalVector):
    """Has the attributes by which a pool of envpool is known."""

    all_env_ids, config = np.arange(3), MappingProxyType({})


def test_environments_of_another_interface_are_refused_with_a_way_to_record_them():
    with pytest.raises(InvalidSettingsError, match=re.escape("store its steps by memory.add")):
        Recorder(PoolLike(), ListSink(3))
    with pytest.raises(InvalidSettingsError, match=re.escape("use SerialVectorEnv([lambda: env])")):
        Recorder(NumberedEnv(), ListSink(1))


@pytest.mark.parametrize("actions", [[0, 1], [0, 1, 2, 3], 0])
def test_too_few_or_too_many_actions_are_refused_before_any_environment_moves(actions):
    recorder = Recorder(gymnasiums(AutoresetMode.NEXT_STEP), ListSink(3))
    recorder.reset()

    for step in (recorder.step, recorder.step_async):
        with pytest.raises(InvalidStepError, match="3 environments need one each; give exactly so many"):
            step(actions)

    assert [env.num_steps for env in recorder.env.envs] == [0, 0, 0]
    recorder.step([0, 1, 2])


class PaysSevenOrMinusSeven(NumberedEnv):
    """Rewards of 7 and -7 in turn, and one of 0.5."""

    rewards: ClassVar = [7.0, -7.0, 0.5]

    def step(self, action):
        frame, _, terminated, truncated, infos = super().step(action)
        self.rewards = [*self.rewards[1:], self.rewards[0]]
        return frame, self.rewards[-1], terminated, truncated, infos


@pytest.mark.parametrize("n_step", [1, 3])
def test_stored_rewards_are_clipped_one_by_one_and_returned_rewards_are_not(n_step: int) -> None:
    env = SerialVectorEnv([lambda: PaysSevenOrMinusSeven(0, (9,), ("truncated",))])
    memory = ReplayMemory(20, env.single_observation_space, NUM_ACTIONS, stack=4, n_step=n_step, discount=0.5)
    recorder = Recorder(env, memory, reward_limit=1.0)
    recorder.reset()

    returned = [float(recorder.step([0])[1][0]) for _ in range(6)]

    stored = memory.get(memory.sampleable_indices()[:2]).reward.tolist()
    assert returned == [7.0, -7.0, 0.5, 7.0, -7.0, 0.5]
    assert stored == ([1.0, -1.0] if n_step == 1 else [1.0 - 0.5 + 0.125, -1.0 + 0.25 + 0.25])


def test_flags_that_are_tensors_are_recorded_without_a_warning():
    class OfTensors(SerialVectorEnv):
        def step(self, actions):
            frames, rewards, terminated, truncated, infos = super().step(actions)
            return frames, rewards, torch.tensor(terminated), torch.tensor(truncated), infos

    memory = ReplayMemory(1000, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, num_envs=3, stack=2)
    plain = ReplayMemory(1000, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, num_envs=3, stack=2)

    play(Recorder(OfTensors(numbered_envs(), AutoresetMode.NEXT_STEP), memory), 30)  # warnings are errors in tests
    play(Recorder(ours(AutoresetMode.NEXT_STEP), plain), 30)

    assert len(memory) == len(plain) > 30
    index = np.arange(len(plain))
    np.testing.assert_array_equal(plain.get(index).terminated, memory.get(index).terminated)
