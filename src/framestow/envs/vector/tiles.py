"""Many pictures as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidStepError


def tiled(pictures: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    """Lay pictures out in a grid, row by row, as square as their number allows, black where there is none.

    Takes ``uint8`` pictures of one shape, ``(H, W)`` or ``(H, W, C)``; gives a fresh array of ``rows * H`` by
    ``columns * W``. Baselines' ``tile_images`` does so, too (OpenAI Baselines, 2017).

    >>> tiled([np.full((1, 1), shade, np.uint8) for shade in (1, 2, 3)])
    array([[1, 2],
           [3, 0]], dtype=uint8)

    Raises:
        InvalidStepError: no picture at all, one that is none, or pictures of unequal shape.
    """
    if not len(pictures):
        raise InvalidStepError("pictures are none: a grid needs one at least; render an environment first")
    arrays = [_checked(picture, number) for number, picture in enumerate(pictures)]
    height, width, *channels = shape = arrays[0].shape
    for number, array in enumerate(arrays):
        if array.shape != shape:
            raise InvalidStepError(
                f"picture {number} has shape {array.shape}: picture 0 has {shape}; a grid takes equal ones, "
                "so lay them out apart"
            )
    rows = round(math.sqrt(len(arrays)))
    columns = math.ceil(len(arrays) / rows)
    grid = np.zeros((rows, columns, height, width, *channels), np.uint8)
    grid.reshape(rows * columns, *shape)[: len(arrays)] = arrays
    return grid.swapaxes(1, 2).reshape(rows * height, columns * width, *channels)


def _checked(picture: Any, number: int) -> npt.NDArray[np.uint8]:
    is_picture = isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.ndim in (2, 3)
    if not is_picture:
        told = f"{picture.dtype} of shape {picture.shape}" if isinstance(picture, np.ndarray) else repr(picture)
        raise InvalidStepError(
            f"picture {number} is {told}: a grid takes uint8 pictures (H, W) or (H, W, C); make the environments with "
            "render_mode='rgb_array'"
        )
    return picture  # type: ignore[no-any-return]
