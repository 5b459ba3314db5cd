"""Rows of batched frames, whether one array, or dicts and tuples of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from framestow.errors import InvalidSettingsError
from framestow.frames.observation_spec import map_arrays


def take_rows(frames: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Copy those rows of ``frames``, ``(n, *frame)`` or dicts and tuples of such arrays."""
    return map_arrays(lambda array: array[rows], frames)


def take_row(frames: Any, row: Any) -> Any:
    """One row of ``frames``, a view."""
    return map_arrays(lambda array: array[row], frames)


def newest_of(stacks: Any) -> Any:
    """Take the newest frame of each stack, ``(n, *frame)``, a view."""
    return map_arrays(lambda array: array[:, -1], stacks)


def put_rows(frames: Any, rows: Mapping[int, Any]) -> Any:
    """Make a copy of ``frames`` in which each of ``rows`` is replaced."""

    def replaced(array: Any, *of_rows: Any) -> Any:
        copy = np.array(array)
        for row, frame in zip(rows, of_rows, strict=True):
            copy[row] = frame
        return copy

    return map_arrays(replaced, frames, *rows.values())


def stacked_space(space: gymnasium.Space[Any], stack: int) -> gymnasium.Space[Any]:
    """Make the space of ``stack`` frames of ``space``, along a new first axis."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: stacked_space(part, stack) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([stacked_space(part, stack) for part in space.spaces])
    if isinstance(space, spaces.Box):
        low, high = (np.repeat(bound[None], stack, axis=0) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype.type)
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary((stack, *space.shape))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = (np.repeat(array[None], stack, axis=0) for array in (space.nvec, space.start))
        return spaces.MultiDiscrete(counts, dtype=space.dtype.type, start=starts)
    if isinstance(space, spaces.Discrete):
        return spaces.MultiDiscrete([space.n] * stack, dtype=space.dtype.type, start=[space.start] * stack)
    raise InvalidSettingsError(
        f"observation space {space}: a recorder stacks frames of a Box, MultiBinary, MultiDiscrete or Discrete, and of "
        "Dicts and Tuples of them; convert it in a wrapper"
    )
