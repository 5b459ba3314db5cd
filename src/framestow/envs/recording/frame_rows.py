"""Rows of batched frames, whether one array or a dictionary of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError


def take_rows(frames: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Copy those rows of ``frames``, ``(n, *frame)`` or a dictionary of such arrays."""
    if isinstance(frames, Mapping):
        return {key: take_rows(part, rows) for key, part in frames.items()}
    return frames[rows]


def take_row(frames: Any, row: Any) -> Any:
    """One row of ``frames``, a view."""
    if isinstance(frames, Mapping):
        return {key: take_row(part, row) for key, part in frames.items()}
    return frames[row]


def newest_of(stacks: Any) -> Any:
    """Take the newest frame of each stack, ``(n, *frame)``, a view."""
    if isinstance(stacks, Mapping):
        return {key: newest_of(part) for key, part in stacks.items()}
    return stacks[:, -1]


def put_rows(frames: Any, rows: Mapping[int, Any]) -> Any:
    """Make a copy of ``frames`` in which each of ``rows`` is replaced."""
    if isinstance(frames, Mapping):
        return {key: put_rows(part, {row: frame[key] for row, frame in rows.items()}) for key, part in frames.items()}
    replaced = np.array(frames)
    for row, frame in rows.items():
        replaced[row] = frame
    return replaced


def stacked_space(space: gymnasium.Space[Any], stack: int) -> gymnasium.Space[Any]:
    """Make the space of ``stack`` frames of ``space``, along a new first axis."""
    if isinstance(space, gymnasium.spaces.Dict):
        return gymnasium.spaces.Dict({key: stacked_space(part, stack) for key, part in space.spaces.items()})
    if isinstance(space, gymnasium.spaces.Box):
        low, high = (np.repeat(bound[None], stack, axis=0) for bound in (space.low, space.high))
        return gymnasium.spaces.Box(low, high, dtype=space.dtype.type)
    raise InvalidSettingsError(
        f"observation space {space}: a recorder stacks frames of a Box, or of a Dict of them; convert it in a wrapper"
    )
