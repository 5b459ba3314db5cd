"""Steps as they come to a storage: one array each, and which of them follows on which."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidStepError
from framestow.integrations.drop_in.observation_layout import Arrays

Indices = npt.NDArray[np.int64]

FEWEST_STREAMS = 8
NONE = -1  # no trajectory, row or step


class StepBatch(NamedTuple):
    """``n`` steps in the order in which their cells are overwritten.

    ================  ========================  ===========================================================
    field             shape                     meaning
    ================  ========================  ===========================================================
    pixels            arrays ``(n, *shape)``    what the step began with, one array a key, keys ascending
    next_pixels       the same                  what it led to
    rewards           ``(n,)`` float32          kept for whoever looks at the memory; 0 where not finite
    terminated        ``(n,)`` bool
    truncated         ``(n,)`` bool             also where only ``done`` is told
    is_first          ``(n,)`` bool             the step is told to begin an episode
    trajectories      ``(n,)`` int64            the collector's number of the trajectory; -1 where not told
    rows              ``(n,)`` int64            the environment, where the batch has a dimension of them; else -1
    previous          ``(n,)`` int64            which step of the batch is the one before in time; -1 for none
    width             int                       so many neighbours are of environments of their own
    ================  ========================  ===========================================================
    """

    pixels: Arrays
    next_pixels: Arrays
    rewards: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    is_first: npt.NDArray[np.bool_]
    trajectories: Indices
    rows: Indices
    previous: Indices
    width: int

    def __len__(self) -> int:  # a tuple would count its fields
        return len(self.rewards)


def order_of(shape: tuple[int, ...], is_time_first: bool) -> tuple[Indices, Indices, int]:
    """Give ``rows``, ``previous`` and ``width`` of a batch of ``shape`` whose time is its first or its last dimension.

    >>> order_of((3,), True)
    (array([-1, -1, -1]), array([-1,  0,  1]), 1)
    >>> order_of((2, 3), False)
    (array([0, 0, 0, 1, 1, 1]), array([-1,  0,  1, -1,  3,  4]), 1)
    >>> order_of((2, 3), True)
    (array([0, 1, 2, 0, 1, 2]), array([-1, -1, -1,  0,  1,  2]), 3)
    """
    numbers = np.arange(int(np.prod(shape)), dtype=np.int64)
    if len(shape) == 1:
        return np.full_like(numbers, NONE), numbers - 1, 1
    if is_time_first:
        width = int(np.prod(shape[1:]))
        return numbers % width, np.where(numbers < width, NONE, numbers - width), width
    rows, steps = np.divmod(numbers, shape[-1])
    return rows, np.where(steps == 0, NONE, numbers - 1), 1


def streams_for(steps: StepBatch) -> int:
    """Give twice as many streams as the first steps have environments, that one may begin while another goes on."""
    most = max(steps.width, len(np.unique(steps.rows)), len(np.unique(steps.trajectories)))
    return max(FEWEST_STREAMS, 2 * most)


def flags_of(values: npt.NDArray[Any] | None, num_steps: int) -> npt.NDArray[np.bool_]:
    """Give flags of ``num_steps`` steps, of whatever further axes; none is up where they are not told."""
    if values is None:
        return np.zeros(num_steps, bool)
    return np.asarray(values.reshape(num_steps, -1).astype(bool).any(axis=1))


def numbers_of(values: npt.NDArray[Any] | None, num_steps: int) -> Indices:
    """Give a number a step; ``NONE`` where there is not just one."""
    if values is None or values.size != num_steps:
        return np.full(num_steps, NONE, np.int64)
    return values.reshape(num_steps).astype(np.int64)


def rewards_of(values: npt.NDArray[Any] | None, num_steps: int) -> npt.NDArray[np.float32]:
    """Give a finite reward a step; 0 where there is not just one."""
    if values is None or values.size != num_steps:
        return np.zeros(num_steps, np.float32)
    with np.errstate(over="ignore"):
        rewards = values.reshape(num_steps).astype(np.float32)
    return np.where(np.isfinite(rewards), rewards, np.float32(0))


def checked_pixels(name: str, pixels: npt.NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise ``InvalidStepError`` for pixels ``(n, *shape)`` that are not as those before."""
    if pixels.shape[1:] != shape or pixels.dtype != dtype:
        raise InvalidStepError(
            f"{name} is {pixels.dtype} of shape {pixels.shape[1:]} a step: it was {dtype} of shape {shape} in the "
            "first step; give all steps alike"
        )
