"""Infos that are numbers lie in shared memory, a column a key, instead of being pickled at every step."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

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
