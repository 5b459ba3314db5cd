"""Infos that Gymnasium cannot batch are refused."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.envs.vector.infos import batch_infos
from framestow.errors import InvalidStepError


@pytest.mark.parametrize(
    "infos",
    [[{"lives": 3}, {"lives": None}], [{"x": np.zeros(2)}, {"x": np.zeros(3)}]],
    ids=repr,
)
def test_infos_that_gymnasium_cannot_batch_are_named(infos):
    with pytest.raises(
        InvalidStepError, match=r"of environments \[1, 2\]: Gymnasium cannot batch them, .+; return the"
    ):
        batch_infos(infos, [1, 2], 4)
