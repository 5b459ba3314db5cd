"""Extras that transitions have as the discounted sum over the steps of their return: costs, several objectives."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import StepStore
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.settings.step_fields import offset_of, slot_record


def summed_extras(
    steps: StepStore, settings: MemorySettings, indices: npt.NDArray[np.int64]
) -> dict[str, npt.NDArray[Any]]:
    """Return the summed extras of sampleable transitions by name, ``(B, *shape)`` each.

    The sum of γᵏ times the value of the k-th step is computed in double precision, in the order of the steps, and then
    cast to the dtype of the extra. It has the steps of the transition's return: it ends with the episode, also where
    one was cut off by ``begin``. Hold the memory's lock.
    """
    record = slot_record(settings.num_envs, settings.action, settings.extras)
    powers = settings.discount ** np.arange(settings.n_step)
    sums = {}
    for spec in settings.extras.extras:
        if spec.is_summed:
            dtype = np.dtype((spec.dtype, spec.shape))
            stored = steps.return_field(indices, offset_of(record, spec.name), dtype.itemsize)
            values = stored.view(spec.dtype).reshape(*stored.shape[:2], -1)
            with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are allowed, and so are their sums
                total = np.add.accumulate(values * powers[:, None], axis=1, dtype=np.float64)[:, -1]
                sums[spec.name] = total.astype(spec.dtype).reshape(-1, *spec.shape)
    return sums
