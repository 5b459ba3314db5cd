"""Batches as JAX arrays, loaded on background threads.

Needs the extra ``framestow[jax]``. On the CPU, arrays are shared through DLPack instead of copied. docs/tensors.md has
examples, and the rules for shared arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

from framestow._core import OutputPool
from framestow.errors import InvalidSettingsError
from framestow.extras import check_library, missing_extra
from framestow.interface import public_names
from framestow.keywords import suggests_keywords
from framestow.replay.memory import check_batch_size
from framestow.replay.reading.batch import NOT_MAPPED, Batch, SequenceBatch, check_batch
from framestow.replay.reading.batches_ahead import (
    BatchesAhead,
    DrawsAhead,
    Pending,
    draw_function,
    sequence_draw_function,
)
from framestow.replay.reading.read_calls import ReadCalls
from framestow.replay.reading.sequences import Borders, SequenceShape

try:
    check_library(__name__, "jax")
    import jax  # an absolute import: JAX, not this module
except ModuleNotFoundError as missing:
    raise missing_extra(__name__, missing.name, "jax") from missing

__all__ = ["BatchLoader", "JaxBatch", "JaxSequenceBatch", "SequenceLoader", "to_jax"]
__dir__ = public_names(__name__)


JaxBatch: TypeAlias = Batch[jax.Array]
"""A ``Batch`` as JAX arrays of the same shapes.

Without ``jax_enable_x64``, JAX converts 64-bit dtypes to 32 bits: ``int64`` actions become ``int32``. ``index`` stays a
NumPy array of ``int64``, for ``memory.update_priorities``. Dict and tuple observations become dicts and tuples of
arrays.

The batch is a pytree of all fields except ``index``, which is ``None`` inside a traced function.
"""

JaxSequenceBatch: TypeAlias = SequenceBatch[jax.Array]
"""A ``SequenceBatch`` as JAX arrays; otherwise like ``JaxBatch``.

