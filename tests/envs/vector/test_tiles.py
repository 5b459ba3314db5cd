"""Images of several environments are laid out in a grid."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framestow.envs.vector.arguments import tile_images
from framestow.errors import InvalidStepError


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 3), (1, 1), (5, 2, 1)])
@pytest.mark.parametrize(
    ("count", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (3, 2, 2), (4, 2, 2), (5, 2, 3), (8, 3, 3), (9, 3, 3)]
)
def test_every_picture_has_its_place_row_by_row_and_the_rest_is_black(shape, count, rows, columns):
    generator = np.random.default_rng(count)
    pictures = [generator.integers(1, 256, shape, np.uint8) for _ in range(count)]

    grid = tile_images(pictures)

    height, width = shape[:2]
    assert (rows * height, columns * width, *shape[2:]) == grid.shape
    places = [(row, column) for row in range(rows) for column in range(columns)]
    for number, (row, column) in enumerate(places):
        tile = grid[row * height : (row + 1) * height, column * width : (column + 1) * width]
        expected = pictures[number] if number < count else np.zeros(shape, np.uint8)
        assert np.array_equal(expected, tile)


def test_the_grid_is_the_callers_own():
    picture = np.ones((2, 2), np.uint8)

    tile_images([picture])[:] = 7

    assert np.array_equal(np.ones((2, 2), np.uint8), picture)


@pytest.mark.parametrize(
    ("pictures", "message"),
    [
        ([], "there are no pictures: a grid needs at least one"),
        (
            [np.zeros((2, 2), np.uint8), np.zeros((2, 3), np.uint8)],
            "picture 1 has shape (2, 3): it must have the shape of picture 0, (2, 2)",
        ),
        ([None], "picture 0 is None: it must be uint8 of shape (H, W)"),
        ([np.zeros((2, 2))], "picture 0 is float64 of shape (2, 2)"),
        ([np.zeros(2, np.uint8)], "picture 0 is uint8 of shape (2,)"),
    ],
)
def test_unequal_or_missing_images_are_refused(pictures, message):
    with pytest.raises(InvalidStepError, match=re.escape(message)):
        tile_images(pictures)
