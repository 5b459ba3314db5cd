"""An environment that shows samples of any space, in episodes of random lengths and endings."""

from __future__ import annotations

from copy import deepcopy

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

SPACES = {
    "pixels": Box(0, 255, (6, 5), np.uint8),
    "channels": Box(0, 255, (4, 3, 2), np.uint8),
    "bounded away from zero": Box(np.array([1, -5], np.float32), np.array([2, -1], np.float32)),
    "number": Box(-1, 1, (), np.float64),
    "discrete": Discrete(5, start=-2),
    "flags": MultiBinary((2, 3)),
    "codes": MultiDiscrete([3, 4]),
    "dict": Dict({"camera": Box(0, 255, (4, 4), np.uint8), "arm": Tuple([Box(-1, 1, (3,)), Discrete(3)])}),
}


class RandomEnv(gymnasium.Env):
    """The same seed gives the same play, whatever the actions."""

    def __init__(self, space: gymnasium.Space, seed: int, longest: int = 7) -> None:
        self.observation_space = deepcopy(space)  # which is seeded for each sample
        self.action_space = Discrete(3)
        self.generator, self.longest = np.random.default_rng(seed), longest
        self.steps_left = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps_left = int(self.generator.integers(1, self.longest))
        return self.shown(), {}

    def step(self, action):
        assert self.steps_left > 0, "stepped after its end"
        self.steps_left -= 1
        is_over, kind = self.steps_left == 0, self.generator.integers(3)
        return self.shown(), float(action), is_over and kind != 1, is_over and kind != 0, {}

    def shown(self):
        self.observation_space.seed(int(self.generator.integers(2**31)))
        return self.observation_space.sample()
