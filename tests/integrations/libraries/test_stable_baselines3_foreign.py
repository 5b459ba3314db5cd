"""A ``VecEnv`` of Stable-Baselines3 is told what it is wherever a vector environment of Gymnasium is taken."""

from __future__ import annotations

import pytest
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

from framestow.envs import Recorder, SerialVectorEnv
from framestow.errors import InvalidSettingsError
from framestow.integrations.gymnasium import VectorFrameStack
from oracles.numbered_frames import ListSink, NumberedEnv


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: VecFrameStack(env, 2)], ids=["plain", "wrapped"])
@pytest.mark.parametrize(
    "take",
    [
        lambda env: Recorder(env, ListSink(2)),
        lambda env: VectorFrameStack(env, 2),
        lambda env: SerialVectorEnv([lambda: env]),
    ],
    ids=["Recorder", "VectorFrameStack", "SerialVectorEnv"],
)
def test_it_is_named_with_the_way_out(wrap, take):
    env = wrap(DummyVecEnv([NumberedEnv] * 2))

    with pytest.raises(
        InvalidSettingsError,
        match=r"a vector environment of Baselines or Stable-Baselines3: it must be an environment of Gymnasium; "
        r"give the functions that make its environments to SerialVectorEnv or WorkerVectorEnv",
    ):
        take(env)
