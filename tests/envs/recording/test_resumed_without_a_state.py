"""A resumed run continues exactly if its environments have a saved state; else its episodes restart."""

from __future__ import annotations

import re

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from framestow.envs import Recorder, SerialVectorEnv, lost_episodes, make_atari
from framestow.errors import IncompatibleError, InvalidStepError
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.repair import repair_store
from oracles.damaged_stores import blocks_of, flip
from oracles.numbered_frames import NUM_ACTIONS, SHAPE, ListSink, NumberedEnv, frame_of
from oracles.random_env import SPACES, RandomEnv
from oracles.saved_bytes import saved_bytes

MODES = list(AutoresetMode)


def made(env_id, **settings):
    # A new process plays other episodes than the old one: here they have other numbers.
    env = NumberedEnv(env_id, (4, 6), ("terminated", "truncated"))
    env.episode = settings.get("episode", -1)
    return env


def plain_vector(mode, episode=-1) -> SyncVectorEnv:
    return SyncVectorEnv([lambda s=s: made(s, episode=episode) for s in range(2)], autoreset_mode=mode)


def memory_of(num_envs=2) -> ReplayMemory:
    return ReplayMemory(40, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, stack=2, num_envs=num_envs, seed=0)


def stepped(recorder, times) -> list:
    outcomes = []
    for _ in range(times):
        outcomes.append(recorder.step([1] * recorder.num_envs))
        ended = outcomes[-1][2] | outcomes[-1][3]
        if recorder.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            recorder.reset(options={"reset_mask": ended})
    return outcomes


@pytest.mark.parametrize("mode", MODES)
def test_gymnasiums_environments_restart_and_the_stored_transitions_stay(mode, tmp_path):
    recorder = Recorder(plain_vector(mode), memory_of())
    recorder.reset()
    stepped(recorder, 3)
    state = recorder.state_dict()
    recorder.memory.save(tmp_path / "memory")

    resumed = Recorder(plain_vector(mode, episode=49), ReplayMemory.load(tmp_path / "memory"))
    resumed.load_state_dict(state)
    before = resumed.memory.observations()
    observations, rewards, terminated, truncated, infos = stepped(resumed, 1)[0]

    assert list(lost_episodes(infos)) == [0, 1]
    assert len(resumed.memory) == 6
    assert (rewards.tolist(), terminated.tolist(), truncated.tolist()) == ([0, 0], [False, False], [True, True])
    if mode is AutoresetMode.SAME_STEP:
        assert np.array_equal(before[1], infos["final_obs"][1])
        assert np.array_equal([frame_of(1, 50, 0)] * 2, observations[1])
    else:
        assert np.array_equal(before, observations)
    later = stepped(resumed, 6)
    assert not any(lost_episodes(outcome[4]) for outcome in later)
    batch = resumed.memory.get(resumed.memory.sampleable_indices())
    frames, next_frames = batch.observation[:, -1, 0], batch.next_observation[:, -1, 0]
    assert np.array_equal(frames + np.array([0, 0, 1]), next_frames)
    assert set(frames[:, 1].tolist()) == {0, 50, 51} if mode is not AutoresetMode.NEXT_STEP else {0, 50}
    resumed.memory.inner.parts.check()


@pytest.mark.parametrize("mode", MODES)
def test_whole_observations_with_numbers_restart_too(mode, tmp_path):
    def recorder_over(memory):
        envs = [lambda seed=seed: RandomEnv(SPACES["dict"], seed, longest=3) for seed in range(2)]
        return Recorder(SyncVectorEnv(envs, autoreset_mode=mode), memory)

    recorder = recorder_over(ReplayMemory(40, SPACES["dict"], 3, num_envs=2))
    recorder.reset()
    stepped(recorder, 3)
    recorder.memory.save(tmp_path / "memory")

    resumed = recorder_over(ReplayMemory.load(tmp_path / "memory"))
    resumed.load_state_dict(recorder.state_dict())

    assert [len(lost_episodes(outcome[4])) > 0 for outcome in stepped(resumed, 5)] == [True, *[False] * 4]
    resumed.memory.inner.parts.check()


