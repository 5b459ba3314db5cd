"""Arrays that a parent shares with its workers: observations, actions, rewards and flags."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import uuid
from collections.abc import Sequence
from math import prod
from multiprocessing import reduction
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from framestow.envs.vector.arguments import EnvSpaces
from framestow.errors import InvalidStepError
from framestow.frames.observation_spec import map_arrays


class SharedBlock:
    """Shared memory without a name in any directory, so that no crash can leave it behind.

    On Linux it is a ``memfd``, elsewhere on POSIX a deleted temporary file, on Windows a named mapping that ends with
    its last user. Workers get it as a process argument, with any start method. Its size is set later, because only the
    workers' environments tell their spaces.
    """

    def __init__(self) -> None:
        # Windows maps the block by its name and has no file (-1). Elsewhere this process has a file descriptor of it.
        self._name = f"framestow-{uuid.uuid4().hex}"
        self._file = -1 if sys.platform == "win32" else _open_unnamed_file(self._name)

    def grow(self, nbytes: int) -> None:
        """Set the size; the process that made the block calls this once, before any process maps it."""
        if self._file >= 0:
            os.ftruncate(self._file, nbytes)

    def map(self, nbytes: int) -> mmap.mmap:
        """Map the block; the mapping lives while an array references it."""
        if sys.platform == "win32":
            return mmap.mmap(-1, nbytes, tagname=self._name)
        return mmap.mmap(self._file, nbytes)

    def close(self) -> None:
        """Close the file; mappings stay valid."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self._name, "file": reduction.DupFd(self._file) if self._file >= 0 else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._name = state["name"]
        self._file = -1 if state["file"] is None else state["file"].detach()


def _open_unnamed_file(name: str) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


_ARRAY_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class SpaceParts:
    """The parts of a space of nested ``Dict`` and ``Tuple``, in a fixed order.

    A space that a user registered with Gymnasium's ``concatenate`` is one array, which that function batches.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        parts: list[gymnasium.Space[Any]] = []
        # Nested like an observation, with the number of each part in its place.
        self._structure = _number_parts(space, parts)
        # Numbers of the parts that are arrays of a fixed shape and dtype, and of the others.
        self._numbers_of_arrays = [number for number, part in enumerate(parts) if is_array_space(part)]
        self._numbers_of_others = [number for number, part in enumerate(parts) if not is_array_space(part)]
        self.arrays = [parts[number] for number in self._numbers_of_arrays]
        """Spaces of the parts that are arrays of a fixed shape and dtype."""
        self.others = [parts[number] for number in self._numbers_of_others]
        """Spaces of the other parts: ``Text``, ``Sequence``, ``Graph``, ``OneOf`` and users' classes."""
        # Whether observations are one array, which is neither split nor joined.
        self._is_one_array = is_array_space(space)

    def split(self, observation: Any) -> tuple[list[Any], list[Any]]:
        """Return the array parts and the other parts of an observation."""
        if self._is_one_array:
            return [observation], []
        parts: list[Any] = []
        map_arrays(lambda _, part: parts.append(part), self._structure, observation)
        arrays = [parts[number] for number in self._numbers_of_arrays]
        return arrays, [parts[number] for number in self._numbers_of_others]

    def join(self, arrays: Sequence[Any], others: Sequence[Any]) -> Any:
        """Combine parts to one observation or one batch."""
        if self._is_one_array:
            return arrays[0]
        numbers = self._numbers_of_arrays + self._numbers_of_others
        return map_arrays(dict(zip(numbers, [*arrays, *others], strict=True)).__getitem__, self._structure)

    def batch_others(self, rows: Sequence[Any]) -> list[Any]:
        """Batch the other parts of several observations as Gymnasium does."""
        batches = []
        for part, array in enumerate(self.others):
            empty: Any = create_empty_array(array, len(rows))
            batches.append(concatenate(array, [row[part] for row in rows], empty))
        return batches


def is_array_space(space: gymnasium.Space[Any]) -> bool:
    """Return whether values of ``space`` are arrays of a fixed shape and dtype that Gymnasium stacks."""
    is_stacked = concatenate.dispatch(type(space)) is concatenate.dispatch(spaces.Box)
    return is_stacked and isinstance(space, _ARRAY_SPACES)


def _is_nested(space: gymnasium.Space[Any], kind: type[gymnasium.Space[Any]]) -> bool:
    return isinstance(space, kind) and concatenate.dispatch(type(space)) is concatenate.dispatch(kind)


def _number_parts(space: Any, parts: list[gymnasium.Space[Any]]) -> Any:
    """Append the parts of ``space`` to ``parts``; return nested dicts and tuples of their numbers."""
    if _is_nested(space, spaces.Dict):
        return {key: _number_parts(each, parts) for key, each in space.items()}
    if _is_nested(space, spaces.Tuple):
        return tuple(_number_parts(each, parts) for each in space.spaces)
    parts.append(space)
    return len(parts) - 1


_ALIGNMENT = 64  # bytes of a cache line