``burn_in`` is not a leaf of the pytree: functions are traced once for each value.
"""


def _register(kind: type[Batch] | type[SequenceBatch]) -> None:
    """Register ``kind`` as a pytree of all its fields except ``index`` and ``burn_in``."""
    names = [field.name for field in dataclasses.fields(kind) if field.name not in NOT_MAPPED]

    def flatten(batch: Any) -> tuple[tuple[Any, ...], int | None]:
        return tuple(getattr(batch, name) for name in names), getattr(batch, "burn_in", None)

    def unflatten(burn_in: int | None, leaves: tuple[Any, ...]) -> Any:
        static: dict[str, Any] = {} if burn_in is None else {"burn_in": burn_in}
        return kind(index=None, **static, **dict(zip(names, leaves, strict=True)))

    jax.tree_util.register_pytree_node(kind, flatten, unflatten)


_register(Batch)
_register(SequenceBatch)


@overload
def to_jax(batch: Batch, device: jax.Device | None = None) -> JaxBatch: ...


@overload
def to_jax(batch: SequenceBatch, device: jax.Device | None = None) -> JaxSequenceBatch: ...


def to_jax(batch: Batch | SequenceBatch, device: jax.Device | None = None) -> JaxBatch | JaxSequenceBatch:
    """Return ``batch`` as JAX arrays on ``device``, by default JAX's default device.

    CPU: C-contiguous arrays that are aligned to 64 bytes are shared through DLPack; others are copied once. Do not
    write to the batch's arrays afterwards, because JAX expects its arrays never to change. The memory does not reuse a
    shared array while JAX references it.

    Other devices: each array is copied asynchronously, and computations wait for the copy.

    >>> import numpy as np
    >>> from framestow import FrameSpec, ReplayMemory
    >>> from framestow.jax import to_jax
    >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=3, seed=0)
    >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
    >>> memory.append([3], [0.5], [False], [True], np.ones((1, 2, 2), np.uint8))
    array([0])
    >>> batch = to_jax(memory.sample(8))
    >>> (
    ...     batch.next_observation.shape,
    ...     batch.next_observation[0, :, 0, 0].tolist(),
    ...     batch.reward.dtype,
    ... )
    ((8, 3, 2, 2), [0, 0, 1], dtype('float32'))
    """
    batch, device = check_batch(batch), jax.local_devices()[0] if device is None else check_device(device)
    convert = _on_cpu if device.platform == "cpu" else partial(jax.device_put, device=device)
    return batch.map(convert)


def check_device(device: Any) -> Any:
    """Return ``device``; raise ``InvalidSettingsError`` unless it is a device of JAX, or ``None``."""
    if device is not None and not isinstance(device, jax.Device):
        raise InvalidSettingsError(f"device is {device!r}: it must be a device of JAX; give one of jax.devices()")
    return device


Loaded = TypeVar("Loaded")


class Loader(BatchesAhead[Any, Loaded]):
    """Base class of ``BatchLoader`` and ``SequenceLoader``: an iterator over batches, and a context manager."""

    def __init__(self, draw: Callable[[], Pending[Any]], device: jax.Device | None, ahead: int, threads: int) -> None:
        check_device(device)
        where = "on the default device" if device is None else f"on {device}"
        super().__init__(draw, partial(_to_jax_and_wait, device=device), ahead, threads, where)


@suggests_keywords
class BatchLoader(Loader[JaxBatch]):
    """Endless iterator over a memory's batches as JAX arrays; threads prepare the next batches.

    ::

        with BatchLoader(memory, batch_size=256) as loader:
            for batch in loader:
                parameters, td_error = train_step(parameters, batch)

    Arguments:
        memory: the ``ReplayMemory`` to sample from. You may add to it and sample it at the same time.
        batch_size: number of transitions per batch.
        device: where the arrays are created; by default JAX's default device.
        ahead: number of batches that are drawn before you ask for them.
        threads: number of threads that unpack batches, one batch each.
        draw: called with ``batch_size`` instead of drawing from the memory (docs/tensors.md).

    Batches are drawn in the calling thread, ``ahead`` calls before they are returned. So the same program gives the
    same batches for any number of threads. ``next`` returns a batch when it is on the device.
    """

    def __init__(
        self,
        memory: DrawsAhead[Batch],
        batch_size: int,
        device: jax.Device | None = None,
        *,
        ahead: int = 2,
        threads: int = 1,
        draw: Callable[[int], Pending[Batch]] | None = None,
    ) -> None:
        batch_size = check_batch_size(batch_size)
        super().__init__(partial(draw_function(memory, draw), batch_size), device, ahead, threads)


@suggests_keywords
class SequenceLoader(Loader[JaxSequenceBatch]):
    """Endless iterator over batches of sequences; takes the arguments of ``memory.sample_sequences``."""

    def __init__(
        self,
        memory: ReadCalls,
        batch_size: int,
        length: int,
        device: jax.Device | None = None,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
        ahead: int = 2,
        threads: int = 1,
    ) -> None:
        shape = SequenceShape(length, overlap, burn_in, borders)
        super().__init__(sequence_draw_function(memory, batch_size, shape), device, ahead, threads)


def _to_jax_and_wait(batch: Batch | SequenceBatch, device: jax.Device | None) -> Any:
    """Return ``batch`` as JAX arrays once all copies to the device are done."""
    arrays: Any = to_jax(batch, device)
    jax.block_until_ready(arrays)
    return arrays


def _on_cpu(array: npt.NDArray[Any]) -> jax.Array:
    if not array.flags.c_contiguous or not array.flags.writeable:  # NumPy does not export read-only arrays
        compact = OutputPool(max_buffers=0).take(array.shape, array.dtype)  # aligned, as XLA requires
        np.copyto(compact, array)
        array = compact
    return jax.numpy.from_dlpack(array)
