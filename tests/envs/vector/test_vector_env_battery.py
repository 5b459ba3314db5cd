"""SerialVectorEnv passes the battery of all vector environments."""

from __future__ import annotations

from batteries.resumed_vector_battery import ResumedVectorBattery
from batteries.vector_env_battery import VectorEnvBattery
from framestow.envs import SerialVectorEnv


class TestSerialVectorEnv(VectorEnvBattery, ResumedVectorBattery):
    def make_vector(self, env_fns, mode, seed):
        return SerialVectorEnv(env_fns, mode, seed=seed)
