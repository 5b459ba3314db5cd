"""The Recorder with observations of floats: scaled pixels, and vectors."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import DtypeObservation, TransformObservation

from framestow.envs.recording.recorder import Recorder
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.numbered_frames import NumberedEnv
from oracles.shadowed_memory import ShadowedMemory

NUM_ENVS = 2


def scaled(env: gymnasium.Env) -> gymnasium.Env:
    space = Box(0, 1, env.observation_space.shape, np.float32)
    return TransformObservation(env, lambda frame: frame.astype(np.float32) / 255, space)


def make_scaled(env_id: int) -> gymnasium.Env:
    return scaled(NumberedEnv(env_id, (3, 1, 7), ("terminated", "truncated")))


def make_cart_pole(_: int) -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", max_episode_steps=25)


def make_rescaled_cart_pole(_: int) -> gymnasium.Env:
    return DtypeObservation(make_cart_pole(0), np.float64)


MAKERS = {
    "scaled pixels": (make_scaled, {"k/255, as uint8"}),
    "a vector": (make_cart_pole, {"raw"}),
    "a vector of doubles": (make_rescaled_cart_pole, {"raw"}),
}


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", MAKERS)
def test_sampled_observations_equal_those_of_the_policy_with_the_dtype_of_the_space(name, mode):
    make, kept = MAKERS[name]
    inner = SyncVectorEnv([lambda env_id=env_id: make(env_id) for env_id in range(NUM_ENVS)], autoreset_mode=mode)
    space = inner.single_observation_space
    memory = ShadowedMemory(100, space, inner.single_action_space, stack=2, num_envs=NUM_ENVS, seed=0)
    env = Recorder(inner, memory)
    env.action_space.seed(0)

    observations, _ = env.reset(seed=0)
    for _ in range(80):
        assert space.dtype == observations.dtype
        assert env.observation_space.contains(observations)
        assert memory.observations().tobytes() == observations.tobytes()
        observations, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            observations, _ = env.reset(options={"reset_mask": terminated | truncated})

    assert_memory_is_what_the_oracle_holds(memory, memory.oracle)
    batch = memory.sample(32)
    assert space.dtype == batch.observation.dtype
    assert kept == {how for how, count in memory.report().frames.items() if count}
    env.close()
