"""Batches as PyTorch tensors on the learner's device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias, overload

import numpy.typing as npt
import torch
from torch import Tensor

from framestow.frames.observation_spec import map_arrays
from framestow.replay.batch import Batch, SequenceBatch
from framestow.torch.parcel import Parcel


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
