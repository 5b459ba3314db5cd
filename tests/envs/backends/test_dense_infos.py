"""Arrays of infos without masks become Gymnasium's arrays with masks."""

from __future__ import annotations

import numpy as np

from framestow.envs.backends.envpool import with_masks


def test_every_array_gets_its_mask_also_nested_ones_and_those_of_some_rows_only():
    infos = {"a": np.array([1.5, 2.5]), "env_id": np.array([2, 0]), "inner": {"b": np.ones((2, 3), np.uint8)}}

    masked = with_masks(infos, np.array([2, 0]), 3)

    assert set(masked) == {"a", "_a", "inner", "_inner"}
    assert masked["a"].tolist() == [2.5, 0.0, 1.5]
    assert masked["_a"].tolist() == masked["_inner"].tolist() == [True, False, True]
    assert masked["inner"]["b"].tolist() == [[1] * 3, [0] * 3, [1] * 3]
    assert masked["inner"]["b"].dtype == np.uint8