def test_an_episode_that_had_ended_is_not_lost_and_is_reset_a_step_later():
    recorder = Recorder(plain_vector(AutoresetMode.NEXT_STEP), memory_of())
    recorder.reset()
    stepped(recorder, 4)  # both end here
    recorder.step([1, 1])
    recorder.env.envs[1].step_number = 5
    recorder.step([1, 1])
    state = recorder.state_dict()
    assert state["has_ended"].tolist() == [False, True]

    sink = ListSink(2)
    sink.begin(np.zeros((2, *SHAPE), np.uint8))
    resumed = Recorder(plain_vector(AutoresetMode.NEXT_STEP), sink)
    resumed.load_state_dict(state)
    first, second = stepped(resumed, 2)

    assert list(lost_episodes(first[4])) == [0]
    assert first[3].tolist() == [True, True]
    assert second[3].tolist() == [False, False]
    assert [[entry[0] for entry in log] for log in sink.log] == [["begin", "begin"]] * 2


def test_a_reset_instead_of_a_step_restarts_all_episodes_also_with_a_mask():
    recorder = Recorder(plain_vector(AutoresetMode.DISABLED), memory_of())
    recorder.reset()
    recorder.step([1, 1])
    state = recorder.state_dict()
    resumed = Recorder(plain_vector(AutoresetMode.DISABLED), ListSink(2))
    resumed.load_state_dict(state)

    resumed.reset(options={"reset_mask": np.array([True, False])})
    *_, infos = resumed.step([1, 1])

    assert [[entry[0] for entry in log] for log in resumed.memory.log] == [["begin", "step"]] * 2
    assert not lost_episodes(infos)


def test_asynchronous_steps_and_a_later_save_restart_episodes_too():
    recorder = Recorder(plain_vector(AutoresetMode.NEXT_STEP), ListSink(2))
    recorder.reset()
    recorder.step([1, 1])
    resumed = Recorder(plain_vector(AutoresetMode.NEXT_STEP), recorder.memory)
    resumed.load_state_dict(recorder.state_dict())

    resumed.step_async([1, 1])
    *_, infos = resumed.step_wait()

    assert list(lost_episodes(infos)) == [0, 1]
    again = Recorder(plain_vector(AutoresetMode.NEXT_STEP), recorder.memory)
    again.load_state_dict(resumed.state_dict())
    stepped(again, 3)
    assert [[entry[0] for entry in log] for log in recorder.memory.log] == [["begin", "step", "begin", "step"]] * 2


def test_before_the_first_reset_nothing_is_lost():
    recorder = Recorder(plain_vector(AutoresetMode.NEXT_STEP), ListSink(2))
    resumed = Recorder(plain_vector(AutoresetMode.NEXT_STEP), ListSink(2))

    resumed.load_state_dict(recorder.state_dict())

    with pytest.raises(InvalidStepError, match="have no running episode"):
        resumed.step([1, 1])
    resumed.reset()
    assert not lost_episodes(resumed.step([1, 1])[4])


def test_the_state_methods_of_a_wrapped_environment_are_not_those_of_the_wrapper():
    vector = RecordEpisodeStatistics(SerialVectorEnv([lambda: made(0)]))
    recorder = Recorder(vector, ListSink(1))

    assert recorder.state_dict()["env"] is None


def test_a_state_of_another_mode_is_refused():
    state = Recorder(plain_vector(AutoresetMode.NEXT_STEP), ListSink(2)).state_dict()

    with pytest.raises(IncompatibleError, match="with NextStep: these are 2 with SameStep"):
        Recorder(plain_vector(AutoresetMode.SAME_STEP), ListSink(2)).load_state_dict(state)


THREE = np.zeros(3, np.bool_)


@pytest.mark.parametrize(
    ("changes", "changes_of_env"),
    [({"has_begun": THREE}, {}), ({"has_begun": None}, {}), ({"env": {}}, {}), ({}, {"envs": [{}, {}]})]
    + [({}, {key: value}) for key in ("needs_reset", "envs", "lost", "observations") for value in (None, THREE)],
)
def test_a_damaged_state_is_refused_before_anything_is_loaded(changes, changes_of_env):
    recorder = Recorder(SerialVectorEnv([NumberedEnv] * 2), ListSink(2))
    recorder.reset()
    state = recorder.state_dict()
    for wrong in (None, {}, state["env"], state | {"env": state["env"] | changes_of_env} | changes):
        with pytest.raises(IncompatibleError, match=r"^state |^has_begun "):
            recorder.load_state_dict(wrong)

    assert [1, 1] == recorder.step([0, 0])[4]["step"].tolist()


