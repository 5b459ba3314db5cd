"""How a frame's shape is seen by the packer."""

from __future__ import annotations

import numpy as np
import pytest

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


@pytest.mark.parametrize("shape", [(), (0, 4), (4, -1)])
def test_a_shape_without_pixels_is_refused(shape):
    with pytest.raises(InvalidSettingsError, match="every side must be at least 1"):
        FrameSpec(shape)
