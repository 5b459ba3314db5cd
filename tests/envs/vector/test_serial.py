"""SerialVectorEnv: what the contract test of all vector environments does not test."""

from __future__ import annotations

import re
from functools import partial

import pytest
from gymnasium.wrappers import TimeLimit

from framestow.envs import SerialVectorEnv, WorkerVectorEnv, make_atari
from framestow.errors import (
    EnvironmentFailedError,
    FramestowError,
    IncompatibleError,
    InvalidSettingsError,
    InvalidStepError,
)
from oracles.numbered_frames import NumberedEnv
from oracles.playing_envs import CustomSpace


class BadCloser(NumberedEnv):
    def close(self):
        super().close()
        raise OSError("will not close")


def test_close_closes_every_environment_once_also_after_one_that_refuses():
    vector = SerialVectorEnv([NumberedEnv, BadCloser, NumberedEnv])

    with pytest.raises(EnvironmentFailedError, match="environment 1 raised OSError at its close"):
        vector.close()
    vector.close()

    assert [env.num_closes for env in vector.envs] == [1, 1, 1]
    with pytest.raises(InvalidStepError, match="closed"):
        vector.reset()
    with pytest.raises(InvalidStepError, match="closed"):
        vector.step([0, 0, 0])


def test_a_factory_that_fails_leaves_no_environment_open():
    made = []

    def make():
        made.append(NumberedEnv())
        return made[-1]

    def fail():
        raise OSError("no rom")

    with pytest.raises(OSError, match="no rom"):
        SerialVectorEnv([make, make, fail])

    assert [env.num_closes for env in made] == [1, 1]


def test_the_error_of_a_factory_is_not_hidden_by_that_of_a_close():
    def fail():
        raise OSError("no rom")

    with pytest.raises(OSError, match="no rom"):
        SerialVectorEnv([BadCloser, fail])


@pytest.mark.parametrize("make", [SerialVectorEnv, partial(WorkerVectorEnv, start_method="fork")])
def test_a_factory_that_returns_no_environment_is_named(make):
    with pytest.raises(FramestowError, match=re.escape("env_fns[1] returned None: it must return an environment")):
        make([NumberedEnv, lambda: None, NumberedEnv])


class UnbatchableSpace(CustomSpace):
    def __deepcopy__(self, memo):
        raise TypeError("cannot be copied")


def unbatchable_env():
    env = NumberedEnv()
    env.observation_space = UnbatchableSpace()
    return env


def test_a_space_that_cannot_be_batched_is_refused_at_construction():
    with pytest.raises(InvalidSettingsError, match=r"Gymnasium cannot batch them \(cannot be copied\); use spaces"):
        SerialVectorEnv([unbatchable_env] * 2)


def test_after_a_state_that_does_not_fit_all_environments_need_a_reset():
    state = SerialVectorEnv([NumberedEnv] * 2).state_dict()
    vector = SerialVectorEnv([lambda: TimeLimit(NumberedEnv(), 3)] * 2)
    vector.reset()

    with pytest.raises(IncompatibleError, match="TimeLimit has not both"):
        vector.load_state_dict(state)

    with pytest.raises(InvalidStepError, match="call reset"):
        vector.step([0, 0])


def test_no_environments_at_all_are_refused_for_games_too():
    with pytest.raises(InvalidSettingsError, match="num_envs is 0"):
        make_atari("Pong", 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 2}, "workers is 2 and num_envs is None: workers step vector environments; give num_envs too"),
        (
            {"num_envs": 1, "workers": 2},
            "workers is 2: it must be from 0 (this process) to the number of environments, 1",
        ),
        ({"workers": False}, "workers is False: it must be a whole number; it must be from 0 (this process)"),
    ],
)
def test_workers_that_have_no_environment_are_refused(settings, message):
    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        make_atari("Pong", **settings)
