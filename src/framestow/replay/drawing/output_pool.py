"""Output arrays that are used again once nobody looks at them."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_BUFFERS = 8
ALIGNMENT = 64  # bytes: what XLA asks of memory that it looks at without a copy


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
    """Give a C-contiguous array with arbitrary contents that begins at a multiple of ``ALIGNMENT``.

    It is a view of the array that has the memory. NumPy's own begin at any multiple of 16.
    """
    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(num_bytes + ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    return memory[start : start + num_bytes].view(dtype).reshape(shape)


def _count_references(buffers: list[npt.NDArray[Any]], place: int) -> tuple[int, int]:
    """References to a buffer, and to the array that has its memory, which views of the buffer refer to."""
    return sys.getrefcount(buffers[place]), sys.getrefcount(buffers[place].base)


_IDLE_REFERENCES = _count_references([aligned_empty((1,))], 0)  # a buffer that only its list refers to


class OutputPool:
    """Keeps a few output buffers and lends each again when every array that looked at it is gone.

    Fresh memory for each batch costs more than unpacking does: the operating system zeroes every page of it (measured:
    1.6 ms where the copy took 0.09). A view holds a reference to the array that has its memory, so a buffer with no
    reference but the pool's own, to it and to that, is free. That also covers views of views, tensors made by
    ``torch.from_numpy``, memoryviews and DLPack, with no call to give anything back.
    """

    def __init__(self, max_buffers: int = MAX_BUFFERS, max_bytes: int = 144 * 2**20) -> None:
        self._buffers: list[npt.NDArray[Any]] = []
        self._max_buffers = max_buffers
        self.max_bytes = max_bytes  # four batches, as a loader has out, of 1,024 windows of five Atari frames

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers that the pool keeps, lent or idle; not the ``ALIGNMENT`` before each."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
        """Lend an aligned array of ``shape``, its contents arbitrary; one that the pool has no room for is not kept."""
        for place in range(len(self._buffers)):
            if self._is_idle(place) and self._buffers[place].shape == shape and self._buffers[place].dtype == dtype:
                return self._buffers[place]
        buffer = aligned_empty(shape, dtype)
        if self._makes_room_for(buffer.nbytes):
            self._buffers.append(buffer)
        return buffer

    def _is_idle(self, place: int) -> bool:
        return _count_references(self._buffers, place) == _IDLE_REFERENCES

    def _makes_room_for(self, num_bytes: int) -> bool:
        """Drop idle buffers, oldest first, until one of ``num_bytes`` fits; whether it does."""
        if num_bytes > self.max_bytes:
            return False
        place = 0
        while len(self._buffers) >= self._max_buffers or self.nbytes + num_bytes > self.max_bytes:
            if place == len(self._buffers):
                return False
            if self._is_idle(place):
                del self._buffers[place]
            else:
                place += 1
        return True
