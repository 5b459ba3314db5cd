"""Batched infos equal those of Gymnasium's own code."""

from __future__ import annotations

import enum

import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from hypothesis import given
from hypothesis import strategies as st

from framestow.envs.vector.infos import batch_infos
from framestow.errors import InvalidStepError


class GymnasiumsWay(VectorEnv):
    def __init__(self, num_envs):
        self.num_envs = num_envs

    def batched(self, infos, numbers):
        batched = {}
        for info, number in zip(infos, numbers, strict=True):
            batched = self._add_info(batched, info, number)
        return batched


def described(value):
    """Return key order, types, dtypes, shapes and values of a dictionary of arrays."""
    if isinstance(value, dict):
        return ["dict", [(key, described(each)) for key, each in value.items()]]
    if isinstance(value, np.ndarray):
        return [value.dtype.str, value.shape, [described(each) for each in value.ravel().tolist()]]
    return [type(value).__name__, repr(value)]


class Colour(enum.IntEnum):
    RED = 1


NUMBERS = st.one_of(st.integers(-9, 2**31), st.floats(allow_nan=False), st.booleans())
NUMPY_VALUES = st.sampled_from(
    [np.int32(3), np.float32(0.5), np.uint8(9), np.bool_(True), np.arange(3), np.ones(3, np.float32), np.array(4.5)]
)
OTHERS = st.sampled_from([None, "text", (1, 2), [1, 2], {}, Colour.RED, b"bytes", np.str_("text")])
KEYS = st.sampled_from(["lives", "episode", "x", "_x", "__x", "final_obs", "final_info", "r"])
INFO = st.dictionaries(
    KEYS,
    st.recursive(
        st.one_of(NUMBERS, NUMPY_VALUES, OTHERS), lambda values: st.dictionaries(KEYS, values, max_size=3), max_leaves=4
    ),
    max_size=4,
)


@st.composite
def told_infos(draw):
    """Draw infos of some environments: equal or not, in order or not, with repeated numbers."""
    num_envs = draw(st.integers(1, 5))
    if draw(st.booleans()):
        numbers = list(range(num_envs))
        keys = draw(st.lists(KEYS, unique=True, max_size=3))
        values = draw(st.sampled_from([st.integers(0, 9), st.floats(0, 1), st.booleans(), NUMBERS, st.text(), INFO]))
        return [{key: draw(values) for key in keys} for _ in numbers], numbers, num_envs
    numbers = draw(st.lists(st.integers(0, num_envs - 1), max_size=num_envs + 1))
    return [draw(INFO) for _ in numbers], numbers, num_envs


@given(told_infos())
def test_it_is_gymnasiums_answer_to_the_last_dtype(told):
    infos, numbers, num_envs = told
    try:
        expected = GymnasiumsWay(num_envs).batched(infos, numbers)
    except Exception:  # whatever Gymnasium stumbles over is refused
        with pytest.raises(InvalidStepError, match="Gymnasium cannot batch them"):
            batch_infos(infos, numbers, num_envs)
        return

    assert described(expected) == described(batch_infos(infos, numbers, num_envs))
