"""Infos that cannot be pickled raise an error, and all environments then need a reset."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from framestow.envs import WorkerVectorEnv
from framestow.errors import EnvironmentFailedError, InvalidStepError


class Unreadable:
    """Can be pickled, and not read again."""

    def __reduce__(self):
        return int, ("no number",)


class OddEnv(gymnasium.Env):
    """Tells ``odd_info`` at its second step."""

    observation_space, action_space = Box(0, 255, (1, 1), np.uint8), Discrete(2)

    def __init__(self, odd_info):
        self.odd_info = odd_info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros((1, 1), np.uint8), {}

    def step(self, action):
        self.step_number += 1
        info = self.odd_info if self.step_number == 2 else {}
        return np.full((1, 1), self.step_number, np.uint8), 1.0, False, False, info


@pytest.mark.parametrize(
    ("infos", "error", "message"),
    [
        (({"x": 3}, {"x": None}), InvalidStepError, "Gymnasium cannot batch them"),
        (
            ({}, {"x": Unreadable()}),
            EnvironmentFailedError,
            r"answer of worker 1 \(environment 1\) cannot be unpickled",
        ),
    ],
    ids=["of several kinds", "unreadable"],
)
def test_after_a_step_with_unpicklable_infos_all_environments_need_a_reset(infos, error, message):
    env = WorkerVectorEnv([partial(OddEnv, info) for info in infos], num_workers=2, start_method="fork")
    env.reset()
    env.step([0, 0])

    with pytest.raises(error, match=message):
        env.step([0, 0])
    with pytest.raises(InvalidStepError, match="no running episode"):
        env.step([0, 0])

    env.reset()
    assert [1, 1] == env.step([0, 0])[0].ravel().tolist()
    env.close()
