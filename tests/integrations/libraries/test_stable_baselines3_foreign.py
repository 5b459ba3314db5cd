"""A ``VecEnv`` of Stable-Baselines3, or our drop-in, is refused by name where one of Gymnasium is taken."""

from __future__ import annotations

import pytest
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

from framestow.envs import Recorder, SerialVectorEnv
from framestow.errors import InvalidSettingsError
from framestow.integrations import classic, stable_baselines3
from framestow.integrations.gymnasium import VectorFrameStack
from oracles.numbered_frames import ListSink, NumberedEnv


@pytest.mark.parametrize(
    "make",
    [
        DummyVecEnv,
        lambda env_fns: VecFrameStack(DummyVecEnv(env_fns), 2),
        stable_baselines3.DummyVecEnv,
        classic.DummyVecEnv,
    ],
    ids=["theirs", "theirs in a wrapper", "our drop-in", "our drop-in for Baselines"],
)
@pytest.mark.parametrize(
    "take",
    [
        lambda env: Recorder(env, ListSink(2)),
        lambda env: VectorFrameStack(env, 2),
        lambda env: SerialVectorEnv([lambda: env]),
    ],
    ids=["Recorder", "VectorFrameStack", "SerialVectorEnv"],
)
def test_it_is_named_with_the_way_out(make, take):
    env = make([NumberedEnv] * 2)

    with pytest.raises(
        InvalidSettingsError,
        match=r"a vector environment of Baselines or Stable-Baselines3: it must be an environment of Gymnasium; "
        r"give the functions that make its environments to SerialVectorEnv or WorkerVectorEnv",
    ):
        take(env)
