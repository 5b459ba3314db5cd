"""The results of sampling: ``Batch`` of transitions and ``SequenceBatch`` of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.frames.observation_spec import map_arrays
from framestow.one_line import one_line, plural, shapes


def describe_batch(batch: Any, device: str = "") -> str:
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
        if device:
            yield f"on {device}"

    return one_line(batch, details)


@dataclass(frozen=True, init=False)
class Batch:
    """A batch of ``B`` transitions, whose observations and next observations share memory; ``copy`` separates them.

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

    observation: npt.NDArray[Any]
    action: npt.NDArray[Any]
    reward: npt.NDArray[np.float32]
    discount: npt.NDArray[np.float32]
    next_observation: npt.NDArray[Any]
    index: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    extras: Mapping[str, npt.NDArray[Any]]

    def __init__(
        self,
        observation: npt.NDArray[np.uint8],
        action: npt.NDArray[Any],
        reward: npt.NDArray[np.float32],
        discount: npt.NDArray[np.float32],
        next_observation: npt.NDArray[np.uint8],
        index: npt.NDArray[np.int64],
        weight: npt.NDArray[np.float32],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        extras: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        # The dataclass would use object.__setattr__, which takes twice the time, for every sample.
        fields = self.__dict__
        fields["observation"] = observation
        fields["action"] = action
        fields["reward"] = reward
        fields["discount"] = discount
        fields["next_observation"] = next_observation
        fields["index"] = index
        fields["weight"] = weight
        fields["terminated"] = terminated
        fields["truncated"] = truncated
        fields["extras"] = {} if extras is None else extras

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return describe_batch(self)

    def copy(self) -> Batch:
        """Return a batch of new arrays in C order, which share no memory; you may write to them and keep them.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> memory.append([3], [0.5], [False], [False], np.ones((1, 2, 2), np.uint8))
        >>> batch = memory.sample(1)
        >>> own = batch.copy()
        >>> np.shares_memory(batch.observation, batch.next_observation)
        True
        >>> np.shares_memory(own.observation, own.next_observation)
        False
        """
        return copy_batch(self)


@dataclass(frozen=True)
class SequenceBatch:
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
    action: npt.NDArray[Any]
    reward: npt.NDArray[np.float32]
    discount: npt.NDArray[np.float32]
    next_observation: Any
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    is_first: npt.NDArray[np.bool_]
    mask: npt.NDArray[np.bool_]
    index: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float32]
    extras: Mapping[str, npt.NDArray[Any]]
    burn_in: int = 0

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return describe_batch(self)

    def copy(self) -> SequenceBatch:
        """Return a batch of new arrays in C order, which share no memory, as ``Batch.copy`` does."""
        return copy_batch(self)

    @property
    def learns(self) -> npt.NDArray[np.bool_]:
        """Steps to compute a loss for, ``(B, L)``: ``mask`` without the first ``burn_in`` steps."""
        learns = self.mask.copy()
        learns[:, : self.burn_in] = False
        return learns


AnyBatch = TypeVar("AnyBatch", Batch, SequenceBatch)


def copy_batch(batch: AnyBatch) -> AnyBatch:
    """Return ``batch`` with a copy of each of its arrays, in C order."""

    def copy_of(field: Any) -> Any:
        return field if isinstance(field, int) else map_arrays(lambda array: array.copy(), field)

    return type(batch)(**{name: copy_of(field) for name, field in vars(batch).items()})


def check_batch(given: Any) -> Batch | SequenceBatch:
    """Return ``given``; raise ``InvalidSettingsError`` unless it is a ``Batch`` or a ``SequenceBatch``."""
    if not isinstance(given, (Batch, SequenceBatch)):
        raise InvalidSettingsError(
            f"a batch is {given!r}: it must be a Batch or a SequenceBatch; give what sample() returns, or unpack what "
            "memory.draw_ahead(...) returns"
        )
    return given
