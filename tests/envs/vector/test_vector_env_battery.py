"""The demands on any vector environment, made of the one in this process."""

from __future__ import annotations

from batteries.resumed_vector_battery import ResumedVectorBattery
from batteries.vector_env_battery import VectorEnvBattery
from framestow.envs import SerialVectorEnv


class TestSerialVectorEnv(VectorEnvBattery, ResumedVectorBattery):
    def make_vector(self, env_fns, mode, seed):
        return SerialVectorEnv(env_fns, mode, seed=seed)
