"""An observation taken apart: arrays of a fixed size, which can lie in shared memory, and everything else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

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
