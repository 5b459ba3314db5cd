"""Batches for JAX: as its arrays, through DLPack, prepared while the learner runs.

Needs the extra ``framestow[jax]``. docs/sampling.md has examples, and what to know of memory that is looked at without
a copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from framestow.errors import MissingExtraError
from framestow.frames.observation_spec import map_arrays
from framestow.replay.batch import Batch, SequenceBatch
from framestow.replay.batches_ahead import BatchesAhead, DrawsAhead, Pending, checked_batch, draw_function
from framestow.replay.memory import ReplayMemory, checked_batch_size
from framestow.replay.sampling import aligned_empty
from framestow.replay.sequences import Borders

try:
    import jax  # an absolute import: JAX, not this module
except ModuleNotFoundError as missing:
    raise MissingExtraError(
        f"framestow.jax needs {missing.name}: it is part of the extra 'jax', which is not installed; "
        'run: pip install "framestow[jax]"'
    ) from missing

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["BatchLoader", "JaxBatch", "JaxSequenceBatch", "SequenceLoader", "to_jax"]


@dataclasses.dataclass(frozen=True)
class JaxBatch:
    """A :class:`~framestow.replay.batch.Batch` as JAX arrays, of the same shapes and of the dtypes that JAX has.

    Unless ``jax_enable_x64`` is set that is none of 64 bits: actions are ``int32`` then, ``float64`` is ``float32``.
    ``index`` therefore stays a NumPy array, as ``memory.update_priorities`` wants it. Where the batch has dicts or
    tuples of arrays, these are dicts and tuples.

    A pytree of all fields but ``index``, which is ``None`` within a function that is traced.
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


@dataclasses.dataclass(frozen=True)
class JaxSequenceBatch:
    """A :class:`~framestow.replay.batch.SequenceBatch` as JAX arrays; all else is as for ``JaxBatch``.

    ``burn_in`` is no leaf: a function is traced for each.
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

    @property
    def learns(self) -> jax.Array:
        """Steps that a loss is for, ``(B, L)``: ``mask`` without the first ``burn_in``."""
        return self.mask.at[:, : self.burn_in].set(False)


def _leaves(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if field.name not in ("index", "burn_in"))


def _register(kind: type) -> None:
    """Make ``kind`` a pytree of all its fields but ``index`` and ``burn_in``."""
    names = _leaves(kind)

    def flatten(batch: Any) -> tuple[tuple[Any, ...], int | None]:
        return tuple(getattr(batch, name) for name in names), getattr(batch, "burn_in", None)

    def unflatten(burn_in: int | None, leaves: tuple[Any, ...]) -> Any:
        aside = {} if burn_in is None else {"burn_in": burn_in}
        return kind(index=None, **aside, **dict(zip(names, leaves, strict=True)))

    jax.tree_util.register_pytree_node(kind, flatten, unflatten)


_register(JaxBatch)
_register(JaxSequenceBatch)


@overload
def to_jax(batch: Batch, device: jax.Device | None = None) -> JaxBatch: ...


@overload
def to_jax(batch: SequenceBatch, device: jax.Device | None = None) -> JaxSequenceBatch: ...


def to_jax(batch: Batch | SequenceBatch, device: jax.Device | None = None) -> JaxBatch | JaxSequenceBatch:
    """Bring ``batch`` to ``device``, JAX's default one by default.

    On the CPU an array that lies as JAX lays its own (C-contiguous, at a multiple of 64 bytes) is looked at through
    DLPack, not copied, and lent for as long as JAX looks at it, computations under way included; any other is copied
    once. Do not write to the batch's arrays afterwards: JAX counts on its arrays never to change. To another device
    each array is copied asynchronously; what is computed with it waits for that.

    >>> import numpy as np
    >>> from framestow import FrameSpec, ReplayMemory
    >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=3, seed=0)
    >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
    >>> memory.append([3], [0.5], [False], [True], np.ones((1, 2, 2), np.uint8))
    >>> batch = to_jax(memory.sample(8))
    >>> batch.next_observation.shape, batch.next_observation[0, :, 0, 0].tolist(), batch.reward.dtype
    ((8, 3, 2, 2), [0, 0, 1], dtype('float32'))
    """
    device = jax.local_devices()[0] if device is None else device
    convert = _on_cpu if device.platform == "cpu" else partial(jax.device_put, device=device)
    kind = JaxSequenceBatch if isinstance(batch, SequenceBatch) else JaxBatch
    leaves = {name: map_arrays(convert, getattr(batch, name)) for name in _leaves(kind)}
    if isinstance(batch, SequenceBatch):
        return JaxSequenceBatch(index=batch.index, burn_in=batch.burn_in, **leaves)
    return JaxBatch(index=batch.index, **leaves)


Loaded = TypeVar("Loaded")


class Loader(Generic[Loaded]):
    """What loaders of transitions and of sequences have in common."""

    def __init__(self, draw: Callable[[], Pending[Any]], device: jax.Device | None, ahead: int, threads: int) -> None:
        self._batches: BatchesAhead[Any, Loaded] = BatchesAhead(draw, partial(_arrived, device=device), ahead, threads)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Loaded:
        """Give the next batch, and wait for it where it is not prepared yet."""
        return next(self._batches)

    def close(self) -> None:
        """End the threads, once each has finished the batch it is at; closing again does nothing."""
        self._batches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class BatchLoader(Loader[JaxBatch]):
    """An endless iterator over a memory's batches as JAX arrays, the next of which are prepared on threads.

    ::

        with BatchLoader(memory, batch_size=256) as loader:
            for batch in loader:
                parameters, td_error = train_step(parameters, batch)

    ``device``: where the arrays are to be, JAX's default by default. All else is as for the loader of
    ``framestow.torch``: batch k is drawn in the calling thread when batch k - ``ahead`` is asked for, so
    the same program gives the same batches whatever the ``threads`` do; ``draw`` may draw something
    else. A batch is handed over when it is on the device.
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
        batch_size = checked_batch_size(batch_size)
        super().__init__(partial(draw_function(memory, draw), batch_size), device, ahead, threads)


class SequenceLoader(Loader[JaxSequenceBatch]):
    """The same for what ``memory.sample_sequences`` gives, with its arguments."""

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
        draw_function(memory)
        asked = partial(memory._draw_sequences_ahead, overlap=overlap, burn_in=burn_in, borders=borders)
        super().__init__(partial(asked, batch_size, length), device, ahead, threads)


def _arrived(batch: Batch | SequenceBatch, device: jax.Device | None) -> Any:
    """``to_jax``, for a thread that may wait until all of it is on the device."""
    arrays: Any = to_jax(checked_batch(batch), device)
    jax.block_until_ready(arrays)
    return arrays


def _on_cpu(array: npt.NDArray[Any]) -> jax.Array:
    if not array.flags.c_contiguous or not array.flags.writeable:  # NumPy exports nothing that is read-only
        compact = aligned_empty(array.shape, array.dtype)
        np.copyto(compact, array)
        array = compact
    return jax.numpy.from_dlpack(array)
