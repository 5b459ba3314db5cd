"""The options of a vector environment's reset: which environments, and what they are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidStepError


def split_options(
    options: Mapping[str, Any] | None, num_envs: int
) -> tuple[npt.NDArray[np.bool_], dict[str, Any] | None]:
    """Which environments to reset, and what the environments get of ``options``, which stay untouched.

    Raises:
        InvalidStepError: ``options["reset_mask"]`` is no array of ``num_envs`` booleans, or none of them is true.
    """
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, np.bool_), None if options is None else dict(options)
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != np.bool_ or not mask.any():
        raise InvalidStepError(
            f"reset_mask is {mask.tolist()}: it must hold {num_envs} booleans, one of them true at least; "
            "leave it out to reset all"
        )
    others = {key: value for key, value in options.items() if key != "reset_mask"}
    return mask.copy(), others or None


def require_none_left_idle(mask: npt.NDArray[np.bool_], needs_reset: npt.NDArray[np.bool_]) -> None:
    """Refuse a ``reset_mask`` that leaves out environments without an episode, whose observations nobody knows."""
    untouched = needs_reset & ~mask
    if untouched.any():
        raise InvalidStepError(
            f"reset_mask leaves out idle environments {np.flatnonzero(untouched).tolist()}: reset all first"
        )
