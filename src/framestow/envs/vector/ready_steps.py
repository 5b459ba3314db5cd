"""The steps of a vector environment that are done, while others are still under way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidStepError


class ReadySteps(NamedTuple):
    """What ``recv`` gives: ``m`` environments whose steps are done, one row each, in all fields."""

    env_ids: npt.NDArray[np.intp]
    """Which environments these are, ``(m,)``."""
    observations: Any
    """What they show, ``(m, *observation)``."""
    rewards: npt.NDArray[np.float64]
    """Their rewards, ``(m,)``."""
    terminated: npt.NDArray[np.bool_]
    """Whether the episode terminated, ``(m,)``."""
    truncated: npt.NDArray[np.bool_]
    """Whether the episode was truncated, ``(m,)``."""
    infos: dict[str, Any]
    """Gymnasium's dictionary of arrays with masks, over these rows and not over all environments."""


def checked_env_ids(env_ids: Sequence[int] | npt.NDArray[np.integer[Any]], num_envs: int) -> list[int]:
    """Give the environments that a caller of ``send`` names, or refuse them."""
    numbers = np.asarray(env_ids)
    is_right = numbers.ndim == 1 and numbers.size and np.issubdtype(numbers.dtype, np.integer)
    if not is_right or numbers.min() < 0 or numbers.max() >= num_envs or len(np.unique(numbers)) != len(numbers):
        raise InvalidStepError(
            f"env_ids are {env_ids!r}: they must be different whole numbers from 0 to {num_envs - 1}, one at least"
        )
    return [int(number) for number in numbers]
