"""What a library calls its buffer's array of observations, unpacked where somebody looks."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError

MOST_BYTES = 2**30  # are unpacked at once

Unpack = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[Any]]


class HeldObservations:
    """Reads as an array ``(rows, streams, *observation)`` that cannot be written to.

    Its first two axes take any index that NumPy takes; what is looked at is unpacked into a new array. Rows that hold
    nothing yet are zeros. ``unpack`` gives the observations of some rows and streams.

    Raises ``InvalidSettingsError`` where more than a gibibyte would be unpacked at once.
    """

    def __init__(self, unpack: Unpack, num_held: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._unpack, self._num_held, self.shape, self.dtype = unpack, num_held, shape, dtype

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        rows, streams = np.indices(self.shape[:2], sparse=True)
        places = (rows * self.shape[1] + streams)[_of_rows_and_streams(key)]
        observation = self.shape[2:]
        num_bytes = places.size * int(np.prod(observation)) * self.dtype.itemsize
        if num_bytes > MOST_BYTES:
            raise InvalidSettingsError(
                f"{places.size} observations have {num_bytes / 2**30:.1f} GiB unpacked: {MOST_BYTES // 2**30} GiB are "
                "unpacked at once; look at fewer rows, or go through memory.episodes() of the buffer"
            )
        found = np.zeros((places.size, *observation), self.dtype)
        rows, streams = np.divmod(places.ravel(), self.shape[1])
        is_held = rows < self._num_held
        if is_held.any():
            found[is_held] = self._unpack(rows[is_held], streams[is_held])
        return found.reshape(*places.shape, *observation)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("observations are unpacked when they are looked at: there is no array to look at")
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)


def _of_rows_and_streams(key: Any) -> Any:
    """Give ``key`` without what it says of whole observations."""
    keys = key if isinstance(key, tuple) else (key,)
    while len(keys) > 2 and (isinstance(keys[-1], EllipsisType) or _is_all(keys[-1])):
        keys = keys[:-1]
    if len(keys) > 2:
        raise InvalidSettingsError(
            f"observations are looked up by {len(keys)} indices: they are unpacked whole; give those of rows and "
            "environments, then index what comes back"
        )
    return keys


def _is_all(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)
