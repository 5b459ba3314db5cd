"""Memory that parent and workers share: where each environment's observation, action, reward and flags lie."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.envs.vector.env_spaces import EnvSpaces
from framestow.envs.workers.info_columns import MOST_COLUMNS, InfoColumns
from framestow.envs.workers.shared_block import SharedBlock
from framestow.envs.workers.space_parts import SpaceParts, is_array_space
from framestow.errors import InvalidStepError

_ALIGNMENT = 64  # bytes of a cache line


class Slab:
    """A row an environment in each array; parent and workers lay it out alike from the spaces.

    Observations have two halves. A step writes the other half than the one before, so the last good observation of
    an environment stays whole while the next is written, even by a worker that dies while it writes.

    Args:
        block: what it lies in; ``grow`` it to `slab_nbytes` first.
        spaces: those of one environment.
        num_envs: rows.
    """

    def __init__(self, block: SharedBlock, spaces: EnvSpaces, num_envs: int) -> None:
        self.parts = SpaceParts(spaces.observation_space)
        arrays = _laid_out(block, spaces, num_envs)
        self.rewards: npt.NDArray[np.float64] = arrays[0]
        self.terminated: npt.NDArray[np.bool_] = arrays[1]
        self.truncated: npt.NDArray[np.bool_] = arrays[2]
        self.infos = InfoColumns(arrays[3])
        num_parts = len(self.parts.arrays)
        self.halves = (arrays[4 : 4 + num_parts], arrays[4 + num_parts : 4 + 2 * num_parts])
        """Twice the array parts of the observations, ``(num_envs, *shape)`` each."""
        self.actions: npt.NDArray[Any] | None = arrays[-1] if is_array_space(spaces.action_space) else None
        """Where actions are arrays; others travel with their messages."""

    def write(self, half: int, number: int, observation: Any) -> list[Any]:
        """Write the observation of environment ``number`` into a half; gives the parts that have no place in it.

        Raises:
            InvalidStepError: a part has another shape or kind of dtype than its space; nothing of it is written.
        """
        arrays, others = self.parts.split(observation)
        checked = [_checked(*each) for each in zip(arrays, self.parts.arrays, strict=True)]
        for rows, array in zip(self.halves[half], checked, strict=True):
            rows[number] = array
        return others


def slab_nbytes(spaces: EnvSpaces, num_envs: int) -> int:
    """Bytes that a slab of these environments takes."""
    return sum(_aligned(shape, dtype) for shape, dtype in _regions(spaces, num_envs))


def _regions(spaces: EnvSpaces, num_envs: int) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    numbers: list[tuple[tuple[int, ...], Any]] = [((num_envs,), np.float64), ((num_envs,), np.bool_)]
    numbers += [((num_envs,), np.bool_), ((MOST_COLUMNS, num_envs), np.int64)]
    observation = [((num_envs, *_shape(part)), part.dtype) for part in SpaceParts(spaces.observation_space).arrays]
    action = spaces.action_space
    actions = [((num_envs, *_shape(action)), action.dtype)] if is_array_space(action) else []
    return [(shape, np.dtype(dtype)) for shape, dtype in [*numbers, *observation, *observation, *actions]]


def _laid_out(block: SharedBlock, spaces: EnvSpaces, num_envs: int) -> list[npt.NDArray[Any]]:
    memory = np.frombuffer(block.mapped(slab_nbytes(spaces, num_envs)), np.uint8)
    arrays, offset = [], 0
    for shape, dtype in _regions(spaces, num_envs):
        taken = memory[offset : offset + prod(shape) * dtype.itemsize]
        arrays.append(taken.view(dtype).reshape(shape))
        offset += _aligned(shape, dtype)
    return arrays


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return -(-prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT


def _shape(space: Any) -> tuple[int, ...]:
    return tuple(space.shape or ())


def _checked(given: Any, space: Any) -> npt.NDArray[Any]:
    array = np.asarray(given)
    if array.dtype == space.dtype and array.shape == space.shape:
        return array
    if array.shape != _shape(space):
        raise InvalidStepError(
            f"observation has shape {array.shape}: {space} needs {_shape(space)}; mend the environment or its space"
        )
    if not np.can_cast(array.dtype, space.dtype, casting="same_kind"):
        raise InvalidStepError(
            f"observation has dtype {array.dtype}: {space} needs {space.dtype}; mend the environment or its space"
        )
    return array
