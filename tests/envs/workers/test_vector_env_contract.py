"""WorkerVectorEnv passes the contract test of all vector environments."""

from __future__ import annotations

from functools import partial

import pytest
from gymnasium.vector import AutoresetMode

from contracts.resumed_vector_contract import ResumedVectorContract
from contracts.vector_env_contract import VectorEnvContract
from framestow.envs import SerialVectorEnv, WorkerVectorEnv
from framestow.training.checkpoint import pack_state, unpack_state
from oracles.equal_vectors import play_alike
from oracles.playing_envs import SealedEnv, SpaceEnv


def in_two_workers(env_fns, mode, seed=None) -> WorkerVectorEnv:
    return WorkerVectorEnv(env_fns, mode, seed=seed, num_workers=min(2, len(env_fns)) or None, start_method="fork")


class TestWorkerVectorEnv(VectorEnvContract, ResumedVectorContract):
    def make_vector(self, env_fns, mode, seed):
        return in_two_workers(env_fns, mode, seed)


@pytest.mark.each_value
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("is_worker_first", [False, True])
def test_a_run_resumes_from_the_state_of_the_other_kind(mode, is_worker_first):
    envs = [partial(SpaceEnv, "picture and text"), partial(SealedEnv, "picture and text")]
    makers = [in_two_workers, SerialVectorEnv] if is_worker_first else [SerialVectorEnv, in_two_workers]
    first, second, same = (make(envs, mode) for make in (*makers, makers[0]))
    first.reset(seed=3)
    first.step([0, 1])
    state = unpack_state(pack_state(first.state_dict()))
    for each in (second, same):
        with pytest.warns(UserWarning, match="restart, and their episodes"):
            each.load_state_dict(state)

    play_alike(same, second, 15)

    for each in (first, second, same):
        each.close()
