"""The demands on any vector environment, made of the one with worker processes; its state is the serial one's."""

from __future__ import annotations

from functools import partial

import pytest
from gymnasium.vector import AutoresetMode

from batteries.resumed_vector_battery import ResumedVectorBattery, through_a_file
from batteries.vector_env_battery import VectorEnvBattery
from framestow.envs import AtariEnv, SerialVectorEnv, WorkerVectorEnv
from oracles.playing_envs import SpaceEnv
from oracles.vector_answers import play_alike


def in_workers(env_fns, mode=AutoresetMode.NEXT_STEP, seed=None):
    return WorkerVectorEnv(env_fns, mode, seed=seed, num_workers=min(2, len(env_fns)), start_method="fork")


class TestWorkerVectorEnv(VectorEnvBattery, ResumedVectorBattery):
    def make_vector(self, env_fns, mode, seed):
        return in_workers(env_fns, mode, seed)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("makes", [(SerialVectorEnv, in_workers), (in_workers, SerialVectorEnv)])
@pytest.mark.parametrize("env_fn", [partial(SpaceEnv, "picture and text"), partial(AtariEnv, "Breakout", "nature")])
def test_a_run_in_one_process_goes_on_in_workers_and_back(makes, mode, env_fn):
    first, second = (make([env_fn] * 3, mode) for make in makes)
    first.reset(seed=1)
    second.reset(seed=2)
    for number in range(13):
        _, _, terminated, truncated, _ = first.step([number % 4] * 3)
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            first.reset(options={"reset_mask": terminated | truncated})

    second.load_state_dict(through_a_file(first.state_dict()))

    play_alike(first, second, 20)
    first.close()
    second.close()
