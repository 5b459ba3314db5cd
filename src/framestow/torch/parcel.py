"""All arrays of a batch in one piece of memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_ALIGNMENT = 64  # bytes: enough for any load that a device makes, and for a dtype's own


class Parcel:
    """Says where the arrays of a batch lie in one piece of memory, so that they travel to a device in one copy.

    Arrays that look at one array travel as that, once: the frames that observation and next observation share, or the
    frames of a sequence that its stacks overlap in. Each is found on the other side by its place and strides. ::

        frames (B, 5, H, W) ── observation frames[:, :-1], next observation frames[:, 1:]:  5 B pictures, not 8 B

    Keeps the arrays alive, and looks at them in ``write_to`` alone.
    """

    def __init__(self, arrays: Iterable[npt.NDArray[Any]]) -> None:
        self._arrays = list(arrays)
        self._travelling_by_array = _travelling(self._arrays)
        self._starts: dict[int, int] = {}  # by the id of what travels
        self._travelling: list[npt.NDArray[Any]] = []
        self.nbytes = 0
        for travelling in self._travelling_by_array.values():
            if id(travelling) not in self._starts:
                self._starts[id(travelling)] = self.nbytes
                self._travelling.append(travelling)
                self.nbytes += _rounded_up(travelling.nbytes)

    def write_to(self, staging: Tensor) -> None:
        """Copy the arrays into ``staging``: uint8 on the CPU, of at least ``nbytes``."""
        piece: npt.NDArray[np.uint8] = staging.numpy()
        for array in self._travelling:
            start = self._starts[id(array)]
            np.copyto(piece[start : start + array.nbytes].view(array.dtype).reshape(array.shape), array)

    def find(self, array: npt.NDArray[Any], piece: Tensor) -> Tensor:
        """Give the tensor of an array of this parcel: a view of ``piece``, uint8, which has what was written."""
        travelling = self._travelling_by_array[id(array)]
        start = self._starts[id(travelling)]
        if travelling is array or not array.size:
            num_bytes = array.nbytes if array.size else 0
            return piece[start : start + num_bytes].view(_torch_dtype(array.dtype)).view(array.shape)
        flat = piece[start : start + _rounded_up(travelling.nbytes)].view(_torch_dtype(array.dtype))
        offset = (_address(array) - _address(travelling)) // array.itemsize
        strides = [stride // array.itemsize for stride in array.strides]
        return flat.as_strided(array.shape, strides, flat.storage_offset() + offset)


def _travelling(arrays: list[npt.NDArray[Any]]) -> dict[int, npt.NDArray[Any]]:
    """Choose, for the id of each array, what travels: what it looks at, where that is hardly larger, or itself."""
    viewed_bytes: dict[int, int] = {}
    owners = [_owner(array) for array in arrays]
    for array, owner in zip(arrays, owners, strict=True):
        viewed_bytes[id(owner)] = viewed_bytes.get(id(owner), 0) + array.nbytes
    return {
        id(array): owner if owner.nbytes <= viewed_bytes[id(owner)] + _ALIGNMENT and _can_find(array, owner) else array
        for array, owner in zip(arrays, owners, strict=True)
    }


def _owner(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Follow views to the array that has the memory; strided views of NumPy have something else in between."""
    owner, base = array, array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            owner = base
        base = getattr(base, "base", None)
    return owner


def _can_find(array: npt.NDArray[Any], owner: npt.NDArray[Any]) -> bool:
    """Whether strides of whole elements, none backwards, find ``array`` in the bytes of ``owner``."""
    distances = (_address(array) - _address(owner), *array.strides)
    return owner.flags.c_contiguous and all(step >= 0 and step % array.itemsize == 0 for step in distances)


def _rounded_up(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
