"""Batches as PyTorch tensors on the learner's device.

``to_tensors`` converts a batch. On the CPU the tensors are views of the batch's arrays. For CUDA, ``TransferBuffer``
packs all arrays of a batch into one buffer, so that they are copied in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from framestow.checks import truth_value
from framestow.errors import InvalidSettingsError
from framestow.replay.reading.batch import Batch, SequenceBatch, check_batch

_ALIGNMENT = 64  # bytes, enough for every dtype and every load of a device


class TransferBuffer:
    """Layout of a batch's arrays in one buffer, so that one copy moves them to a device.

    Views that share an array are copied as that array, once, and become views again on the device. Example::

        frames (B, 5, H, W): observation = frames[:, :-1], next_observation = frames[:, 1:]  -> 5 B images, not 8 B

    The buffer keeps the arrays alive. Only ``write_to`` reads them.
    """

    def __init__(self, arrays: Iterable[npt.NDArray[Any]]) -> None:
        self._arrays = list(arrays)
        # By the id of an array: what is copied for it, itself or the array that it is a view of.
        self._source_by_array = _choose_sources(self._arrays)
        self._starts: dict[int, int] = {}  # first byte of each source, by its id
        self._sources: list[npt.NDArray[Any]] = []  # what is copied, each once, in the order of the buffer
        self.nbytes = 0
        for source in self._source_by_array.values():
            if id(source) not in self._starts:
                self._starts[id(source)] = self.nbytes
                self._sources.append(source)
                self.nbytes += _round_up(source.nbytes)

    def write_to(self, staging: Tensor) -> None:
        """Copy the arrays into ``staging``, a uint8 CPU tensor of at least ``nbytes`` bytes."""
        buffer: npt.NDArray[np.uint8] = staging.numpy()
        for array in self._sources:
            start = self._starts[id(array)]
            np.copyto(buffer[start : start + array.nbytes].view(array.dtype).reshape(array.shape), array)

    def find(self, array: npt.NDArray[Any], copy: Tensor) -> Tensor:
        """Return the tensor of one of the arrays as a view of ``copy``, a uint8 copy of the buffer."""
        source = self._source_by_array[id(array)]
        start = self._starts[id(source)]
        if source is array or not array.size:
            num_bytes = array.nbytes if array.size else 0
            return copy[start : start + num_bytes].view(_torch_dtype(array.dtype)).view(array.shape)
        flat = copy[start : start + _round_up(source.nbytes)].view(_torch_dtype(array.dtype))
        offset = (_address(array) - _address(source)) // array.itemsize
        strides = [stride // array.itemsize for stride in array.strides]
        return flat.as_strided(array.shape, strides, flat.storage_offset() + offset)


def _choose_sources(arrays: list[npt.NDArray[Any]]) -> dict[int, npt.NDArray[Any]]:
    """Choose what is copied for each array, by id: the array that it is a view of if that is hardly larger, or itself.

    A base is hardly larger if its views together have at least its bytes, up to the alignment.
    """
    viewed_bytes: dict[int, int] = {}
    owners = [_owner(array) for array in arrays]
    for array, owner in zip(arrays, owners, strict=True):
        viewed_bytes[id(owner)] = viewed_bytes.get(id(owner), 0) + array.nbytes
    return {
        id(array): owner if owner.nbytes <= viewed_bytes[id(owner)] + _ALIGNMENT and _can_find(array, owner) else array
        for array, owner in zip(arrays, owners, strict=True)
    }


def _owner(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array that owns the memory of ``array``; strided views have other objects in between."""
    owner, base = array, array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            owner = base
        base = getattr(base, "base", None)
    return owner


def _can_find(array: npt.NDArray[Any], owner: npt.NDArray[Any]) -> bool:
    """Return whether ``array`` is a view of ``owner`` with strides of whole elements, none negative."""
    distances = (_address(array) - _address(owner), *array.strides)
    return owner.flags.c_contiguous and all(step >= 0 and step % array.itemsize == 0 for step in distances)


