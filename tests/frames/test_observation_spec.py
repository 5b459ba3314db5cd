"""Specs of observations of several arrays."""

from __future__ import annotations

import json
import re

import gymnasium.spaces as gym
import numpy as np
import pytest

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import observation_spec, only_frame, space_of, spec_from_state

CAMERA, JOINTS = gym.Box(0, 255, (6, 7, 3), np.uint8), gym.Box(-1, 1, (7,), np.float64)
NESTED = gym.Dict(
    {
        "wrist": gym.Tuple([CAMERA, gym.Dict({"b": gym.MultiBinary(3), "a": gym.Discrete(5)})]),
        "depth": gym.Box(0, 1, (4, 4), np.float32),
        "counts": gym.MultiDiscrete([3, 4, 5]),
    }
)


def test_a_box_is_one_array_with_the_state_of_its_frame():
    spec = observation_spec(CAMERA)

    assert FrameSpec((6, 7, 3)) == space_of(spec)
    assert spec == spec_from_state(spec.state())
    assert {"shape": [6, 7, 3], "dtype": "|u1", "is_scaled": False} == spec.state()


def test_the_order_of_keys_in_a_space_does_not_change_the_leaves():
    spec = observation_spec(NESTED)
    turned = observation_spec(dict(reversed(NESTED.spaces.items())))

    assert spec == turned
    assert ["counts", "depth", "wrist.0", "wrist.1.a", "wrist.1.b"] == [array.key for array in spec.arrays]
    expected = [((3,), "int64"), ((4, 4), "float32"), ((6, 7, 3), "uint8"), ((1,), "int64"), ((3,), "int8")]
    assert expected == [(frame.shape, frame.dtype.name) for frame in spec.frame_specs]
    assert [False, True, False, False, False] == [frame.is_scaled for frame in spec.frame_specs]


def test_samples_of_a_space_are_flattened_and_rebuilt():
    spec = observation_spec(NESTED)
    samples = [NESTED.sample() for _ in range(4)]
    frames = {
        "wrist": (
            np.stack([sample["wrist"][0] for sample in samples]),
            {key: np.stack([sample["wrist"][1][key] for sample in samples]) for key in ("a", "b")},
        ),
        "depth": np.stack([sample["depth"] for sample in samples]),
        "counts": np.stack([sample["counts"] for sample in samples]),
    }

    flat = tuple(array.as_stored(part) for array, part in zip(spec.arrays, spec.flatten(frames), strict=True))
    rebuilt = spec.rebuild(flat)

    assert [(4, *frame.shape) for frame in spec.frame_specs] == [part.shape for part in flat]
    np.testing.assert_equal(frames, rebuilt)
    for array, part in zip(spec.arrays, flat, strict=True):
        np.testing.assert_array_equal(part, array.of(rebuilt))


def test_an_observation_spec_is_restored_from_its_state():
    spec = observation_spec((NESTED, {"one": FrameSpec((2,), np.int16)}))

    assert spec == spec_from_state(json.loads(json.dumps(spec.state())))


def test_a_tuple_with_missing_parts_is_refused_by_its_place():
    spec = observation_spec({"views": (CAMERA, (JOINTS, JOINTS))})

    with pytest.raises(
        InvalidStepError, match=re.escape("frames['views'][1] are 1 parts: this memory needs a tuple of 2")
    ):
        spec.flatten({"views": (1, (2,))})
    with pytest.raises(InvalidStepError, match=re.escape("frames['views'] are a dict: this memory needs a tuple of 2")):
        spec.flatten({"views": {"a": 1}})


def test_only_frame_refuses_several_arrays_by_their_keys():
    assert FrameSpec((7,), np.float64) == only_frame(observation_spec(JOINTS), "an export takes")
    with pytest.raises(
        InvalidSettingsError, match=r"^observations are of a, b\.0: an export takes one array per frame; "
    ):
        only_frame(observation_spec({"a": CAMERA, "b": [JOINTS]}), "an export takes")
