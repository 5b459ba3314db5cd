"""What ``repr`` prints of environments, vector environments and recorders: one line that says what they are."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from framestow import ReplayMemory
from framestow.envs import AtariEnv, Recorder, SerialVectorEnv, WorkerVectorEnv, make_atari

FRAMES = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)


class Still(gymnasium.Env):
    """An environment that shows one grey frame for ever."""

    observation_space, action_space = FRAMES, gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((84, 84), np.uint8), {}

    def step(self, action):
        return np.zeros((84, 84), np.uint8), 0.0, False, False, {}


class Looking(Still):
    """The same with two arrays in an observation."""

    observation_space = gymnasium.spaces.Dict({"camera": FRAMES})


def test_a_vector_environment_shows_number_spaces_autoreset_mode_and_whether_it_is_closed():
    env = SerialVectorEnv([Still] * 8, autoreset_mode="SameStep")

    shown = "SerialVectorEnv(8 environments, observations (84, 84) uint8, actions Discrete(4), SameStep"
    assert f"{shown})" == repr(env)
    env.close()
    assert f"{shown}, closed)" == repr(env)


def test_an_observation_of_several_arrays_is_shown_as_gymnasium_shows_its_space():
    env = SerialVectorEnv([Looking])

    assert (
        f"SerialVectorEnv(1 environment, observations {Looking.observation_space}, actions Discrete(4), NextStep)"
        == (repr(env))
    )


def test_a_vector_environment_of_workers_shows_their_number_and_asks_them_nothing():
    env = WorkerVectorEnv([Still] * 3, num_workers=2)
    shown = "WorkerVectorEnv(3 environments, observations (84, 84) uint8, actions Discrete(4), NextStep"
    try:
        env.reset()
        env.step_async([0, 0, 0])  # an answer is on its way

        assert f"{shown}, 2 workers)" == repr(env)
    finally:
        env.close()
    assert f"{shown}, closed, 2 workers)" == repr(env)


def test_an_atari_game_shows_its_name_and_its_preset():
    env = AtariEnv("space_invaders", "nature")

    assert "AtariEnv(SpaceInvaders, nature)" == repr(env) == str(env)
    assert repr(make_atari("Pong", 2)).startswith("SerialVectorEnv(2 environments, observations (84, 84) uint8, ")


@pytest.mark.parametrize("make", [SerialVectorEnv, SyncVectorEnv])
def test_a_recorder_shows_its_environments_and_its_memory(make):
    env = make([Still, Still])
    memory = ReplayMemory(100, FRAMES, 4, stack=4, num_envs=2)
    assert f"Recorder({env!r}, {memory!r})" == repr(Recorder(env, memory))
    assert f"Recorder({env!r}, {memory!r}, reward_limit=1.0)" == repr(Recorder(env, memory, reward_limit=1.0))


def test_a_recorder_over_a_memory_of_ones_own_shows_that_too():
    class Steps:
        num_envs, stack = 1, 4

        def begin(self, frames, env_ids=None): ...

        def append(self, actions, rewards, terminated, truncated, frames, env_ids=None, extras=None): ...

        def observations(self):
            return np.zeros((1, 4, 84, 84), np.uint8)

        def __repr__(self):
            return "Steps"

    assert repr(Recorder(SerialVectorEnv([Still]), Steps())).endswith(", NextStep), Steps)")
