"""A wrong observation or info raises an error that names the environment; all then need a reset."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from framestow.envs import SerialVectorEnv, WorkerVectorEnv
from framestow.errors import EnvironmentFailedError, InvalidStepError


class MisfitEnv(gymnasium.Env):
    """Return ``odd`` in the second step, else an observation of the space; and ``info`` there or in the reset."""

    observation_space, action_space = Box(0, 255, (2,), np.uint8), Discrete(2)

    def __init__(self, odd=None, info=(), at_reset=False):
        self.odd, self.infos = odd, {(0 if at_reset else 2): info} if info != () else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros(2, np.uint8), self.infos.get(0, {})

    def step(self, action):
        self.step_number += 1
        is_odd = self.step_number == 2 and self.odd is not None
        observation = self.odd if is_odd else np.full(2, self.step_number, np.uint8)
        return observation, 0.0, False, False, self.infos.get(self.step_number, {})


each_kind = pytest.mark.parametrize(
    "make", [SerialVectorEnv, partial(WorkerVectorEnv, start_method="fork")], ids=["serial", "worker"]
)
WRONG = [np.zeros(3, np.uint8), np.zeros((1, 2), np.uint8), np.zeros(2, np.int64), "no array"]


@pytest.mark.each_value
@each_kind
@pytest.mark.parametrize("wrong", [*({"odd": odd} for odd in WRONG), {"info": None}, {"info": ["no dict"]}], ids=str)
def test_an_observation_of_another_shape_or_dtype_or_an_info_names_its_environment(make, wrong):
    env = make([MisfitEnv, partial(MisfitEnv, **wrong), MisfitEnv])
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


@each_kind
@pytest.mark.parametrize("info", [None, ["no dict"]], ids=str)
def test_an_info_of_a_reset_that_is_no_dict_names_its_environment(make, info):
    env = make([MisfitEnv, partial(MisfitEnv, info=info, at_reset=True)])

    with pytest.raises(EnvironmentFailedError, match=r"environment 1 raised .* at its reset: info is of type"):
        env.reset()

    env.close()
