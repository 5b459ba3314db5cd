"""Infos that come as full arrays, in Gymnasium's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

ROW_NUMBERS = frozenset({"env_id", "players"})  # which environment a row is of


def with_masks(infos: Mapping[str, Any], rows: npt.NDArray[np.integer[Any]], num_envs: int) -> dict[str, Any]:
    """Give ``infos``, whose arrays have an entry for each of ``rows``, as arrays of ``num_envs`` entries with masks.

    >>> with_masks({"lives": np.array([3, 5]), "env_id": np.array([0, 2])}, np.array([0, 2]), 3)
    {'lives': array([3, 0, 5]), '_lives': array([ True, False,  True])}
    """
    masked: dict[str, Any] = {}
    for key, value in infos.items():
        if key in ROW_NUMBERS:
            continue
        mask = np.zeros(num_envs, np.bool_)
        mask[rows] = True
        if isinstance(value, Mapping):
            masked[key] = with_masks(value, rows, num_envs)
        else:
            told = np.asarray(value)
            masked[key] = np.zeros((num_envs, *told.shape[1:]), told.dtype)
            masked[key][rows] = told
        masked[f"_{key}"] = mask
    return masked
