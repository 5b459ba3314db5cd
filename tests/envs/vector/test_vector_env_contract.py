"""SerialVectorEnv passes the contract test of all vector environments."""

from __future__ import annotations

from contracts.resumed_vector_contract import ResumedVectorContract
from contracts.vector_env_contract import VectorEnvContract
from framestow.envs import SerialVectorEnv


class TestSerialVectorEnv(VectorEnvContract, ResumedVectorContract):
    def make_vector(self, env_fns, mode, seed):
        return SerialVectorEnv(env_fns, mode, seed=seed)
