"""The steps of a vector environment that are done, while others are still under way."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


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
