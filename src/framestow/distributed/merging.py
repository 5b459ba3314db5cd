"""Rows of several shards become one batch: which shard gives how many, the weight of each, the arrays of all.

Rows are drawn in two stages: first the shard, in proportion to the masses that the shards reported last, then the row
within it. So the probability of each row is known, even if a mass has changed since, and its importance weight is
exact::

    Q_i = (m_s / m) (p_i / M_s)     m_s: reported mass of the row's shard; m: of all shards
                                    M_s: mass of the shard at the draw; p_i: mass of the row
    w_i = (Q_min / Q_i) ^ beta      Q_min: the smallest probability of any stored transition

A mass is 1 for each transition with ``Uniform``, and p^α with ``Prioritized``. With fresh masses, m_s = M_s, the
probability is p_i / M, as in one memory.

The functions are pure: they change neither arguments nor state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.distributed.shard import EPOCH_BITS, Rows
from framestow.frames.observation_spec import map_arrays
from framestow.replay.batch import Batch, SequenceBatch
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.sampling import observation_parts
from framestow.replay.sequences import SequenceShape, sequence_part

# Of a ``Batch.index``: the index in the shard's memory, then the shard's epoch, then the number of the shard.
INDEX_BITS = 41
MAX_SHARDS = 2 ** (63 - INDEX_BITS - EPOCH_BITS)

Array = npt.NDArray[Any]
Masses = npt.NDArray[np.float64]  # by shard
MakeArray = Callable[[tuple[int, ...], Any], Array]  # of a shape and a dtype, with arbitrary contents


def make_handles(shard: int, epoch: int, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the ``Batch.index`` of transitions of a shard; -1 stays. Those of shard 0 at first are its own indices.

    >>> make_handles(1, 2, np.array([5, -1])) - [(1 << 53) + (2 << 41), 0]
    array([ 5, -1])
    """
    first = (shard << (INDEX_BITS + EPOCH_BITS)) + (epoch % 2**EPOCH_BITS << INDEX_BITS)
    return np.where(indices < 0, -1, indices + first)


