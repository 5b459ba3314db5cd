"""Converting an observation to an array does not keep the array alive: Baselines issues 295, 896 and 943."""

from __future__ import annotations

import tracemalloc

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import SyncVectorEnv

from framestow.integrations.gymnasium import FrameStack, LazyFrames, VectorFrameStack
from framestow.process import live_bytes

FRAME_BYTES, STACK = 84 * 84, 4


class Noise(gymnasium.Env):
    """Frames of 84x84, all written into one array."""

    observation_space, action_space = Box(0, 255, (84, 84), np.uint8), Discrete(2)

    def __init__(self) -> None:
        self.generator, self.frame = np.random.default_rng(0), np.zeros((84, 84), np.uint8)

    def reset(self, *, seed=None, options=None):
        return self.step(0)[0], {}

    def step(self, action):
        self.frame[:] = self.generator.integers(256, dtype=np.uint8)
        return self.frame, 0.0, False, False, {}


def look_at_all(observations) -> int:
    return sum(int(np.asarray(observation)[-1, 0, 0]) for observation in observations)


@pytest.mark.parametrize("num_steps", [5_000, pytest.param(100_000, marks=pytest.mark.exhaustive)])
def test_converting_observations_to_arrays_does_not_keep_the_arrays(num_steps):
    env = FrameStack(Noise(), STACK)
    look_at_all([env.reset()[0]])
    bare = live_bytes()
    kept = [env.step(0)[0] for _ in range(num_steps)]
    held = live_bytes()
    tracemalloc.start()

    total = look_at_all(kept)

    grown_blocks = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert total > num_steps
    assert grown_blocks < FRAME_BYTES
    assert live_bytes() - held < 0.02 * (held - bare)
    # Less than a frame each, where some lie in holes of pages that other tests' objects keep resident.
    assert 0.8 * FRAME_BYTES < (held - bare) / num_steps < 1.06 * FRAME_BYTES


def test_observations_of_many_environments_take_a_frame_each():
    env = VectorFrameStack(SyncVectorEnv([Noise] * 4), STACK)
    env.reset()
    tracemalloc.start()

    kept = [lazy for _ in range(100) for lazy in env.step(np.zeros(4, np.int64))[0]]
    look_at_all(kept)

    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert all(isinstance(lazy, LazyFrames) for lazy in kept)
    assert taken < 400 * 1.06 * FRAME_BYTES