def _round_up(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


TensorBatch: TypeAlias = Batch[Tensor]
"""A ``Batch`` as tensors on a device, with the same shapes and dtypes.

``uint8`` pixels stay ``uint8``; scale them on the device (``scale_pixels``). Dict and tuple observations become dicts
and tuples of tensors. ``index`` stays on the CPU, for ``memory.update_priorities``.

``observation`` and ``next_observation`` share frames: to write to them, ask for ``copy=True``. On the CPU the tensors
are views of the batch's arrays, which are not reused while a tensor references them.
"""

TensorSequenceBatch: TypeAlias = SequenceBatch[Tensor]
"""A ``SequenceBatch`` as tensors on a device; otherwise like ``TensorBatch``.

On the device, too, stacks are views of the frames of their sequence.
"""

AnyBatch: TypeAlias = Batch | SequenceBatch
AnyTensors: TypeAlias = TensorBatch | TensorSequenceBatch


def parse_device(device: Any) -> torch.device:
    """Return ``device`` as PyTorch's object; raise ``InvalidSettingsError`` for a value that names no device."""
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidSettingsError(
            f"device is {device!r}: PyTorch does not know this device ({error}); give 'cpu' or 'cuda'"
        ) from error


def usable_device(device: Any) -> torch.device:
    """Return ``device`` as PyTorch's object; raise ``InvalidSettingsError`` if no tensor can be created there."""
    parsed = parse_device(device)
    if parsed.type != "cpu":
        try:
            torch.empty(0, device=parsed)
        except (AssertionError, ImportError, NotImplementedError, RuntimeError) as error:
            raise InvalidSettingsError(
                f"device is {device!r}: PyTorch cannot use this device here ({error}); give 'cpu', or install a "
                "PyTorch build for the device"
            ) from error
    return parsed


@overload
def to_tensors(batch: Batch, device: torch.device | str = "cpu", *, copy: bool = False) -> TensorBatch: ...


@overload
def to_tensors(
    batch: SequenceBatch, device: torch.device | str = "cpu", *, copy: bool = False
) -> TensorSequenceBatch: ...


def to_tensors(batch: AnyBatch, device: torch.device | str = "cpu", *, copy: bool = False) -> AnyTensors:
    """Return ``batch`` as tensors on ``device``.

    CPU: nothing is copied, unless you ask for a ``copy``. CUDA: the arrays are copied as one block of pinned memory,
    asynchronously on the current stream. Kernels queued after this call see the complete batch.

    Arguments:
        batch: A ``Batch`` or a ``SequenceBatch``.
        device: Device of the tensors, such as ``"cuda"``.
        copy: Whether no two tensors share memory, with each other or with the batch, so that you may write to them.
    """
    device, copy = usable_device(device), truth_value("copy", copy)
    if device.type != "cuda":
        batch = check_batch(batch).copy() if copy and device.type == "cpu" else check_batch(batch)
        return convert_batch(batch, lambda array: pixels_to_device(array, device))
    buffer = transfer_buffer_of(check_batch(batch))
    # The caching host allocator does not reuse a pinned block before the copy that reads it is done.
    staging = torch.empty(buffer.nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)
    buffer.write_to(staging)
    on_device = staging.to(device, non_blocking=True)
    tensors = convert_batch(batch, lambda array: buffer.find(array, on_device))
    return copied(tensors) if copy else tensors


def copied(tensors: AnyTensors) -> AnyTensors:
    """Return the batch with tensors of its own, contiguous ones; those of a device are copied there."""
    return tensors.map(lambda tensor: tensor.clone(memory_format=torch.contiguous_format))


def transfer_buffer_of(batch: AnyBatch) -> TransferBuffer:
    """Return the transfer buffer of the arrays of ``batch`` that go to the device."""
    arrays: list[npt.NDArray[Any]] = []
    batch.map(arrays.append)
    return TransferBuffer(arrays)


def convert_batch(batch: AnyBatch, convert: Callable[[npt.NDArray[Any]], Tensor]) -> AnyTensors:
    """Return ``batch`` as tensors made by ``convert``; ``index`` stays on the CPU."""
    return batch.map(convert, _on_cpu)


def pixels_to_device(observations: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Return observations of any dtype as a tensor on ``device``; on the CPU a view."""
    tensor = _on_cpu(observations)
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def _on_cpu(array: npt.NDArray[Any]) -> Tensor:
    # PyTorch has no read-only tensors, so a read-only array is copied.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