def split_handles(
    handles: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return shards, epochs and indices of a ``Batch.index``; the epochs modulo ``2 ** EPOCH_BITS``.

    >>> [part.tolist() for part in split_handles(make_handles(1, 2, np.array([5])))]
    [[1], [2], [5]]
    """
    epochs = (handles >> INDEX_BITS) % 2**EPOCH_BITS
    return handles >> (INDEX_BITS + EPOCH_BITS), epochs, handles % 2**INDEX_BITS


def split_rows(masses: Masses, num_rows: int, random: float) -> npt.NDArray[np.int64]:
    """Return how many of ``num_rows`` each shard gives: in proportion to ``masses``, rounded systematically.

    The mean over ``random``, uniform in [0, 1), is exactly ``num_rows * masses / sum``, and each count differs from it
    by less than 1. So the marginals are those of independent draws, with a lower variance.

    >>> [split_rows(np.array([3.0, 1.0]), 2, random).tolist() for random in (0.0, 0.4, 0.5, 0.9)]
    [[1, 1], [1, 1], [2, 0], [2, 0]]
    """
    edges = np.concatenate([[0.0], np.cumsum(masses)])
    edges = np.floor(edges * (num_rows / edges[-1]) + random)
    edges[-1] = num_rows + math.floor(random)
    counts: npt.NDArray[np.int64] = np.diff(edges).astype(np.int64)
    return counts


def compute_weights(
    shards: Sequence[int], rows: Sequence[Rows], masses: Masses, smallest: Masses, beta: float
) -> npt.NDArray[np.float32]:
    """Return the importance weights of all rows, relative to the least likely transition of all shards.

    A shard gives the weights of its rows relative to its own least likely one. So they are those of one memory, bit for
    bit, if there is one shard.

    Arguments:
        shards: The shard of each of ``rows``.
        rows: Answers of shards.
        masses: The masses that the rows were drawn by; 0 for a shard that gave none and is lost.
        smallest: By shard, the mass of one transition as reported before; infinity for an empty shard.
        beta: The exponent.
    """
    total = masses.sum()
    least = np.where(masses > 0, smallest, math.inf) / total
    of_rows = [
        masses[shard] / total * each.report.smallest / each.report.mass
        for shard, each in zip(shards, rows, strict=True)
    ]
    for shard, mine in zip(shards, of_rows, strict=True):
        least[shard] = mine  # newer than what was reported before
    smallest_of_all = min(least.min(), *of_rows)
    weights = [
        each.weight if mine == smallest_of_all else (each.weight * (smallest_of_all / mine) ** beta).astype(np.float32)
        for each, mine in zip(rows, of_rows, strict=True)
    ]
    return _join(weights)


def merge(
    shards: Sequence[int],
    rows: Sequence[Rows],
    weights: npt.NDArray[np.float32],
    settings: MemorySettings,
    shape: SequenceShape | None = None,
    make_array: MakeArray = np.empty,
) -> Batch | SequenceBatch:
    """Return the rows of several shards as one batch, in their order; of sequences if there is a ``shape``.

    The arrays of a single answer are not copied.

    Arguments:
        shards: The shard of each of ``rows``.
        rows: Answers of shards.
        weights: Of all rows.
        settings: Of each shard's memory.
        shape: Of the sequences; ``None`` merges transitions.
        make_array: Gives the arrays that frames are copied into.
    """
    steps = [each.indices.shape for each in rows]
    arrays = zip(*(each.frames for each in rows), strict=True)
    halves = [_merge_frames(parts, steps, settings.n_step, make_array) for parts in arrays]
    observation, next_observation = (settings.layout.join(parts, len(steps[0])) for parts in zip(*halves, strict=True))
    index = [make_handles(shard, each.report.epoch, each.indices) for shard, each in zip(shards, rows, strict=True)]
    fields = map_arrays(lambda *parts: _join(parts), *(each.fields for each in rows))
    fields |= {"observation": observation, "next_observation": next_observation}
    fields |= {"index": _join(index), "weight": weights}
    return Batch(**fields) if shape is None else SequenceBatch(**fields, burn_in=shape.burn_in)


def _merge_frames(
    arrays: Sequence[Array], steps: Sequence[tuple[int, ...]], n_step: int, make_array: MakeArray
) -> tuple[Array, Array]:
    """Return observations and next observations of several shards, for one array of the space.

    ``steps``: of each shard, ``(rows,)`` or ``(rows, length)``. The frames of several shards are copied into one array:
    the windows of all rows, or if a shard has several for each row, all observations and then all next observations.
    """
    if len(arrays) == 1:
        return _split_frames(_make_writable(arrays[0]), steps[0], n_step)
    all_steps = (sum(num_rows for num_rows, *_ in steps), *steps[0][1:])
    if sum(map(len, arrays)) == all_steps[0]:
        joined = make_array((all_steps[0], *arrays[0].shape[1:]), arrays[0].dtype)
        return _split_frames(np.concatenate(arrays, out=joined), all_steps, n_step)
    views = [_split_frames(array, shape, n_step) for array, shape in zip(arrays, steps, strict=True)]
    out = make_array((2, *all_steps, *views[0][0].shape[len(all_steps) :]), arrays[0].dtype)
    for which in (0, 1):
        np.concatenate([each[which] for each in views], out=out[which])
    return out[0], out[1]


def _split_frames(frames: Array, steps: tuple[int, ...], n_step: int) -> tuple[Array, Array]:
    """Return views of the observations and the next observations of ``steps``."""
    if len(steps) == 1:
        observations, next_observations = observation_parts(steps[0], len(frames), n_step)
        return frames[observations], frames[next_observations]
    return sequence_part(frames, steps, 0), sequence_part(frames, steps, 1)


class _WritableView:
    """Gives NumPy a view of a read-only array that is not marked read-only; keeps the array alive.

    PyTorch copies read-only arrays. Those of an object store are shared, so nobody may write to a batch.
    """

    def __init__(self, array: Array) -> None:
        self._array = array
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def _make_writable(array: Array) -> Array:
    return array if array.flags.writeable else np.asarray(_WritableView(array))


def _join(parts: Sequence[Array]) -> Array:
    return _make_writable(parts[0]) if len(parts) == 1 else np.concatenate(parts)
