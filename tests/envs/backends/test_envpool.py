"""EnvpoolVectorEnv over pools of EnvPool; skipped without envpool."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from framestow.envs import EnvpoolVectorEnv, Recorder, finished_games, lost_episodes
from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.replay.memory import ReplayMemory
from oracles.numbered_frames import ListSink

envpool = pytest.importorskip("envpool")

# Games of 120 agent steps, without chance.
SETTINGS = {"noop_max": 1, "repeat_action_probability": 0.0, "max_episode_steps": 30, "reward_clip": False}


def pool_of(task="Breakout-v5", num_envs=3, **settings):
    return envpool.make_gymnasium(task, num_envs=num_envs, **{"stack_num": 1, "seed": 7, **SETTINGS, **settings})


def test_it_is_a_vector_environment_of_single_frames():
    vector = EnvpoolVectorEnv(pool_of())
    frames, infos = vector.reset()

    assert vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert vector.single_observation_space == gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
    assert vector.observation_space.contains(frames)
    assert vector.single_action_space == gymnasium.spaces.Discrete(4)
    assert infos["lives"].tolist() == [5, 5, 5]
    assert infos["_lives"].tolist() == [True] * 3
    assert "env_id" not in infos


def test_the_recorded_steps_equal_those_of_the_pool():
    sink = ListSink(3, stack=2, shape=(84, 84))
    recorder = Recorder(EnvpoolVectorEnv(pool_of()), sink)
    recorder.reset()
    actions = np.random.default_rng(0).integers(4, size=(100, 3))
    for chosen in actions:
        recorder.step(chosen)

    pool = pool_of()
    frames, _ = pool.reset()
    expected = [[("begin", frame.tobytes())] for frame in frames]
    has_ended = np.zeros(3, bool)
    for chosen in actions:
        frames, rewards, terminated, truncated, _ = pool.step(chosen.astype(np.int32))
        for number in range(3):
            if has_ended[number]:
                expected[number].append(("begin", frames[number].tobytes()))
            else:
                flags = (bool(terminated[number]), bool(truncated[number]))
                step = ("step", int(chosen[number]), float(rewards[number]), *flags, frames[number].tobytes())
                expected[number].append(step)
        has_ended = terminated | truncated

    assert sum(entry[0] == "begin" for entry in expected[0]) == 4
    assert expected == sink.log


def test_games_are_reported_with_their_unclipped_scores_over_all_lives():
    vector = EnvpoolVectorEnv(pool_of(episodic_life=True, reward_clip=True, max_episode_steps=10_000, num_envs=1))
    vector.reset()
    actions, games, score, lengths = np.random.default_rng(0), [], 0.0, 0
    num_lives_lost, was_over = 0, False
    while not games:
        _, _, terminated, truncated, infos = vector.step(actions.integers(4, size=1))
        score, lengths = score + infos["reward"][0], lengths + (not was_over)
        was_over = bool(terminated[0] or truncated[0])
        num_lives_lost += was_over
        games += finished_games(infos)

    assert num_lives_lost == 5
    assert games == [(0, score, lengths)]
    assert not finished_games(vector.step([0])[4])


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 0], "actions have shape (2,): they must have shape (3,)"),
        ([0, 0, 4], "action 4 for environment 2: Discrete(4) takes 0 to 3"),
        ([0, -1, 0], "action -1 for environment 1"),
        ([0.0, 1.0, 2.0], "actions have dtype float64"),
    ],
)
def test_actions_that_would_end_the_process_are_refused(actions, message):
    vector = EnvpoolVectorEnv(pool_of())
    with pytest.raises(InvalidStepError, match="no running episode"):
        vector.step([0, 0, 0])
    vector.reset()

    with pytest.raises(InvalidStepError, match=re.escape(message)):
        vector.step(actions)

    assert vector.step([0, 0, 0])[4]["elapsed_step"].tolist() == [1, 1, 1]


def test_a_masked_reset_begins_the_masked_only_and_keeps_the_callers_options():
    sink = ListSink(3, shape=(84, 84))
    recorder = Recorder(EnvpoolVectorEnv(pool_of()), sink)
    recorder.reset()
    for _ in range(10):
        before, *_ = recorder.step([1, 2, 3])
    options = {"reset_mask": np.array([False, True, False])}

    after, infos = recorder.reset(options=options)

    assert list(options) == ["reset_mask"]
    assert np.array_equal(before[[0, 2]], after[[0, 2]])
    assert not np.array_equal(before[1], after[1])
    assert infos["_lives"].tolist() == [False, True, False]
    assert recorder.step([1, 2, 3])[4]["elapsed_step"].tolist() == [11, 1, 11]
    assert [[entry[0] for entry in log].count("begin") for log in sink.log] == [1, 2, 1]


def test_a_resumed_run_restarts_its_episodes_and_keeps_the_stored_transitions(tmp_path):
    def made(memory):
        return Recorder(EnvpoolVectorEnv(pool_of()), memory)

    vector = EnvpoolVectorEnv(pool_of())
    space, actions = vector.single_observation_space, vector.single_action_space
    recorder = made(ReplayMemory(200, space, actions, stack=4, num_envs=3, seed=0))
    recorder.reset()
    for _ in range(10):
        recorder.step([1, 2, 3])
    recorder.memory.save(tmp_path / "memory")

    resumed = made(ReplayMemory.load(tmp_path / "memory"))
    resumed.load_state_dict(recorder.state_dict())
    first = resumed.step([1, 2, 3])
    resumed.step([1, 2, 3])
    resumed.step([1, 2, 3])

    assert list(lost_episodes(first[4])) == [0, 1, 2]
    assert len(resumed.memory) == 33
    resumed.memory._check()


def test_a_pool_alone_is_refused_by_the_recorder_and_the_adapter_is_named():
    with pytest.raises(InvalidSettingsError, match=re.escape("use Recorder(EnvpoolVectorEnv(pool), memory)")):
        Recorder(pool_of(), ListSink(3))


def test_pools_that_cannot_feed_a_memory_are_refused():
    for settings, message in (
        ({"stack_num": 4}, "pool has stack_num 4: the memory stacks frames; make it with stack_num=1"),
        ({"batch_size": 2}, "pool has batch_size 2: all environments must step together; make it with batch_size=3"),
    ):
        with pytest.raises(InvalidSettingsError, match=re.escape(message)):
            EnvpoolVectorEnv(pool_of(**settings))
    with pytest.raises(InvalidSettingsError, match="it must be a pool with Gymnasium spaces"):
        EnvpoolVectorEnv(envpool.make_dm("Breakout-v5", num_envs=2))
    with pytest.raises(InvalidSettingsError, match="seed is 3: a pool has a fixed seed"):
        EnvpoolVectorEnv(pool_of()).reset(seed=3)


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_other_tasks_and_continuous_actions_play_too():
    pool = envpool.make_gymnasium("Pendulum-v1", num_envs=2, seed=1)
    vector = EnvpoolVectorEnv(pool)
    observations, _ = vector.reset()
    action = np.full((2, 1), 0.5, np.float32)

    observations, rewards, *_ = vector.step(action)

    assert vector.observation_space.contains(observations)
    assert rewards.dtype == np.float64
    with pytest.raises(InvalidStepError, match="for environment 1: it is not in Box"):
        vector.step([[0.5], [99.0]])


def test_returned_arrays_are_copies_and_a_closed_environment_raises():
    vector = EnvpoolVectorEnv(pool_of())
    vector.reset()
    frames, *_ = vector.step([0, 0, 0])
    copy = frames.copy()
    frames[:] = 7

    after, _ = vector.reset(options={"reset_mask": np.array([True, False, False])})
    vector.close()
    vector.close()

    assert np.array_equal(copy[1:], after[1:])
    with pytest.raises(InvalidStepError, match="closed"):
        vector.step([0, 0, 0])
