"""Toy environments that worker processes can make: of any space, seeded, or slow."""

from __future__ import annotations

import time
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Text, Tuple
from gymnasium.vector.utils import concatenate


class CustomSpace(gymnasium.Space):
    """A space unknown to Gymnasium."""

    def __init__(self):
        super().__init__()

    def sample(self, mask=None, probability=None):
        return {"any": int(self.np_random.integers(100))}

    def contains(self, x):
        return isinstance(x, dict)

    def __eq__(self, other):
        return isinstance(other, CustomSpace)

    __hash__ = None


class ScaledSpace(Box):
    """A space of arrays with a user-defined ``concatenate``."""


@concatenate.register(ScaledSpace)
def _concatenate_scaled(space, items, out):
    return [item / 2 for item in items]


SPACES = {
    "picture": Box(0, 255, (4, 3), np.uint8),
    "float32": Box(-1, 1, (2,), np.float32),
    "discrete": Discrete(4),
    "discrete from 3": Discrete(4, start=3),
    "multi discrete": MultiDiscrete([2, 3]),
    "multi binary": MultiBinary(3),
    "nested": Dict({"picture": Box(0, 255, (2, 2), np.uint8), "pair": Tuple((Discrete(3), Box(-1, 1, (2,))))}),
    "text": Text(5),
    "picture and text": Dict({"picture": Box(0, 255, (2, 2), np.uint8), "mission": Text(8)}),
    "text in a tuple": Tuple((Text(3), Discrete(2), Dict({"deep": Tuple((Text(2), MultiBinary(2)))}))),
    "sequence": Sequence(Box(0, 1, (2,))),
    "custom": CustomSpace(),
    "batched by its user": ScaledSpace(0, 8, (2,)),
    "custom inside": Dict({"own": CustomSpace(), "number": Discrete(3)}),
}


class SpaceEnv(gymnasium.Env):
    """Return samples of any space, seeded by reset; episodes end at random, and infos vary. It can be saved."""

    def __init__(self, observation_space="discrete", action_space="discrete"):
        self.observation_space = deepcopy(SPACES[observation_space])  # copied, so that each has its own generator
        self.action_space = deepcopy(SPACES[action_space])
        self.actions: list[Any] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.sampled(), {"options": options, "drawn": int(self.np_random.integers(1000))}

    def step(self, action):
        self.actions.append(action)
        chance = self.np_random.random()
        info = {"chance": chance, "action": repr(action)} if chance < 0.7 else {}
        if chance < 0.2:
            info["nested"] = {"array": np.arange(3) * chance, "text": "low"}
        return self.sampled(), chance, chance < 0.1, chance > 0.9, info

    def sampled(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def state(self) -> dict[str, Any]:
        return {"generator": self.np_random.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        self.np_random.bit_generator.state = state["generator"]


class LimitedEnv(gymnasium.Wrapper):
    """Truncates episodes, and saves how far they are together with the environment inside."""

    def __init__(self, env: gymnasium.Env, limit: int) -> None:
        super().__init__(env)
        self.limit, self.num_steps = limit, 0

    def reset(self, *, seed=None, options=None):
        self.num_steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.num_steps += 1
        return observation, reward, terminated, truncated or self.num_steps == self.limit, info

    def state(self) -> dict[str, Any]:
        return {"inside": self.env.state(), "num_steps": self.num_steps}

    def restore(self, state: dict[str, Any]) -> None:
        self.env.restore(state["inside"])
        self.num_steps = state["num_steps"]


class SlowEnv(gymnasium.Env):
    """Sleep for the milliseconds given by the action, and return the number of steps."""

    def __init__(self, number=0):
        self.observation_space, self.action_space = Box(-1000, 1000, (2,), np.int64), Discrete(10_000)
        self.number, self.num_steps, self.episode = number, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.num_steps = 0
        return self.shown(), {}

    def step(self, action):
        time.sleep(float(action) / 1000)
        self.num_steps += 1
        return self.shown(), float(action), False, False, {"step": self.num_steps}

    def shown(self):
        return np.array([self.number, self.num_steps])


class SealedEnv(SpaceEnv):
    """An environment that cannot be saved."""

    state = restore = None


class NumberGivingEnv(SpaceEnv):
    """Return the given reward."""

    def __init__(self, reward):
        super().__init__("picture")
        self.reward = reward

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, self.reward, terminated, truncated, info


class ShownEnv(SpaceEnv):
    """Render an image filled with its number."""

    def __init__(self, number=0, render_mode="rgb_array"):
        super().__init__("picture")
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
        self.number, self.render_mode = number, render_mode

    def render(self):
        return np.full((2, 3, 3), self.number, np.uint8)
