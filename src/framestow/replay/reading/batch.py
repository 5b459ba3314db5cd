"""The results of sampling: ``Batch`` of transitions and ``SequenceBatch`` of sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.frames.observation_spec import map_arrays
from framestow.interface import one_line, plural, shapes

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    Array = DefaultTypeVar("Array", default=npt.NDArray[Any])
else:
    Array = TypeVar("Array")

Other = TypeVar("Other")
MEMBER_SHIFT = 59  # bits of an index below the number of the member of a ``ReplayEnsemble``
NOT_MAPPED = ("index", "burn_in")  # fields of a batch that ``map`` passes on


def describe_batch(batch: Any) -> str:
    """Return one line about a batch of any kind: number of rows, and shapes and dtypes instead of numbers."""

    def details() -> Iterator[str]:
        rows, *length = batch.reward.shape
        yield f"{plural(rows, 'sequence')} of {plural(length[0], 'step')}" if length else plural(rows, "transition")
        for name in ("observation", "action"):
            if hasattr(batch, name):
                yield f"{name} {shapes(getattr(batch, name))}"
        if batch.extras:
            yield f"extras {shapes(batch.extras)}"
        if getattr(batch, "burn_in", 0):
            yield f"burn_in {batch.burn_in}"
        if not isinstance(batch.reward, np.ndarray):
            yield f"on {batch.reward.device}"

    return one_line(batch, details)


def map_fields(batch: Any, function: Callable[[Any], Any], index: Callable[[Any], Any] | None) -> dict[str, Any]:
    """Return the fields of ``batch`` by name, after ``map``."""
    fields = {name: field if name in NOT_MAPPED else map_arrays(function, field) for name, field in vars(batch).items()}
    return fields if index is None else fields | {"index": index(batch.index)}


@dataclass(frozen=True)
class Batch(Generic[Array]):
    """A batch of ``B`` transitions, whose observations and next observations share memory; ``copy`` separates NumPy's.

    The arrays are of NumPy. Loaders and ``map`` give batches of PyTorch's or JAX's, ``Batch[torch.Tensor]``.

    ================  ==========================  =======  =======================================================
    field             shape                       dtype    meaning
    ================  ==========================  =======  =======================================================
    observation       ``(B, stack, *frame)``      frame's  what the policy saw
    action            ``(B, *action)``            int64    what it did (of a Box: the Box's dtype)
    reward            ``(B,)``                    float32  Σ γᵏ rₖ of the m rewards, m at most ``n_step``
    discount          ``(B,)``                    float32  weight of the bootstrap value, γᵐ; 0 after termination
    next_observation  ``(B, stack, *frame)``      frame's  observation m steps later, or the episode's true last one
    index             ``(B,)``                    int64    number of the transition, never reused
    weight            ``(B,)``                    float32  importance weight; 1 with uniform sampling
    terminated        ``(B,)``                    bool     the episode ended by its own rules at the m-th step
    truncated         ``(B,)``                    bool     the episode was cut off there
    extras            ``(B, *shape)`` each        any      extra fields of the step, by name
    ================  ==========================  =======  =======================================================

    ``observation`` and ``next_observation`` are views of one array and share its frames: do not write to them. With a
    ``Dict`` or ``Tuple`` space they are dicts or tuples of such views. The memory reuses the array for a later batch
    once no view of it is alive.
    """

    observation: Any
    action: Array
    reward: Array
    discount: Array
    next_observation: Any
    index: Any
    weight: Array
    terminated: Array
    truncated: Array
    extras: Mapping[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.reward)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return describe_batch(self)

    @property
    def memory(self) -> Any:
        """Number of the member of a ``ReplayEnsemble`` that each row is from, as ``index``; 0 of one memory."""
        return self.index >> MEMBER_SHIFT

    def map(self, function: Callable[[Array], Other], index: Callable[[Any], Any] | None = None) -> Batch[Other]:
        """Return a batch with ``function`` of each array. ``index`` stays, unless there is a function for it.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> memory.append([3], [0.5], [False], [False], np.ones((1, 2, 2), np.uint8))
        array([0])
        >>> memory.sample(8).map(lambda array: array[:2]).observation.shape
        (2, 4, 2, 2)
        """
        return Batch(**map_fields(self, function, index))

    def copy(self: Batch[npt.NDArray[Any]]) -> Batch:
        """Return a batch of new arrays in C order, which share no memory; you may write to them and keep them.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> memory.append([3], [0.5], [False], [False], np.ones((1, 2, 2), np.uint8))
        array([0])
        >>> batch = memory.sample(1)
        >>> own = batch.copy()
        >>> np.shares_memory(batch.observation, batch.next_observation)
        True
        >>> np.shares_memory(own.observation, own.next_observation)
        False
        """
        return self.map(np.ndarray.copy, np.ndarray.copy)


@dataclass(frozen=True)
class SequenceBatch(Generic[Array]):
    """A batch of ``B`` sequences of up to ``L`` consecutive steps, whose observations share memory.

    ================  ============================  =======  =====================================================
    field             shape                         dtype    meaning
    ================  ============================  =======  =====================================================
    observation       ``(B, L, stack, *frame)``     frame's  what the policy saw at each step
    action            ``(B, L, *action)``           int64    what it did (of a Box: the Box's dtype)
    reward            ``(B, L)``                    float32  reward of that one step, for any ``n_step``
    discount          ``(B, L)``                    float32  γ; 0 where the step terminated
    next_observation  ``(B, L, stack, *frame)``     frame's  observation after the step; ends in the true last frame
    terminated        ``(B, L)``                    bool     the episode ended there by its own rules
    truncated         ``(B, L)``                    bool     the episode was cut off there
    is_first          ``(B, L)``                    bool     the step is the first of its episode
    mask              ``(B, L)``                    bool     True for steps, then False for padding at the end
    index             ``(B, L)``                    int64    numbers of the steps; -1 where masked
    weight            ``(B,)``                      float32  importance weights of the draws; 1 with uniform sampling
    extras            ``(B, L, *shape)`` each       any      extra fields of the steps, by name
    burn_in                                         int      steps at the front that only warm up recurrent state
    ================  ============================  =======  =====================================================

    Where ``mask`` is False, numbers are 0, flags are False and frames are zeros. The first masked stacks still contain
    the last frames of the sequence.

    ``observation`` and ``next_observation`` are views of one array and share its frames: do not write to them. Each
    frame of a sequence is there once, except with ``borders="cross"``, or if a next observation in the batch is not its
    observation shifted by one frame. The memory reuses the array for a later batch once no view of it is alive. With a
    ``Dict`` or ``Tuple`` space they are dicts or tuples of such views.
    """

    observation: Any
    action: Array
    reward: Array
    discount: Array
    next_observation: Any
    terminated: Array
    truncated: Array
    is_first: Array
    mask: Array
    index: Any
    weight: Array
    extras: Mapping[str, Array]
    burn_in: int = 0

    def __len__(self) -> int:
        return len(self.reward)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return describe_batch(self)

    def map(
        self, function: Callable[[Array], Other], index: Callable[[Any], Any] | None = None
    ) -> SequenceBatch[Other]:
        """Return a batch with ``function`` of each array, as ``Batch.map`` does."""
        return SequenceBatch(**map_fields(self, function, index))

    def copy(self: SequenceBatch[npt.NDArray[Any]]) -> SequenceBatch:
        """Return a batch of new arrays in C order, which share no memory, as ``Batch.copy`` does."""
        return self.map(np.ndarray.copy, np.ndarray.copy)

    @property
    def memory(self) -> Any:
        """Number of the member of a ``ReplayEnsemble`` that each step is from, as ``index``; -1 where masked."""
        return self.index >> MEMBER_SHIFT

    @property
    def learns(self) -> Array:
        """Steps to compute a loss for, ``(B, L)``: ``mask`` without the first ``burn_in`` steps."""
        mask: Any = self.mask
        learns: Array = mask & (mask.cumsum(1) > self.burn_in)  # no step comes after masked ones
        return learns


def check_batch(given: Any) -> Batch | SequenceBatch:
    """Return ``given``; raise ``InvalidSettingsError`` unless it is a batch of NumPy arrays."""
    if not isinstance(given, (Batch, SequenceBatch)) or not isinstance(given.reward, np.ndarray):
        raise InvalidSettingsError(
            f"a batch is {given!r}: it must be a Batch or a SequenceBatch of NumPy arrays; give what sample() returns, "
            "or unpack what memory.draw_ahead(...) returns"
        )
    return given
