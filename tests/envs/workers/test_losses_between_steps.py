"""The next step reports the running episodes of a worker that was lost between two steps."""

from __future__ import annotations

import os
import signal

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode

from framestow.envs import WorkerVectorEnv
from framestow.errors import WorkerLostError
from oracles.equal_vectors import assert_same, play_alike
from oracles.playing_envs import LimitedEnv, SpaceEnv

EPISODE = 3  # steps


class CountingEnv(gymnasium.Env):
    """Shows the number of the step, and refuses a step before a reset."""

    observation_space, action_space = Box(0, 255, (1, 1), np.uint8), Discrete(2)

    def __init__(self):
        self.step_number = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros((1, 1), np.uint8), {}

    def step(self, action):
        if self.step_number is None:
            raise RuntimeError("stepped before its first reset")
        self.step_number += 1
        return np.full((1, 1), self.step_number, np.uint8), 1.0, False, self.step_number == EPISODE, {}

    def ping(self):
        return os.getpid()


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore:worker 0:RuntimeWarning")
@pytest.mark.parametrize("num_steps", [1, EPISODE])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_next_step_reports_an_episode_lost_between_two_steps(mode, num_steps):
    env = WorkerVectorEnv([CountingEnv] * 2, mode, num_workers=1, start_method="fork", on_worker_lost="restart", seed=0)
    env.reset()
    for _ in range(num_steps):
        *_, truncated, _ = env.step([0, 0])
    waits_for_reset = bool(truncated.all()) and mode is not AutoresetMode.SAME_STEP
    os.kill(env.worker_pids[0], signal.SIGKILL)
    with pytest.raises(WorkerLostError, match="it was replaced"):
        env.call("ping")

    if waits_for_reset and mode is AutoresetMode.DISABLED:
        env.reset()
    observations, rewards, terminated, truncated, infos = env.step([0, 0])

    if waits_for_reset:
        assert "episode_lost" not in infos
        assert not (terminated | truncated).any()
        assert [int(mode is AutoresetMode.DISABLED)] * 2 == observations.ravel().tolist()
    else:
        assert [True, True] == infos["_episode_lost"].tolist() == truncated.tolist()
        assert [0, 0] == rewards.tolist()
        assert [False, False] == terminated.tolist()
        last = 0 if mode is AutoresetMode.SAME_STEP else num_steps
        assert [last] * 2 == observations.ravel().tolist()
    env.close()


def _limited_env():
    return LimitedEnv(SpaceEnv("picture"), EPISODE)


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore:worker [01]:RuntimeWarning")
@pytest.mark.parametrize("num_steps", [1, EPISODE])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_state_read_after_workers_were_lost_has_the_loss(mode, num_steps):
    env_fns, settings = [_limited_env] * 3, {"start_method": "fork", "on_worker_lost": "restart"}
    env, resumed = (WorkerVectorEnv(env_fns, mode, num_workers=2, **settings, seed=seed) for seed in (0, 1))
    env.reset()
    for _ in range(num_steps):
        env.step([0] * 3)
    for pid in env.worker_pids:  # as a signal to the whole process group ends all of them
        os.kill(pid, signal.SIGTERM)

    state = env.state_dict()
    resumed.load_state_dict(state)

    assert_same(state["observations"], resumed.state_dict()["observations"])
    play_alike(env, resumed, 3 * EPISODE)
    env.close()
    resumed.close()


def test_a_state_of_a_lost_worker_that_is_not_replaced_is_refused():
    env = WorkerVectorEnv([_limited_env] * 2, num_workers=1, start_method="fork")
    env.reset()
    os.kill(env.worker_pids[0], signal.SIGTERM)

    with pytest.raises(WorkerLostError, match=r"was killed by SIGTERM; only close\(\) works now"):
        env.state_dict()
    env.close()
