"""Compare the results of two vector environments bit for bit, with their types."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode


def assert_same(expected: Any, actual: Any, path: str = "") -> None:
    """Compare nested dictionaries, tuples and arrays, object arrays included."""
    if isinstance(expected, dict):
        assert list(expected) == list(actual), path
        for key in expected:
            assert_same(expected[key], actual[key], f"{path}[{key!r}]")
    elif isinstance(expected, np.ndarray) and expected.dtype != object:
        assert isinstance(actual, np.ndarray), path
        assert (expected.dtype, expected.shape) == (actual.dtype, actual.shape), path
        assert np.array_equal(expected, actual, equal_nan=expected.dtype.kind == "f"), path
    elif isinstance(expected, (list, tuple, np.ndarray)):
        assert type(expected) is type(actual), path
        assert len(expected) == len(actual), path
        for number, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
            assert_same(ours, theirs, f"{path}[{number}]")
    else:
        assert expected == actual, path


def play_alike(expected: Any, actual: Any, num_steps: int, seed: int = 0) -> None:
    """Step two vector environments with the same actions, and compare the results bit for bit."""
    space = expected.single_action_space
    space.seed(seed)
    for number in range(num_steps):
        actions = [space.sample() for _ in range(expected.num_envs)]
        theirs = expected.step(actions)
        assert_same(theirs, actual.step(actions), f"step {number}")
        ended = theirs[2] | theirs[3]
        if expected.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            options = {"reset_mask": ended}
            assert_same(expected.reset(options=options), actual.reset(options=options), f"reset after step {number}")
