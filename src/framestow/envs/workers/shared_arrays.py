"""Arrays that a parent shares with its workers: observations, actions, rewards, flags and numeric infos."""

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
        self.space = space
        self.arrays: list[gymnasium.Space[Any]] = []
        """Spaces of the parts that are arrays of a fixed shape and dtype."""
        self.others: list[gymnasium.Space[Any]] = []
        """Spaces of the other parts: ``Text``, ``Sequence``, ``Graph``, ``OneOf`` and users' classes."""
        # Whether observations are one array, which is neither split nor joined.
        self._is_one_array = is_array_space(space)
        for array in _arrays(space):
            (self.arrays if is_array_space(array) else self.others).append(array)

    def split(self, observation: Any) -> tuple[list[Any], list[Any]]:
        """Return the array parts and the other parts of an observation."""
        if self._is_one_array:
            return [observation], []
        arrays: list[Any] = []
        others: list[Any] = []
        _split(self.space, observation, arrays, others)
        return arrays, others

    def join(self, arrays: Sequence[Any], others: Sequence[Any]) -> Any:
        """Combine parts to one observation or one batch."""
        return arrays[0] if self._is_one_array else _join(self.space, iter(arrays), iter(others))

    def batch_others(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
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


def _arrays(space: Any) -> Iterator[gymnasium.Space[Any]]:
    if _is_nested(space, spaces.Dict):
        for each in space.values():
            yield from _arrays(each)
    elif _is_nested(space, spaces.Tuple):
        for each in space.spaces:
            yield from _arrays(each)
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


def _join(space: Any, arrays: Iterator[Any], others: Iterator[Any]) -> Any:
    if _is_nested(space, spaces.Dict):
        return {key: _join(each, arrays, others) for key, each in space.items()}
    if _is_nested(space, spaces.Tuple):
        return tuple(_join(each, arrays, others) for each in space.spaces)
    return next(arrays if is_array_space(space) else others)


MAX_COLUMNS = 8
"""Infos with more keys are sent in messages."""

_MARK = b"#"  # no pickle begins with this byte
# Numbers that an info column takes.
_KINDS: dict[type, npt.DTypeLike] = {int: np.int64, float: np.float64, bool: np.bool_}


class Layout(NamedTuple):
    """Keys and types of the info columns."""

    keys: tuple[str, ...]
    kinds: tuple[type, ...]


class InfoColumns:
    """Write and read infos in shared memory, if all have the same keys and only numbers as values.

    Numbers are ``int`` of 64 bits, ``float`` and ``bool``, without subclasses; other infos must be pickled. A worker
    writes the rows of its environments, and sends the layout in its answer.

    Arguments:
        slots: ``int64`` ``(MAX_COLUMNS, num_envs)``, in shared memory.
    """

    def __init__(self, slots: npt.NDArray[np.int64]) -> None:
        # Two views of the same 8-byte slots: a column of floats has their bits.
        self._integers, self._floats = slots, slots.view(np.float64)
        # Layout of the last infos and its packed bytes, since most steps have the same; None before the first.
        self._last_layout: tuple[Layout, bytes] | None = None

    def write(self, env_ids: Sequence[int], infos: Sequence[dict[str, Any]]) -> bytes | None:
        """Write the infos of environments ``env_ids``; return the packed layout, or ``None`` if they do not fit."""
        keys, kinds = tuple(infos[0]), tuple(map(type, infos[0].values()))
        if self._last_layout is None or self._last_layout[0] != (keys, kinds):
            if not _fits(keys, kinds):
                return None
            self._last_layout = Layout(keys, kinds), _MARK + pickle.dumps((keys, kinds))
        if any(tuple(info) != keys or tuple(map(type, info.values())) != kinds for info in infos[1:]):
            return None
        try:
            for column, (key, kind) in enumerate(zip(keys, kinds, strict=True)):
                rows = self._floats[column] if kind is float else self._integers[column]
                for env_id, info in zip(env_ids, infos, strict=True):
                    rows[env_id] = info[key]
        except OverflowError:  # an integer of more than 64 bits
            return None
        return self._last_layout[1]

    def of_all(self, packed_layout: bytes) -> dict[str, Any]:
        """Return the infos of all environments in Gymnasium's format; ``packed_layout`` is the packed layout."""
        infos: dict[str, Any] = {}
        for column, (key, kind) in enumerate(zip(*layout_of(packed_layout), strict=True)):
            rows = self._floats[column] if kind is float else self._integers[column]
            infos[key] = rows.astype(_KINDS[kind])
            mask = infos[f"_{key}"] = np.empty(len(rows), np.bool_)
            mask.fill(True)
        return infos

    def of_each(self, packed_layout: bytes, env_ids: Sequence[int]) -> list[dict[str, Any]]:
        """Return the info of each of the environments ``env_ids``; ``packed_layout`` is the packed layout."""
        keys, kinds = layout_of(packed_layout)
        columns = []
        for column, kind in enumerate(kinds):
            rows = self._floats[column] if kind is float else self._integers[column]
            columns.append([kind(rows[env_id]) for env_id in env_ids])
        return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]


def is_layout(packed_layout: bytes) -> bool:
    """Return whether an answer is a packed layout."""
    return packed_layout[:1] == _MARK


@lru_cache(maxsize=64)
def layout_of(packed_layout: bytes) -> Layout:
    """Unpack the layout that ``InfoColumns.write`` returned."""
    return Layout(*pickle.loads(packed_layout[len(_MARK) :]))


def _fits(keys: tuple[Any, ...], kinds: tuple[type, ...]) -> bool:
    are_plain = all(kind in _KINDS for kind in kinds) and all(type(key) is str for key in keys)
    if not are_plain or not 0 < len(keys) <= MAX_COLUMNS:
        return False
    # Gymnasium treats these keys specially: a key may be the mask of another, and final observations are objects.
    return "final_obs" not in keys and not {f"_{key}" for key in keys} & set(keys)


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
        self.infos = InfoColumns(arrays[3])
        self.observations = arrays[4 : 4 + len(self.parts.arrays)]
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
    numbers: list[tuple[tuple[int, ...], Any]] = [((num_envs,), np.float64), ((num_envs,), np.bool_)]
    numbers += [((num_envs,), np.bool_), ((MAX_COLUMNS, num_envs), np.int64)]
    observation = [((num_envs, *_shape(part)), part.dtype) for part in SpaceParts(spaces.observation_space).arrays]
    action = spaces.action_space
    actions = [((num_envs, *_shape(action)), action.dtype)] if is_array_space(action) else []
    return [(shape, np.dtype(dtype)) for shape, dtype in [*numbers, *observation, *actions]]


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
