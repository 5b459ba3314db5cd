"""An observation outside its space raises an error that names the environment; all then need a reset."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from framestow.envs import SerialVectorEnv, WorkerVectorEnv
from framestow.errors import EnvironmentFailedError, InvalidStepError


class MisfitEnv(gymnasium.Env):
    """Return ``odd`` in the second step, else an observation of the space."""

    observation_space, action_space = Box(0, 255, (2,), np.uint8), Discrete(2)

    def __init__(self, odd=None):
        self.odd = odd

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros(2, np.uint8), {}

    def step(self, action):
        self.step_number += 1
        is_odd = self.step_number == 2 and self.odd is not None
        return self.odd if is_odd else np.full(2, self.step_number, np.uint8), 0.0, False, False, {}


@pytest.mark.parametrize(
    "make", [SerialVectorEnv, partial(WorkerVectorEnv, start_method="fork")], ids=["serial", "worker"]
)
@pytest.mark.parametrize(
    "odd", [np.zeros(3, np.uint8), np.zeros((1, 2), np.uint8), np.zeros(2, np.int64), "no array"], ids=str
)
def test_an_observation_of_another_shape_or_dtype_names_its_environment(make, odd):
    env = make([MisfitEnv, partial(MisfitEnv, odd), MisfitEnv])
    env.reset()
    env.step([0, 0, 0])

    with pytest.raises(EnvironmentFailedError, match="environment 1 ") as failure:
        env.step([0, 0, 0])
    with pytest.raises(InvalidStepError, match="no running episode"):
        env.step([0, 0, 0])

    assert 1 == failure.value.environment
    env.reset()
    assert [[1, 1]] * 3 == env.step([0, 0, 0])[0].tolist()
    env.close()
