"""``PackedArray``: observations that a library reads as an array, unpacked when they are indexed."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import EllipsisType
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from framestow.errors import InvalidSettingsError

MAX_BYTES = 2**30  # unpacked at once


class PackedArray(NDArrayOperatorsMixin):
    """Array-like of the observations in ``cells``, ``(*cells.shape, *shape)``, which cannot be assigned to.

    The axes of the cells take any NumPy index. Each index unpacks into a new array. NumPy functions and methods of
    arrays, such as ``.mean()``, unpack everything.

    Arguments:
        read: returns the observations in some cells: takes ``(n,)``, returns ``(n, *shape)``.
        cells: number of each cell.
        shape: shape of one observation.
        dtype: dtype of the observations.

    Raises:
        InvalidSettingsError: more than 1 GiB would be unpacked at once, or something is assigned.
    """

    def __init__(
        self,
        read: Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]],
        cells: npt.NDArray[np.int64],
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
    ) -> None:
        self._read, self._cells = read, cells
        self.shape, self.ndim, self.dtype = (*cells.shape, *shape), cells.ndim + len(shape), np.dtype(dtype)

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        num_axes = self._cells.ndim
        cells, shape = self._cells[_of_cells(key, num_axes)], self.shape[num_axes:]
        num_bytes = cells.size * math.prod(shape) * self.dtype.itemsize
        if num_bytes > MAX_BYTES:
            raise InvalidSettingsError(
                f"{cells.size} observations have {num_bytes / 2**30:.1f} GiB unpacked: the limit is "
                f"{MAX_BYTES // 2**30} GiB; index fewer of them, or iterate over memory.episodes() of the buffer"
            )
        return self._read(cells.ravel()).reshape((*cells.shape, *shape))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise InvalidSettingsError(
            f"observations[{key!r}] are assigned: stored ones are packed, and cannot be changed; add steps with add(), "
            "or change the arrays of a sample"
        )

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("observations are unpacked into a new array: copy=False is not possible; leave it out")
        return np.asarray(self[:], dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
        if any(isinstance(each, PackedArray) for each in settings.get("out", ())):
            self[:] = settings["out"]  # raises
        arrays = (np.asarray(each) if isinstance(each, PackedArray) else each for each in inputs)
        return getattr(ufunc, method)(*arrays, **settings)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(np.asarray(self), name)

    def __repr__(self) -> str:
        return f"PackedArray(shape={self.shape}, dtype={self.dtype})"


def _of_cells(key: Any, num_axes: int) -> Any:
    """Return ``key`` without trailing full slices of the axes of observations."""
    keys = key if isinstance(key, tuple) else (key,)
    while len(keys) > num_axes and (isinstance(keys[-1], EllipsisType) or _is_all(keys[-1])):
        keys = keys[:-1]
    if len(keys) > num_axes:
        raise InvalidSettingsError(
            f"observations are indexed with {len(keys)} indices: the limit is {num_axes}, before the axes of an "
            "observation; index the returned array further"
        )
    return keys


def _is_all(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)
