"""Batches as PyTorch tensors on the learner's device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from framestow.frames.observation_spec import map_arrays
from framestow.replay.batch import Batch, SequenceBatch

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


@dataclasses.dataclass(frozen=True)
class TensorBatch:
    """A :class:`~framestow.replay.batch.Batch` on a device; shapes and dtypes are those of the batch.

    ``uint8`` pixels stay so: a quarter of the bytes to move, and the network scales them where they arrive. Where the
    batch has dicts or tuples of arrays, these are dicts and tuples of tensors. ``index`` stays on the CPU, where
    ``memory.update_priorities`` wants it. On the CPU the tensors look at the batch's own arrays, which stay as they are
    for as long as a tensor looks at them. Treat the observations as read-only: they share their frames.
    """

    observation: Any
    action: Any
    reward: Tensor
    discount: Tensor
    next_observation: Any
    index: Tensor
    weight: Tensor
    terminated: Tensor
    truncated: Tensor
    extras: dict[str, Tensor]

    def __len__(self) -> int:
        return len(self.index)


@dataclasses.dataclass(frozen=True)
class TensorSequenceBatch:
    """A :class:`~framestow.replay.batch.SequenceBatch` on a device; all else is as for ``TensorBatch``.

    Stacks are views of the frames of their sequence, on the device too, where these have travelled once.
    """

    observation: Any
    action: Any
    reward: Tensor
    discount: Tensor
    next_observation: Any
    terminated: Tensor
    truncated: Tensor
    is_first: Tensor
    mask: Tensor
    index: Tensor
    weight: Tensor
    extras: dict[str, Tensor]
    burn_in: int = 0

    def __len__(self) -> int:
        return len(self.index)

    @property
    def learns(self) -> Tensor:
        """Steps that a loss is for, ``(B, L)``: ``mask`` without the first ``burn_in``."""
        learns = self.mask.clone()
        learns[:, : self.burn_in] = False
        return learns


NOT_ON_DEVICE = ("index", "burn_in")

AnyBatch: TypeAlias = Batch | SequenceBatch
AnyTensors: TypeAlias = TensorBatch | TensorSequenceBatch


@overload
def to_tensors(batch: Batch, device: torch.device | str = "cpu") -> TensorBatch: ...


@overload
def to_tensors(batch: SequenceBatch, device: torch.device | str = "cpu") -> TensorSequenceBatch: ...


def to_tensors(batch: AnyBatch, device: torch.device | str = "cpu") -> AnyTensors:
    """Bring ``batch`` to ``device``.

    On the CPU nothing is copied. To a CUDA device all arrays go in one piece of pinned memory, which is copied
    asynchronously on the current stream, so that the next batch can be drawn meanwhile; kernels queued after this call
    see them whole.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return converted(batch, lambda array: pixels_to_device(array, device))
    parcel = parcel_of(batch)
    # The caching host allocator keeps a pinned block from reuse until the copy that reads it is through.
    staging = torch.empty(parcel.nbytes, dtype=torch.uint8, pin_memory=True)
    parcel.write_to(staging)
    piece = staging.to(device, non_blocking=True)
    return converted(batch, lambda array: parcel.find(array, piece))


def parcel_of(batch: AnyBatch) -> Parcel:
    """Give the parcel of what travels of ``batch``."""
    arrays: list[npt.NDArray[Any]] = []
    for name in _on_device(batch):
        map_arrays(arrays.append, getattr(batch, name))
    return Parcel(arrays)


def converted(batch: AnyBatch, convert: Callable[[npt.NDArray[Any]], Tensor]) -> AnyTensors:
    """Make the tensors of ``batch`` by ``convert``, but for ``index``, which stays where it is."""
    fields = {name: map_arrays(convert, getattr(batch, name)) for name in _on_device(batch)}
    index = _on_cpu(batch.index)
    if isinstance(batch, SequenceBatch):
        return TensorSequenceBatch(index=index, burn_in=batch.burn_in, **fields)
    return TensorBatch(index=index, **fields)


def _on_device(batch: AnyBatch) -> list[str]:
    """The fields of a batch that travel to the device."""
    return [name for name in vars(batch) if name not in NOT_ON_DEVICE]


def pixels_to_device(observations: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Bring observations, of whatever dtype, to ``device``; on the CPU a view of them, not a copy."""
    tensor = _on_cpu(observations)
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def _on_cpu(array: npt.NDArray[Any]) -> Tensor:
    # PyTorch has no read-only tensors and warns; a copy keeps the caller's promise to whoever locked the array.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
