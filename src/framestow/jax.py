"""Batches as JAX arrays, loaded on background threads.

Needs the extra ``framestow[jax]``. On the CPU, arrays are shared through DLPack instead of copied. docs/sampling.md has
examples, and the rules for shared arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from framestow.closing import Closing
from framestow.errors import InvalidSettingsError
from framestow.frames.observation_spec import map_arrays
from framestow.lazy_names import missing_extra, public_names
from framestow.one_line import one_line, plural
from framestow.replay.batch import Batch, SequenceBatch, check_batch, describe_batch
from framestow.replay.batches_ahead import BatchesAhead, DrawsAhead, Pending, draw_function, sequence_draw_function
from framestow.replay.memory import ReplayMemory, check_batch_size
from framestow.replay.sampling import make_aligned
from framestow.replay.sequences import Borders, SequenceShape

try:
    import jax  # an absolute import: JAX, not this module
except ModuleNotFoundError as missing:
    raise missing_extra(__name__, missing.name, "jax") from missing

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["BatchLoader", "JaxBatch", "JaxSequenceBatch", "SequenceLoader", "to_jax"]
__dir__ = public_names(__name__)


@dataclasses.dataclass(frozen=True)
class JaxBatch:
    """A ``Batch`` as JAX arrays of the same shapes.

    Without ``jax_enable_x64``, JAX converts 64-bit dtypes to 32 bits: ``int64`` actions become ``int32``. ``index``
    stays a NumPy array of ``int64``, for ``memory.update_priorities``. Dict and tuple observations become dicts and
    tuples of arrays.

    The batch is a pytree of all fields except ``index``, which is ``None`` inside a traced function.
    """

    observation: Any
    action: Any
    reward: jax.Array
    discount: jax.Array
    next_observation: Any
    index: npt.NDArray[np.int64] | None
    weight: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    extras: dict[str, jax.Array]

    def __len__(self) -> int:
        return len(self.reward)

    def __repr__(self) -> str:
        return describe_batch(self)


@dataclasses.dataclass(frozen=True)
class JaxSequenceBatch:
    """A ``SequenceBatch`` as JAX arrays; otherwise like ``JaxBatch``.

    ``burn_in`` is not a leaf of the pytree: functions are traced once for each value.
    """

    observation: Any
    action: Any
    reward: jax.Array
    discount: jax.Array
    next_observation: Any
    terminated: jax.Array
    truncated: jax.Array
    is_first: jax.Array
    mask: jax.Array
    index: npt.NDArray[np.int64] | None
    weight: jax.Array
    extras: dict[str, jax.Array]
    burn_in: int = 0

    def __len__(self) -> int:
        return len(self.reward)

    def __repr__(self) -> str:
        return describe_batch(self)

    @property
    def learns(self) -> jax.Array:
        """Mask of the steps that contribute to the loss, ``(B, L)``: ``mask`` without the first ``burn_in`` steps."""
        return self.mask.at[:, : self.burn_in].set(False)


def _leaves(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if field.name not in ("index", "burn_in"))


def _register(kind: type) -> None:
    """Register ``kind`` as a pytree of all its fields except ``index`` and ``burn_in``."""
    names = _leaves(kind)

    def flatten(batch: Any) -> tuple[tuple[Any, ...], int | None]:
        return tuple(getattr(batch, name) for name in names), getattr(batch, "burn_in", None)

    def unflatten(burn_in: int | None, leaves: tuple[Any, ...]) -> Any:
        static = {} if burn_in is None else {"burn_in": burn_in}
        return kind(index=None, **static, **dict(zip(names, leaves, strict=True)))

    jax.tree_util.register_pytree_node(kind, flatten, unflatten)


_register(JaxBatch)
_register(JaxSequenceBatch)


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
    >>> batch = to_jax(memory.sample(8))
    >>> batch.next_observation.shape, batch.next_observation[0, :, 0, 0].tolist(), batch.reward.dtype
    ((8, 3, 2, 2), [0, 0, 1], dtype('float32'))
    """
    batch, device = check_batch(batch), jax.local_devices()[0] if device is None else check_device(device)
    convert = _on_cpu if device.platform == "cpu" else partial(jax.device_put, device=device)
    kind = JaxSequenceBatch if isinstance(batch, SequenceBatch) else JaxBatch
    leaves = {name: map_arrays(convert, getattr(batch, name)) for name in _leaves(kind)}
    if isinstance(batch, SequenceBatch):
        return JaxSequenceBatch(index=batch.index, burn_in=batch.burn_in, **leaves)
    return JaxBatch(index=batch.index, **leaves)


def check_device(device: Any) -> Any:
    """Return ``device``; raise ``InvalidSettingsError`` unless it is a device of JAX, or ``None``."""
    if device is not None and not isinstance(device, jax.Device):
        raise InvalidSettingsError(f"device is {device!r}: it must be a device of JAX; give one of jax.devices()")
    return device


Loaded = TypeVar("Loaded")


class Loader(Closing, Generic[Loaded]):
    """Base class of ``BatchLoader`` and ``SequenceLoader``: an iterator over batches, and a context manager."""

    def __init__(self, draw: Callable[[], Pending[Any]], device: jax.Device | None, ahead: int, threads: int) -> None:
        check_device(device)
        self._batches: BatchesAhead[Any, Loaded] = BatchesAhead(
            draw, partial(_to_jax_and_wait, device=device), ahead, threads
        )
        where = "the default device" if device is None else device
        self._details = f"batches on {where}", f"{ahead} ahead", plural(threads, "thread")

    def __repr__(self) -> str:
        return one_line(self, lambda: self._details)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Loaded:
        """Return the next batch; wait for it if it is not ready."""
        return next(self._batches)

    def close(self) -> None:
        """Stop the threads after their current batch. Closing twice is allowed."""
        self._batches.close()


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
        draw: called with ``batch_size`` instead of drawing from the memory (docs/sampling.md).

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


class SequenceLoader(Loader[JaxSequenceBatch]):
    """Endless iterator over batches of sequences; takes the arguments of ``memory.sample_sequences``."""

    def __init__(
        self,
        memory: ReplayMemory,
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
        compact = make_aligned(array.shape, array.dtype)
        np.copyto(compact, array)
        array = compact
    return jax.numpy.from_dlpack(array)
