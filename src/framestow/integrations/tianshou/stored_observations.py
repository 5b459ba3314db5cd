"""A buffer's observations as an array that unpacks what it is asked for."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin


class SlotBuffer(Protocol):
    """What has observations by slot."""

    maxsize: int

    def get(self, index: Any, key: str, default_value: Any = None, stack_num: int | None = None) -> Any:
        """Give what is under ``key`` in these slots, as it came where ``stack_num`` is 1."""


class StoredObservations(NDArrayOperatorsMixin):
    """``buffer.obs`` or ``buffer.obs_next``: indexed by slots as an array of all of them is, and only to be read.

    Every look unpacks what it asks for. What NumPy or a method of arrays does with all of it, ``buffer.obs.mean()``,
    unpacks everything first. Where observations are dicts, their keys are attributes and string indices, as in a
    ``Batch``.
    """

    def __init__(self, buffer: SlotBuffer, name: str, path: tuple[str, ...] = ()) -> None:
        self._buffer, self._name, self._path = buffer, name, path

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            self._part_of(self._buffer.get(np.zeros(0, int), self._name, stack_num=1))[index]  # refuses what is no key
            return StoredObservations(self._buffer, self._name, (*self._path, index))
        return self._part_of(self._buffer.get(index, self._name, stack_num=1))

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        nothing = self[np.zeros(0, int)]
        if isinstance(nothing, np.ndarray):
            if not hasattr(nothing, key):
                raise AttributeError(key)
            return getattr(np.asarray(self), key)
        try:
            return self[key]
        except KeyError as missing:
            raise AttributeError(key) from missing

    def __len__(self) -> int:
        return self._buffer.maxsize

    @property
    def shape(self) -> tuple[int, ...]:
        """Slots of the buffer, and the shape of what each has."""
        return (len(self), *self[np.zeros(0, int)].shape[1:])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """What came."""
        dtype: np.dtype[Any] = self[np.zeros(0, int)].dtype
        return dtype

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("observations are packed: an array of them is always a new one; leave out copy=False")
        return np.asarray(self[:], dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
        arrays = (np.asarray(each) if isinstance(each, StoredObservations) else each for each in inputs)
        return getattr(ufunc, method)(*arrays, **settings)

    def __repr__(self) -> str:
        return f"StoredObservations({'.'.join((self._name, *self._path))} of {len(self)} slots)"

    def _part_of(self, observations: Any) -> Any:
        for key in self._path:
            observations = observations[key]
        return observations
