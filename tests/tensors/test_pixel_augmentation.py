"""Shifted and scaled pixels equal those of plain NumPy, for every dtype and axis order."""

from __future__ import annotations

import copy
import os
import pickle
import re

import numpy as np
import pytest
import torch

from framestow.errors import InvalidSettingsError
from framestow.torch.pixel_augmentation import RandomShift, scale_pixels
from oracles.readers import assert_forked_processes_draw_differently

HEIGHT, WIDTH = 11, 13
SHAPES = {
    "grey stacks": ((40, 3, HEIGHT, WIDTH), False),
    "stacked colours, channels first": ((40, 9, HEIGHT, WIDTH), False),
    "stacks of colours": ((40, 3, HEIGHT, WIDTH, 3), True),
    "sequences of stacks": ((40, 2, 3, HEIGHT, WIDTH), False),
    "one colour picture": ((40, HEIGHT, WIDTH, 3), True),
}


@pytest.fixture(params=SHAPES)
def layout(request):
    return SHAPES[request.param]


def pixels_of(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 256, shape)
    return (pixels / 255 if dtype.startswith("float") else pixels).astype(dtype)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def channels_first(pixels: np.ndarray, channels_last: bool) -> np.ndarray:
    return np.moveaxis(pixels, -1, 1) if channels_last else pixels


def padded(row: np.ndarray, pad: int) -> np.ndarray:
    return np.pad(row, [(0, 0)] * (row.ndim - 2) + [(pad, pad)] * 2, mode="edge")


def offsets_of(part: np.ndarray, whole: np.ndarray) -> list[tuple[int, int]]:
    """Return every row and column at which all images of ``part`` match ``whole``."""
    height, width = part.shape[-2:]
    spare_rows, spare_columns = whole.shape[-2] - height, whole.shape[-1] - width
    return [
        (row, column)
        for row in range(spare_rows + 1)
        for column in range(spare_columns + 1)
        if np.array_equal(part, whole[..., row : row + height, column : column + width])
    ]


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int16", "float16"])
def test_all_frames_of_a_shifted_row_are_edge_padded_and_cropped_alike(layout, dtype):
    shape, channels_last = layout
    pixels = pixels_of(shape, dtype)

    shifted = RandomShift(4, generator(), channels_last=channels_last)(torch.from_numpy(pixels)).numpy()

    assert (pixels.shape, pixels.dtype) == (shifted.shape, shifted.dtype)
    found = [
        offsets_of(after, padded(before, 4))
        for before, after in zip(
            channels_first(pixels, channels_last), channels_first(shifted, channels_last), strict=True
        )
    ]
    assert {1} == {len(offsets) for offsets in found}
    assert len({offset for offsets in found for offset in offsets}) > 20


def test_all_shifts_are_equally_likely():
    picture = torch.arange(25.0).view(1, 1, 5, 5).expand(18_000, 1, 5, 5)

    shifted = RandomShift(1, generator())(picture)[:, 0, 2, 2].long()

    counts = np.bincount(shifted.numpy(), minlength=25).reshape(5, 5)[1:4, 1:4]
    assert 18_000 == counts.sum()
    assert ((counts - 2000) ** 2 / 2000).sum() < 26.1  # chi-square of 8 degrees, p = 0.001


def test_the_same_seed_gives_the_same_shifts_and_each_call_new_ones():
    observation, next_observation = torch.from_numpy(pixels_of((2, 64, 3, HEIGHT, WIDTH), "uint8"))
    shift, again = RandomShift(4, generator(3)), RandomShift(4, generator(3))

    first, second = shift(observation), shift(observation)

    assert torch.equal(first, again(observation))
    assert not torch.equal(first, second)
    assert not torch.equal(shift(next_observation), RandomShift(4, generator(3))(next_observation))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda shift: pickle.loads(pickle.dumps(shift))])
def test_a_copy_goes_on_with_the_same_shifts(copied):
    rows = torch.arange(64.0).view(8, 8).expand(16, 1, 8, 8)
    shift = RandomShift(2, generator())
    shift(rows)

    assert torch.equal(copied(shift)(rows), shift(rows))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_each_forked_process_shifts_pixels_differently_by_a_given_generator():
    rows = torch.arange(64.0).view(8, 8).expand(16, 1, 8, 8)

    def make():
        shift = RandomShift(2, generator())
        return lambda: shift(rows)

    assert_forked_processes_draw_differently({"shift": make})


def test_without_a_generator_torchs_default_generator_is_used():
    pixels = torch.from_numpy(pixels_of((8, 3, HEIGHT, WIDTH), "uint8"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        first = RandomShift()(pixels)
        torch.manual_seed(5)
        second = RandomShift()(pixels)

    assert torch.equal(first, second)


def test_shifting_views_of_shared_frames_does_not_change_them():
    frames = pixels_of((8, 5, HEIGHT, WIDTH), "uint8")
    before = frames.copy()
    tensor = torch.from_numpy(frames)

    shifted = RandomShift(2, generator())(tensor[:, 1:])

    assert torch.equal(shifted, RandomShift(2, generator())(tensor[:, 1:].contiguous()))
    np.testing.assert_array_equal(before, frames)


@pytest.mark.parametrize(
    ("dtype", "numpy_dtype"),
    [(torch.float32, np.float32), (torch.float64, np.float64), (torch.float16, np.float16)],
)
def test_scaled_pixels_are_what_numpy_divides(dtype, numpy_dtype):
    pixels = np.arange(256, dtype=np.uint8)

    scaled = scale_pixels(torch.from_numpy(pixels), dtype)

    np.testing.assert_array_equal((pixels.astype(np.float64) / 255).astype(numpy_dtype), scaled.numpy())
    assert scale_pixels(scaled, dtype) is scaled
    np.testing.assert_array_equal(np.arange(256), pixels)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RandomShift()(torch.zeros(11, 13)),
            "pixels have shape (11, 13): the shape must be (batch, ..., height, width); add the missing axis",
        ),
        (
            lambda: RandomShift(channels_last=True)(torch.zeros(2, 11, 13)),
            "pixels have shape (2, 11, 13): the shape must be (batch, ..., height, width, channels); add the missing "
            "axis",
        ),
    ],
)
def test_invalid_augmentation_settings_are_refused(make, message):
    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        make()
