"""FrameSpec: shapes, dtypes, and the layout for the packer."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from gymnasium.spaces import Box

from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec


@pytest.mark.parametrize(
    ("shape", "rows", "row_bytes", "pixel_bytes"),
    [
        ((84, 84), 84, 84, 1),
        ((210, 160, 3), 210, 480, 3),
        ((3, 64, 50), 192, 50, 1),
        ((1, 1), 1, 1, 1),
        ((5,), 1, 5, 1),
        ((2, 3, 4, 5), 24, 5, 1),
    ],
)
def test_rows_and_row_bytes_cover_the_frame(shape, rows, row_bytes, pixel_bytes):
    spec = FrameSpec(shape)

    assert (rows, row_bytes, pixel_bytes) == (spec.rows, spec.row_bytes, spec.pixel_bytes)
    assert int(np.prod(shape)) == spec.nbytes


@pytest.mark.parametrize(
    ("shape", "dtype", "rows", "row_bytes", "pixel_bytes"),
    [((84, 84), np.float32, 84, 336, 4), ((64, 50, 3), np.uint16, 64, 300, 6), ((4,), np.float64, 1, 32, 8)],
)
def test_the_layout_of_longer_elements_counts_their_bytes(shape, dtype, rows, row_bytes, pixel_bytes):
    spec = FrameSpec(shape, dtype)

    assert (rows, row_bytes, pixel_bytes) == (spec.rows, spec.row_bytes, spec.pixel_bytes)
    assert np.zeros(shape, dtype).nbytes == spec.nbytes


@pytest.mark.parametrize(
    ("space", "is_scaled"),
    [
        (Box(0, 1, (84, 84), np.float32), True),
        (Box(0.25, 0.5, (3, 84, 84), np.float64), True),
        (Box(-1, 1, (84, 84), np.float32), False),
        (Box(0, 255, (84, 84), np.float32), False),
        (Box(-np.inf, np.inf, (84, 84), np.float32), False),
        (Box(0, 1, (84,), np.float32), False),
        (Box(0, 1, (84, 84), np.uint8), False),
        (Box(0, 1, (84, 84), np.int64), False),
    ],
)
def test_images_of_floats_in_0_to_1_are_scaled_pixels(space, is_scaled):
    spec = FrameSpec.from_space(space)

    assert (space.shape, space.dtype, is_scaled) == (spec.shape, spec.dtype, spec.is_scaled)


@pytest.mark.parametrize("dtype", ["complex64", "U3", "O", ">f4" if sys.byteorder == "little" else "<f4"])
def test_a_dtype_that_differs_between_machines_is_refused(dtype):
    with pytest.raises(InvalidSettingsError, match="booleans, integers or floats of up to 8 bytes"):
        FrameSpec((4, 4), dtype)


def test_integers_cannot_be_scaled_pixels():
    with pytest.raises(InvalidSettingsError, match="scaled pixels must be float16, float32 or float64"):
        FrameSpec((4, 4), np.int32, is_scaled=True)


def test_a_frame_larger_than_one_gibibyte_is_refused():
    with pytest.raises(InvalidSettingsError, match="has 4294967296 bytes"):
        FrameSpec((2**15, 2**15), np.float32)


@pytest.mark.parametrize(
    "spec",
    [
        FrameSpec((5, 4, 3)),
        FrameSpec((5,), "f8"),
        FrameSpec((5, 4), "f2", is_scaled=True),
        FrameSpec(tuple(np.array([5, 4]))),
    ],
)
def test_a_spec_is_restored_from_its_state(spec):
    assert spec == FrameSpec.from_state(json.loads(json.dumps(spec.state())))


def test_a_state_without_a_dtype_is_uint8():
    assert FrameSpec((84, 84)) == FrameSpec.from_state({"shape": [84, 84]})
