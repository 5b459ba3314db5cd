"""PixelScaling: from uint8 k to the float k / 255, and back."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from framestow.storage.scaled_pixels import PixelScaling

DTYPES = [np.float16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_pixel_becomes_the_float_nearest_to_its_quotient_by_255(dtype):
    pixels = np.arange(256, dtype=np.uint8)
    scaled = np.empty(256, dtype)

    PixelScaling(np.dtype(dtype)).from_pixels(pixels, scaled)

    for k, value in enumerate(scaled):
        exact = Fraction(k, 255)
        neighbours = [np.nextafter(value, dtype(towards)) for towards in (-1, 2)]
        assert all(abs(Fraction(float(value)) - exact) <= abs(Fraction(float(other)) - exact) for other in neighbours)
    assert scaled.tobytes() == (pixels.astype(dtype) / dtype(255)).tobytes()  # the usual expression


@pytest.mark.parametrize("dtype", DTYPES)
def test_pixels_are_restored_from_their_floats(dtype):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 33, 7, 3), dtype=np.uint8)
    scaled = (pixels / np.float64(255)).astype(dtype)

    back, is_exact = PixelScaling(np.dtype(dtype)).to_pixels(scaled)

    np.testing.assert_array_equal(pixels, back)
    assert is_exact.all()


def test_only_the_256_floats_of_half_precision_are_pixels():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)

    _, is_exact = PixelScaling(np.dtype(np.float16)).to_pixels(every[:, None])

    exact = (np.arange(256) / np.float64(255)).astype(np.float16)
    assert exact.tobytes() == np.sort(every[is_exact]).tobytes()


def test_one_other_float_marks_only_its_frame():
    frames = np.zeros((4, 6, 5), np.float32)
    for frame, value in enumerate((-0.0, np.nan, 0.5)):
        frames[frame, frame, 2] = value

    assert [False, False, False, True] == PixelScaling(np.dtype(np.float32)).to_pixels(frames)[1].tolist()
