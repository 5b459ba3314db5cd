"""Store steps whose next observations begin a run: their frames are not the observation's, shifted by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow.replay.memory import ReplayMemory


def append_with_borders(
    memory: ReplayMemory,
    step: tuple[Any, ...],
    env_ids: list[int],
    borders: np.ndarray,
    extras: dict[str, np.ndarray] | None = None,
) -> None:
    """Store what ``append`` takes. ``borders``: which next observations begin a run; a run is padded as an episode."""
    memory._append((env_ids, *step, extras), borders)