class SharedArrays:
    """Arrays with a row for each environment, at the same offsets in the parent and in all workers.

    Arguments:
        block: shared memory of at least ``count_shared_bytes``.
        spaces: spaces of one environment.
        num_envs: number of rows.
    """

    def __init__(self, block: SharedBlock, spaces: EnvSpaces, num_envs: int) -> None:
        self.parts = SpaceParts(spaces.observation_space)
        arrays = _map_arrays(block, spaces, num_envs)
        self.rewards: npt.NDArray[np.float64] = arrays[0]
        self.terminated: npt.NDArray[np.bool_] = arrays[1]
        self.truncated: npt.NDArray[np.bool_] = arrays[2]
        self.observations = arrays[3 : 3 + len(self.parts.arrays)]
        """The array parts of the observations, ``(num_envs, *shape)`` each."""
        self.actions: npt.NDArray[Any] | None = arrays[-1] if is_array_space(spaces.action_space) else None
        """Actions of an array space; ``None`` if actions are sent in messages."""

    def write(self, env_id: int, observation: Any) -> list[Any]:
        """Write the observation of environment ``env_id``; return the parts that are no arrays.

        Raises:
            InvalidStepError: a part has another shape or kind of dtype than its space; nothing is written.
        """
        arrays, others = self.parts.split(observation)
        checked = [_as_part(*each) for each in zip(arrays, self.parts.arrays, strict=True)]
        for rows, array in zip(self.observations, checked, strict=True):
            rows[env_id] = array
        return others


def count_shared_bytes(spaces: EnvSpaces, num_envs: int) -> int:
    """Return the number of bytes of the ``SharedArrays`` of these environments."""
    return sum(_count_aligned_bytes(shape, dtype) for shape, dtype in _regions(spaces, num_envs))


def _regions(spaces: EnvSpaces, num_envs: int) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    rewards, flags = ((num_envs,), np.float64), ((num_envs,), np.bool_)
    observation = [((num_envs, *_shape(part)), part.dtype) for part in SpaceParts(spaces.observation_space).arrays]
    action = spaces.action_space
    actions = [((num_envs, *_shape(action)), action.dtype)] if is_array_space(action) else []
    return [(shape, np.dtype(dtype)) for shape, dtype in [rewards, flags, flags, *observation, *actions]]


def _map_arrays(block: SharedBlock, spaces: EnvSpaces, num_envs: int) -> list[npt.NDArray[Any]]:
    memory = np.frombuffer(block.map(count_shared_bytes(spaces, num_envs)), np.uint8)
    arrays, offset = [], 0
    for shape, dtype in _regions(spaces, num_envs):
        taken = memory[offset : offset + prod(shape) * dtype.itemsize]
        arrays.append(taken.view(dtype).reshape(shape))
        offset += _count_aligned_bytes(shape, dtype)
    return arrays


def _count_aligned_bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return -(-prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT


def _shape(space: Any) -> tuple[int, ...]:
    return tuple(space.shape or ())


def _as_part(given: Any, space: Any) -> npt.NDArray[Any]:
    array = np.asarray(given)
    if array.dtype == space.dtype and array.shape == space.shape:
        return array
    if array.shape != _shape(space):
        raise InvalidStepError(
            f"observation has shape {array.shape}: {space} needs {_shape(space)}; correct the environment or its space"
        )
    if not np.can_cast(array.dtype, space.dtype, casting="same_kind"):
        raise InvalidStepError(
            f"observation has dtype {array.dtype}: {space} needs {space.dtype}; correct the environment or its space"
        )
    return array


class LastObservations:
    """The last received observation of each environment.

    It is copied from the shared arrays when an answer arrives. So a worker that dies while it writes leaves it intact.
    """

    def __init__(self, shared: SharedArrays, num_envs: int) -> None:
        self._shared = shared
        # The copies, one array for each part of an observation, ``(num_envs, *shape)``; a worker never writes to them.
        self._arrays = [array.copy() for array in shared.observations]
        self._views = [_read_only(array) for array in self._arrays]  # the same arrays, for callers that take no copies
        self._others: list[list[Any]] = [[]] * num_envs  # by environment: the parts without an array

    def receive(self, env_ids: Sequence[int], each_others: Sequence[list[Any]]) -> None:
        """Copy the observations of ``env_ids``; ``each_others`` has their parts without an array, or is empty."""
        for to, source in zip(self._arrays, self._shared.observations, strict=True):
            if len(env_ids) == len(to):
                np.copyto(to, source)
            else:
                to[env_ids] = source[env_ids]
        for env_id, others in zip(env_ids, each_others, strict=bool(each_others)):
            self._others[env_id] = others

    def restore(self, env_id: int, observation: Any) -> None:
        """Set an observation from a saved state; ``None`` changes nothing."""
        if observation is not None:
            self.receive([env_id], [self._shared.write(env_id, observation)])

    def of(self, env_id: int) -> Any:
        """Return a copy of the observation of an environment, which was reset."""
        return self._shared.parts.join([np.copy(rows[env_id])[()] for rows in self._arrays], self._others[env_id])

    def of_all(self, copies: bool) -> Any:
        """Return the observations of all environments: copies, or views that the next step overwrites."""
        arrays = [array.copy() for array in self._arrays] if copies else self._views
        return self._shared.parts.join(arrays, self._shared.parts.batch_others(self._others))


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