@pytest.mark.each_value
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", MODES)
def test_a_run_of_environments_with_a_state_resumes_bit_for_bit_in_every_mode(mode, workers, tmp_path):
    def recorder_over(memory):
        return Recorder(make_atari("Breakout", 2, "nature", seed=1, autoreset_mode=mode, workers=workers), memory)

    def play(recorder, num_steps):
        for _ in range(num_steps):
            observations = recorder.memory.observations()
            actions = observations.reshape(2, -1).astype(np.int64).sum(1) * 7919 % recorder.single_action_space.n
            *_, terminated, truncated, _ = recorder.step(actions)
            if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
                recorder.reset(options={"reset_mask": terminated | truncated})

    env = make_atari("Breakout", 1, "nature", seed=1)
    space, actions = env.single_observation_space, env.single_action_space
    recorder = recorder_over(ReplayMemory(300, space, actions, stack=4, num_envs=2, seed=3))
    recorder.reset()
    play(recorder, 40)
    state = recorder.state_dict()
    recorder.memory.save(tmp_path / "then")
    play(recorder, 80)
    recorder.memory.save(tmp_path / "uninterrupted")

    resumed = recorder_over(ReplayMemory.load(tmp_path / "then"))
    resumed.load_state_dict(state)
    play(resumed, 80)
    resumed.memory.save(tmp_path / "resumed")

    recorder.close()
    resumed.close()
    assert saved_bytes(tmp_path / "uninterrupted") == saved_bytes(tmp_path / "resumed")


class WithSocket(NumberedEnv):
    """Has something that nobody can keep, and another first episode in each process."""

    def __init__(self, env_id, first_episode):
        super().__init__(env_id, (4, 6), ("terminated", "truncated"))
        self.episode = first_episode - 1

    def state(self):
        raise NotImplementedError("a socket cannot be kept")


@pytest.mark.parametrize("mode", MODES)
def test_one_environment_without_a_state_beside_one_with_it_loses_its_episode_alone(mode, tmp_path):
    def recorder_over(memory, first_episode):
        envs = [lambda: made(0), lambda: WithSocket(1, first_episode)]
        return Recorder(SerialVectorEnv(envs, mode), memory)

    recorder = recorder_over(memory_of(), 0)
    recorder.reset()
    stepped(recorder, 3)
    recorder.memory.save(tmp_path / "memory")

    resumed = recorder_over(ReplayMemory.load(tmp_path / "memory"), 50)
    with pytest.warns(UserWarning, match=re.escape("environments [1] restart")):
        resumed.load_state_dict(recorder.state_dict())
    outcomes = stepped(resumed, 8)

    assert [list(lost_episodes(outcome[4])) for outcome in outcomes] == [[1], *[[]] * 7]
    batch = resumed.memory.get(resumed.memory.sampleable_indices())
    frames, next_frames = batch.observation[:, -1, 0], batch.next_observation[:, -1, 0]
    assert np.array_equal(frames + np.array([0, 0, 1]), next_frames)
    of_0 = [tuple(frame) for frame in frames.tolist() if frame[0] == 0]
    assert of_0[:6] == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 0), (0, 1, 1)]
    assert [frame[1] for frame in frames.tolist() if frame[0] == 1][:4] == [0, 0, 0, 50]
    resumed.memory.inner.parts.check()


@pytest.mark.parametrize("mode", MODES)
def test_every_episode_restarts_if_a_repaired_memory_lost_the_newest_frames(mode, tmp_path):
    sealed_after = ReplayMemory(
        40, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, stack=2, num_envs=2, frames_per_segment=3
    )
    recorder = Recorder(SerialVectorEnv([lambda s=s: made(s) for s in range(2)], autoreset_mode=mode), sealed_after)
    recorder.reset()
    stepped(recorder, 2)
    state = recorder.state_dict()
    recorder.memory.save(tmp_path)
    for ((name, offset),) in blocks_of(tmp_path, "frames").values():
        flip(name, offset + 3)(tmp_path)
    repair_store(tmp_path)

    memory = ReplayMemory.load(tmp_path)
    resumed = Recorder(SerialVectorEnv([lambda s=s: made(s) for s in range(2)], autoreset_mode=mode), memory)
    resumed.load_state_dict(state)
    _, _, _, truncated, infos = stepped(resumed, 1)[0]
    stepped(resumed, 3)

    assert [0, 1] == list(lost_episodes(infos))
    assert "its memory has lost the newest frames" in lost_episodes(infos)[0]
    assert truncated.all()
    memory.inner.parts.check()
    batch = memory.get(memory.sampleable_indices())
    assert len(batch) >= 4
    assert {1} == set(batch.observation[:, -1, 0, 1].tolist())  # all of the second episode
    assert (batch.next_observation[:, -1, 0, 2] == batch.observation[:, -1, 0, 2] + 1).all()
