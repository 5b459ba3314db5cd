"""Memory that a parent shares with its workers: observations, actions, rewards, flags and numeric infos."""

from __future__ import annotations

import mmap
import os
import pickle
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from multiprocessing import reduction
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from framestow.envs.vector.calls import EnvSpaces
from framestow.errors import InvalidStepError


class SharedBlock:
    """Memory that nothing can leave behind, whoever dies: no directory ever lists it.

    On Linux it is a ``memfd``, elsewhere on POSIX a temporary file that was deleted as it was made, on Windows a named
    mapping that ends with its last holder. It travels to a worker among the arguments of its process, under any start
    method, and may be given its size later: the spaces that decide the size are known only once a worker has made its
    environments.
    """

    def __init__(self) -> None:
        self._name = f"framestow-{uuid.uuid4().hex}"
        self._file = -1 if sys.platform == "win32" else _unnamed_file(self._name)

    def grow(self, nbytes: int) -> None:
        """Give it its size; done once, by the process that made it, before anyone maps it."""
        if self._file >= 0:
            os.ftruncate(self._file, nbytes)

    def mapped(self, nbytes: int) -> mmap.mmap:
        """Map all of it; the mapping lives as long as an array over it does."""
        if sys.platform == "win32":
            return mmap.mmap(-1, nbytes, tagname=self._name)
        return mmap.mmap(self._file, nbytes)

    def close(self) -> None:
        """Let go of the file; what is mapped stays."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self._name, "file": reduction.DupFd(self._file) if self._file >= 0 else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._name = state["name"]
        self._file = -1 if state["file"] is None else state["file"].detach()


def _unnamed_file(name: str) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


_ARRAY_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class SpaceParts:
    """The leaves of a space, nested in ``Dict`` and ``Tuple`` to any depth, in one order.

    Spaces that a user registered with Gymnasium's ``concatenate`` stay whole and are batched by it.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.space = space
        self.arrays: list[gymnasium.Space[Any]] = []
        """Spaces of the parts that are arrays of one shape and dtype."""
        self.others: list[gymnasium.Space[Any]] = []
        """Spaces of the parts that are not: ``Text``, ``Sequence``, ``Graph``, ``OneOf`` and a user's own."""
        self._is_one_array = is_array_space(space)
        for leaf in _leaves(space):
            (self.arrays if is_array_space(leaf) else self.others).append(leaf)

    def split(self, observation: Any) -> tuple[list[Any], list[Any]]:
        """Take an observation apart: its arrays, and its other parts."""
        if self._is_one_array:
            return [observation], []
        arrays: list[Any] = []
        others: list[Any] = []
        _split(self.space, observation, arrays, others)
        return arrays, others

    def joined(self, arrays: Sequence[Any], others: Sequence[Any]) -> Any:
        """Put parts together, of one observation or of a batch."""
        return arrays[0] if self._is_one_array else _joined(self.space, iter(arrays), iter(others))

    def batched_others(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Batch the other parts of many observations, each as Gymnasium batches its space."""
        batches = []
        for part, leaf in enumerate(self.others):
            empty: Any = create_empty_array(leaf, len(rows))
            batches.append(concatenate(leaf, [row[part] for row in rows], empty))
        return batches


def is_array_space(space: gymnasium.Space[Any]) -> bool:
    """Whether everything in ``space`` is an array of one shape and dtype, and Gymnasium batches it as one."""
    is_stacked = concatenate.dispatch(type(space)) is concatenate.dispatch(spaces.Box)
    return is_stacked and isinstance(space, _ARRAY_SPACES)


def _is_nested(space: gymnasium.Space[Any], kind: type[gymnasium.Space[Any]]) -> bool:
    return isinstance(space, kind) and concatenate.dispatch(type(space)) is concatenate.dispatch(kind)


def _leaves(space: Any) -> Iterator[gymnasium.Space[Any]]:
    if _is_nested(space, spaces.Dict):
        for each in space.values():
            yield from _leaves(each)
    elif _is_nested(space, spaces.Tuple):
        for each in space.spaces:
            yield from _leaves(each)
    else:
        yield space


def _split(space: Any, observation: Any, arrays: list[Any], others: list[Any]) -> None:
    if _is_nested(space, spaces.Dict):
        for key, each in space.items():
            _split(each, observation[key], arrays, others)
    elif _is_nested(space, spaces.Tuple):
        for each, part in zip(space.spaces, observation, strict=True):
            _split(each, part, arrays, others)
    else:
        (arrays if is_array_space(space) else others).append(observation)


def _joined(space: Any, arrays: Iterator[Any], others: Iterator[Any]) -> Any:
    if _is_nested(space, spaces.Dict):
        return {key: _joined(each, arrays, others) for key, each in space.items()}
    if _is_nested(space, spaces.Tuple):
        return tuple(_joined(each, arrays, others) for each in space.spaces)
    return next(arrays if is_array_space(space) else others)


MOST_COLUMNS = 8
"""Infos with more keys travel as messages."""

_MARK = b"#"  # no pickle begins with it
_KINDS: dict[type, npt.DTypeLike] = {int: np.int64, float: np.float64, bool: np.bool_}


class Layout(NamedTuple):
    """What the columns of one answer hold."""

    keys: tuple[str, ...]
    kinds: tuple[type, ...]


class InfoColumns:
    """Writes and reads the infos of environments whose keys are the same and whose values are plain numbers.

    That is ``int`` of 64 bits, ``float`` and ``bool``, and none of their subclasses; all other infos are refused and
    have to be pickled. A worker writes the rows of its environments, and its answer tells the layout.

    Args:
        slots: ``int64`` of ``(MOST_COLUMNS, num_envs)``, in shared memory.
    """

    def __init__(self, slots: npt.NDArray[np.int64]) -> None:
        self._integers, self._floats = slots, slots.view(np.float64)
        self._told: tuple[Layout, bytes] | None = None

    def write(self, numbers: Sequence[int], infos: Sequence[dict[str, Any]]) -> bytes | None:
        """Write infos of environments ``numbers``; gives what tells their layout, or ``None`` where they do not fit."""
        keys, kinds = tuple(infos[0]), tuple(map(type, infos[0].values()))
        if self._told is None or self._told[0] != (keys, kinds):
            if not _fits(keys, kinds):
                return None
            self._told = Layout(keys, kinds), _MARK + pickle.dumps((keys, kinds))
        if any(tuple(info) != keys or tuple(map(type, info.values())) != kinds for info in infos[1:]):
            return None
        try:
            for column, (key, kind) in enumerate(zip(keys, kinds, strict=True)):
                rows = self._floats[column] if kind is float else self._integers[column]
                for number, info in zip(numbers, infos, strict=True):
                    rows[number] = info[key]
        except OverflowError:  # an integer of more than 64 bits
            return None
        return self._told[1]

    def of_all(self, told: bytes) -> dict[str, Any]:
        """Give the infos of all environments, whose layout is ``told``, in Gymnasium's form."""
        infos: dict[str, Any] = {}
        for column, (key, kind) in enumerate(zip(*layout_of(told), strict=True)):
            rows = self._floats[column] if kind is float else self._integers[column]
            infos[key] = rows.astype(_KINDS[kind])
            mask = infos[f"_{key}"] = np.empty(len(rows), np.bool_)
            mask.fill(True)
        return infos

    def of_each(self, told: bytes, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Give the infos of environments ``numbers``, whose layout is ``told``, as they gave them."""
        keys, kinds = layout_of(told)
        columns = []
        for column, kind in enumerate(kinds):
            rows = self._floats[column] if kind is float else self._integers[column]
            columns.append([kind(rows[number]) for number in numbers])
        return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]


def is_layout(told: bytes) -> bool:
    """Whether an answer tells a layout."""
    return told[:1] == _MARK


@lru_cache(maxsize=64)
def layout_of(told: bytes) -> Layout:
    """Read what `InfoColumns.write` gave."""
    return Layout(*pickle.loads(told[len(_MARK) :]))


def _fits(keys: tuple[Any, ...], kinds: tuple[type, ...]) -> bool:
    are_plain = all(kind in _KINDS for kind in kinds) and all(type(key) is str for key in keys)
    if not are_plain or not 0 < len(keys) <= MOST_COLUMNS:
        return False
    # Gymnasium treats these in its own way: the mask of one key may be another, and final observations are objects.
    return "final_obs" not in keys and not {f"_{key}" for key in keys} & set(keys)


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
