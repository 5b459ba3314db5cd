"""Arguments of environments in workers, and arguments refused before a process starts."""

from __future__ import annotations

import multiprocessing

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from framestow.envs import WorkerVectorEnv
from framestow.errors import InvalidSettingsError


class OptionEatingEnv(gymnasium.Env):
    """Remove a key from its options, as Gymnasium's vector environments do."""

    observation_space, action_space = Box(0, 255, (1, 1), np.uint8), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((1, 1), np.uint8), {"told": (options or {}).pop("tell", "nothing")}


def test_a_setting_that_cannot_work_is_refused_before_a_process_is_started():
    before = multiprocessing.active_children()

    with pytest.raises(InvalidSettingsError, match="on_worker_lost is 'ignore'") as refused:
        WorkerVectorEnv([OptionEatingEnv] * 2, start_method="fork", on_worker_lost="ignore")

    assert before == multiprocessing.active_children(), refused  # the error keeps references to a started environment
