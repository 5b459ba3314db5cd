"""Infos are batched as Gymnasium does, and named where Gymnasium cannot."""

from __future__ import annotations

import math
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from framestow.envs.vector.infos import batch_infos
from framestow.errors import InvalidStepError
from oracles.equal_vectors import assert_same


class TellingEnv(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(9), gymnasium.spaces.Discrete(2)

    def __init__(self, info):
        self.info = info

    def reset(self, *, seed=None, options=None):
        return 0, self.info


@pytest.mark.parametrize(
    "infos",
    [
        [
            {"lives": 3, "share": -0.0, "is_new": True},
            {"lives": -(2**63), "share": math.inf, "is_new": False},
            {"lives": 2**53 + 1, "share": 0.1, "is_new": True},
        ],
        [{}, {}],
        [{"lives": np.int8(3)}, {"lives": np.int8(4)}],
        [{"name": "ball"}, {"name": "bat"}],
        [{"episode": {"r": 1.0}}, {"episode": {"r": 2.0}}],
        [{"lives": 3, "_lives": True}, {"lives": 4, "_lives": False}],
        [{"final_obs": 3}, {"final_obs": 4}],
        [{"lives": 3}, {"lives": 3.5}],
        [{"lives": 3.5}, {"lives": 3}],
        [{"lives": True}, {"lives": 2}],
        [{"lives": 3}, {"lives": 3, "score": 1}],
        [{"lives": 3, "score": 1}, {"score": 2, "lives": 4}],
        [{"lives": 3}, {}],
    ],
    ids=repr,
)
def test_infos_are_batched_as_gymnasium_batches_them(infos):
    expected = SyncVectorEnv([partial(TellingEnv, info) for info in infos]).reset()[1]

    actual = batch_infos(infos, range(len(infos)), len(infos))

    assert list(expected) == list(actual)
    assert_same(expected, actual)


@pytest.mark.parametrize(
    "infos",
    [[{"lives": 3}, {"lives": None}], [{"x": np.zeros(2)}, {"x": np.zeros(3)}], [{"lives": 3}, {"lives": 2**64}]],
    ids=repr,
)
def test_infos_that_gymnasium_cannot_batch_are_named(infos):
    with pytest.raises(
        InvalidStepError, match=r"of environments \[0, 1\]: Gymnasium cannot batch them, .+; return the"
    ):
        batch_infos(infos, [0, 1], 2)
