"""Batches as PyTorch tensors on the learner's device."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from framestow.replay.batch import Batch


@dataclasses.dataclass(frozen=True)
class TensorBatch:
    """A :class:`~framestow.replay.batch.Batch` on a device; shapes and dtypes are those of the batch.

    ``uint8`` pixels stay so: a quarter of the bytes to move, and the network scales them where they arrive. On the CPU
    the tensors look at the batch's own arrays, which stay as they are for as long as a tensor looks at them.
    """

    observation: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_observation: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.action)


def to_tensors(batch: Batch, device: torch.device) -> TensorBatch:
    """Bring what a learner needs of ``batch`` to ``device``.

    On the CPU nothing is copied. To a CUDA device the arrays go through pinned memory and are copied asynchronously on
    the current stream, so that the next batch can be drawn meanwhile; kernels queued after this call see them whole.
    """
    return TensorBatch(
        observation=_to_tensor(batch.observation, device),
        action=_to_tensor(batch.action, device),
        reward=_to_tensor(batch.reward, device),
        discount=_to_tensor(batch.discount, device),
        next_observation=_to_tensor(batch.next_observation, device),
        weight=_to_tensor(batch.weight, device),
    )


def pixels_to_device(observations: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Bring observations, of whatever dtype, to ``device``; on the CPU a view of them, not a copy."""
    return _to_tensor(observations, device)


def _to_tensor(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    # PyTorch has no read-only tensors and warns; a copy keeps the caller's promise to whoever locked the array.
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        # The caching host allocator keeps a pinned block from reuse until the copy that reads it is through.
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
