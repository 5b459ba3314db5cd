"""Environments with every kind of result that vector environments of other libraries take, and their comparison."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

BOX = spaces.Box(-1000, 1000, (2, 3), np.float32)
OBSERVATIONS = {
    "box": BOX,
    "bytes": spaces.Box(0, 255, (3,), np.uint8),
    "number": spaces.Discrete(100),
    "dict": spaces.Dict({"b": BOX, "a": spaces.Discrete(100)}),
    "tuple": spaces.Tuple((BOX, spaces.MultiBinary(2))),
}
ACTIONS = {
    "discrete": spaces.Discrete(3),
    "multi_discrete": spaces.MultiDiscrete([3, 4]),
    "box": spaces.Box(-1, 1, (2,), np.float32),
}
REWARDS = {"float": float, "int": int, "float32": np.float32, "array": lambda value: np.array([value])}


def times(factor: float) -> float:
    """A function that environments have as an attribute."""
    return 2 * factor


class OddEnv(gymnasium.Env[Any, Any]):
    """Observations tell environment, episode and step; infos tell the action and the arguments of the last reset.

    Episodes have 1 to 4 steps; every second one is truncated, every sixth both. Float observations are ``float64``.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 7}  # noqa: RUF012

    def __init__(self, number=0, observation="box", action="discrete", reward="float", render_mode=None):
        self.number, self.kind, self.reward = number, observation, REWARDS[reward]
        self.observation_space, self.action_space = OBSERVATIONS[observation], ACTIONS[action]
        self.render_mode, self.num_shown = render_mode, 0
        self.rule = times
        self.episode = self.time = 0

    def reset(self, **arguments):  # type: ignore[override]
        super().reset(seed=arguments.get("seed"))
        self.episode, self.time = self.episode + 1, 0
        draw = None if arguments.get("seed") is None else int(self.np_random.integers(1000))
        return self.shown(), {"episode": self.episode, "arguments": arguments, "draw": draw}

    def step(self, action):
        self.time += 1
        ends = self.time > (self.number + self.episode) % 4
        truncated = bool(ends and self.episode % 2 == 0)
        terminated = bool(ends and (not truncated or self.episode % 6 == 0))
        return self.shown(), self.reward(self.time + 10 * self.number), terminated, truncated, self.info(action)

    def info(self, action):
        info = {"action": (type(action).__name__, str(getattr(action, "dtype", "")), np.asarray(action).tolist())}
        if self.time % 2:
            info |= {"number": self.time, "share": 0.5, "name": f"step {self.time}", "nothing": None}
        else:
            info |= {"number": "none", "nested": {"list": [1, {"x": np.arange(self.time)}]}}
        return info if self.time != 3 else {}

    def shown(self):
        box = np.arange(6.0).reshape(2, 3) + 100 * self.number + 10 * self.episode + self.time + 1 / 3
        if self.kind == "number":
            return (self.number + self.time) % 100
        if self.kind == "bytes":
            return np.array([self.number, self.episode, self.time])  # int64, as many environments return
        if self.kind == "dict":
            return {"a": np.int64(self.time), "b": box, "unknown": 1}
        if self.kind == "tuple":
            return box, np.array([self.time % 2, 1], np.int8)
        return box

    def render(self):
        self.num_shown += 1
        return np.full((4, 6, 3), 10 * self.number + self.time, np.uint8)

    def square(self, value, plus=0):
        return value**2 + plus + self.number


class Marked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper to look for; ``reset`` passes its arguments on as they are."""

    def reset(self, **arguments):  # type: ignore[override]
        return self.env.reset(**arguments)


def odd_makers(num_envs, **arguments):
    """Functions that make ``OddEnv``, each second one wrapped in ``Marked``."""

    def maker(number):
        return lambda: Marked(OddEnv(number, **arguments)) if number % 2 else OddEnv(number, **arguments)

    return [maker(number) for number in range(num_envs)]


def odd_actions(kind, num_envs, step):
    """A batch of actions, as an algorithm gives them: arrays of the space's dtype, of another, or a list."""
    generator = np.random.default_rng(step)
    if kind == "discrete":
        actions = generator.integers(0, 3, num_envs)
        return actions if step % 2 else actions.tolist()
    if kind == "multi_discrete":
        return np.stack([generator.integers(0, 3, num_envs), generator.integers(0, 4, num_envs)], axis=1)
    actions = generator.normal(0, 5, (num_envs, 2))  # most are outside the Box
    return actions if step % 2 else actions.astype(np.float32)


def difference(expected, actual, path="", dtypes=True):
    """Return where two nested results differ in type, dtype or value; ``None`` if nowhere."""
    if isinstance(expected, dict):
        if not isinstance(actual, dict) or list(expected) != list(actual):
            return f"{path}: {expected!r} is not {actual!r}"
        found = (difference(expected[key], actual[key], f"{path}[{key!r}]", dtypes) for key in expected)
        return next((each for each in found if each), None)
    if isinstance(expected, (list, tuple)):
        if type(expected) is not type(actual) or len(expected) != len(actual):
            return f"{path}: {expected!r} is not {actual!r}"
        pairs = enumerate(zip(expected, actual, strict=True))
        found = (difference(*pair, f"{path}[{number}]", dtypes) for number, pair in pairs)
        return next((each for each in found if each), None)
    if isinstance(expected, np.ndarray):
        is_equal = isinstance(actual, np.ndarray) and np.array_equal(expected, actual)
        is_equal &= not dtypes or expected.dtype == actual.dtype
        return None if is_equal else f"{path}: {expected!r} is not {actual!r}"
    return None if type(expected) is type(actual) and expected == actual else f"{path}: {expected!r} is not {actual!r}"
