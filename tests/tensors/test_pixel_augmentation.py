"""Augmented pixels equal those of plain NumPy, for every dtype and axis order."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from framestow.errors import InvalidSettingsError
from framestow.torch.pixel_augmentation import (
    CenterCrop,
    Cutout,
    HorizontalFlip,
    Intensity,
    RandomCrop,
    RandomShift,
    scale_pixels,
)

HEIGHT, WIDTH = 11, 13
SHAPES = {
    "grey stacks": ((40, 3, HEIGHT, WIDTH), False),
    "stacked colours, channels first": ((40, 9, HEIGHT, WIDTH), False),
    "stacks of colours": ((40, 3, HEIGHT, WIDTH, 3), True),
    "sequences of stacks": ((40, 2, 3, HEIGHT, WIDTH), False),
    "one colour picture": ((40, HEIGHT, WIDTH, 3), True),
}
DTYPES = ["uint8", "float32"]


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


@pytest.mark.parametrize("dtype", [*DTYPES, "int16", "float16"])
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


def test_without_a_generator_torchs_default_generator_is_used():
    pixels = torch.from_numpy(pixels_of((8, 3, HEIGHT, WIDTH), "uint8"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        first = [augment(pixels) for augment in (RandomShift(), Intensity(), HorizontalFlip(), Cutout(2, 5))]
        torch.manual_seed(5)
        second = [augment(pixels) for augment in (RandomShift(), Intensity(), HorizontalFlip(), Cutout(2, 5))]

    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


def test_shifting_views_of_shared_frames_does_not_change_them():
    frames = pixels_of((8, 5, HEIGHT, WIDTH), "uint8")
    before = frames.copy()
    tensor = torch.from_numpy(frames)

    shifted = RandomShift(2, generator())(tensor[:, 1:])

    assert torch.equal(shifted, RandomShift(2, generator())(tensor[:, 1:].contiguous()))
    np.testing.assert_array_equal(before, frames)


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_crops_come_from_any_position_of_their_row(layout, dtype):
    shape, channels_last = layout
    pixels = pixels_of(shape, dtype)

    cropped = RandomCrop(7, 10, generator(), channels_last=channels_last)(torch.from_numpy(pixels)).numpy()

    parts = channels_first(cropped, channels_last)
    assert (7, 10) == parts.shape[-2:]
    found = [offsets_of(part, whole) for part, whole in zip(parts, channels_first(pixels, channels_last), strict=True)]
    assert {1} == {len(offsets) for offsets in found}
    rows, columns = zip(*(offsets[0] for offsets in found), strict=True)
    assert (set(range(5)), set(range(4))) == (set(rows), set(columns))


def test_a_center_crop_is_the_middle_and_a_view(layout):
    shape, channels_last = layout
    pixels = pixels_of(shape, "uint8")

    cropped = CenterCrop(8, 9, channels_last=channels_last)(torch.from_numpy(pixels))

    middle = (Ellipsis, slice(1, 9), slice(2, 11), *[slice(None)] * channels_last)
    np.testing.assert_array_equal(pixels[middle], cropped.numpy())
    assert np.shares_memory(pixels, cropped.numpy())


def test_a_crop_of_full_size_changes_nothing():
    pixels = torch.from_numpy(pixels_of((4, 3, HEIGHT, WIDTH), "uint8"))

    assert torch.equal(pixels, RandomCrop(HEIGHT, WIDTH, generator())(pixels))
    assert torch.equal(pixels, CenterCrop(HEIGHT, WIDTH)(pixels))


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_intensity_multiplies_a_row_by_one_number_near_one(layout, dtype):
    shape, _ = layout
    pixels = pixels_of(shape, dtype)
    normal = torch.randn(len(pixels), generator=generator()).numpy()
    factors = (1 + np.float32(0.1) * np.clip(normal, -2, 2)).astype(np.float32)

    changed = Intensity(0.1, generator())(torch.from_numpy(pixels)).numpy()

    assert dtype == changed.dtype
    expected = pixels * factors.reshape(-1, *[1] * (pixels.ndim - 1)).astype(
        pixels.dtype if dtype != "uint8" else np.float32
    )
    if dtype == "uint8":
        expected = np.clip(np.rint(expected), 0, 255)
    np.testing.assert_allclose(expected, changed, rtol=1e-6)
    assert (np.abs(factors - 1) <= 0.2 + 1e-6).all()
    assert len(set(factors.tolist())) > 30


@pytest.mark.parametrize("dtype", DTYPES)
def test_flipped_rows_are_mirrored_completely_and_as_often_as_the_probability(layout, dtype):
    shape, channels_last = layout
    pixels = pixels_of((400, *shape[1:]), dtype)

    flipped = HorizontalFlip(0.25, generator(), channels_last=channels_last)(torch.from_numpy(pixels)).numpy()

    before, after = channels_first(pixels, channels_last), channels_first(flipped, channels_last)
    is_mirrored = np.array([np.array_equal(now, row[..., ::-1]) for row, now in zip(before, after, strict=True)])
    is_as_it_was = np.array([np.array_equal(now, row) for row, now in zip(before, after, strict=True)])
    assert (is_mirrored ^ is_as_it_was).all()
    assert 65 <= is_mirrored.sum() <= 135  # 100 is expected, four standard deviations are 35


@pytest.mark.parametrize("dtype", DTYPES)
def test_cutout_fills_one_box_per_row_of_any_size_at_any_position(layout, dtype):
    shape, channels_last = layout
    pixels = pixels_of((150, *shape[1:]), dtype)
    pixels[pixels == 7] = 0

    cut = Cutout(2, 5, 7, generator(), channels_last=channels_last)(torch.from_numpy(pixels)).numpy()

    assert dtype == cut.dtype
    boxes = set()
    before, after = channels_first(pixels, channels_last), channels_first(cut, channels_last)
    for row, now in zip(before, after, strict=True):
        is_filled = now == 7
        filled_rows = np.flatnonzero(is_filled.any(axis=(*range(is_filled.ndim - 2), -1)))
        filled_columns = np.flatnonzero(is_filled.any(axis=tuple(range(is_filled.ndim - 1))))
        expected = row.copy()
        expected[..., filled_rows[0] : filled_rows[-1] + 1, filled_columns[0] : filled_columns[-1] + 1] = 7
        np.testing.assert_array_equal(expected, now)
        boxes.add((filled_rows[0], filled_rows[-1], filled_columns[0], filled_columns[-1]))
    tops, bottoms, lefts, rights = (np.array(side) for side in zip(*boxes, strict=True))
    assert {2, 3, 4, 5} == set(bottoms - tops + 1) == set(rights - lefts + 1)
    assert (0, HEIGHT - 1, 0, WIDTH - 1) == (tops.min(), bottoms.max(), lefts.min(), rights.max())


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
        (lambda: RandomShift(-1), "pad is -1: images are shifted by 0 pixels or more; DrQ uses 4"),
        (
            lambda: HorizontalFlip(1.5),
            "probability is 1.5: it must be between 0 and 1; DrQ uses 0.1",
        ),
        (
            lambda: Cutout(5, 4),
            "smallest is 5 and largest 4: smallest must be from 0 to largest, in pixels; RAD uses 10 and 30",
        ),
        (
            lambda: CenterCrop(12, 3)(torch.zeros(2, 3, 11, 13)),
            "pixels are 11 by 13: a crop or box of 12 by 3 does not fit; use a smaller size",
        ),
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
