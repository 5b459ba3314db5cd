"""Rows of one batch from all shards: which shard gives how many, and the weight of each.

Rows are drawn in two stages: first the shard, in proportion to the masses that the shards reported last, then the row
within it. So the probability of each row is known, even if a mass has changed since, and its importance weight is
exact::

    Q_i = (m_s / m) (p_i / M_s)     m_s: reported mass of the row's shard; m: of all shards
                                    M_s: mass of the shard at the draw; p_i: mass of the row
    w_i = (Q_min / Q_i) ^ beta      Q_min: the smallest probability of any stored transition

A mass is 1 for each transition with ``Uniform``, and p^α with ``Prioritized``. With fresh masses, m_s = M_s, the
probability is p_i / M, as in one memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.distributed.chunks import ShardReport
from framestow.distributed.shard import SEQUENCE_FIELDS
from framestow.errors import ActorLostError, NothingToSampleError
from framestow.frames.observation_spec import ObservationSpec
from framestow.replay.batch import Batch, SequenceBatch
from framestow.replay.sampling import observation_parts
from framestow.replay.sequences import SequenceShape, sequence_part

if TYPE_CHECKING:
    from framestow.distributed.sharded_replay import ShardedReplay

# Of a ``Batch.index``: the index in the shard's memory, then the shard's epoch, then the number of the shard.
INDEX_BITS, EPOCH_BITS = 41, 12


def handles_of(shard: int, epoch: int, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the ``Batch.index`` of transitions of a shard. Those of shard 0 before a restart are its own indices.

    >>> handles_of(1, 2, np.array([5])) == (1 << 53) + (2 << 41) + 5
    array([ True])
    """
    epoch %= 2**EPOCH_BITS
    return indices + (shard << (INDEX_BITS + EPOCH_BITS)) + (epoch << INDEX_BITS)


def counts_of(masses: npt.NDArray[np.float64], num_rows: int, random: float) -> npt.NDArray[np.int64]:
    """Return how many of ``num_rows`` each shard gives: in proportion to ``masses``, rounded systematically.

    The mean over ``random``, uniform in [0, 1), is exactly ``num_rows * masses / sum``, and each count differs from it
    by less than 1. So the marginals are those of independent draws, with a lower variance.

    >>> [counts_of(np.array([3.0, 1.0]), 2, random).tolist() for random in (0.0, 0.4, 0.5, 0.9)]
    [[1, 1], [1, 1], [2, 0], [2, 0]]
    """
    edges = np.concatenate([[0.0], np.cumsum(masses)])
    edges = np.floor(edges * (num_rows / edges[-1]) + random)
    edges[-1] = num_rows + math.floor(random)
    counts: npt.NDArray[np.int64] = np.diff(edges).astype(np.int64)
    return counts


class Shares(NamedTuple):
    """Masses and sizes of the shards that one batch is drawn by."""

    masses: npt.NDArray[np.float64]  # by shard; 0 for a lost one
    smallest: npt.NDArray[np.float64]  # mass of one transition, infinity for an empty shard


@dataclass
class _Request:
    """The rows of one batch that one shard was asked for."""

    shard: int
    num_rows: int
    handle: Any  # of the call, for ``Calls.result``


@dataclass
class _Answer:
    shard: int
    rows: Any  # Rows or SequenceRows


class PendingRows:
    """Rows of one batch that shards were asked for. ``unpack`` waits for them, in any thread."""

    def __init__(self, replay: ShardedReplay, batch_size: int, shape: SequenceShape | None = None) -> None:
        self._replay, self._batch_size, self._shape = replay, batch_size, shape
        # Batches before this one, which β depends on.
        self._num_draws = replay.counts.batches
        # Changes while rows are awaited: a shard that was lost, or is empty, gets the mass 0.
        self._shares = replay._shares()
        self._masses = self._shares.masses.copy()  # of the first question
        self._is_open = True  # whether the replay counts this request
        # The first questions; ``unpack`` asks more if shards are lost.
        self._requests = self._ask(batch_size)

    def _ask(self, num_rows: int) -> list[_Request]:
        """Ask shards for rows, in proportion to their masses; hold the replay's lock."""
        replay = self._replay
        # The masses of the first question, without those of shards that were lost since: so all rows of the batch have
        # the probability that they would have without these shards.
        total = self._shares.masses.sum()
        if not total > 0.0:
            raise NothingToSampleError(
                "no shard has a transition that can be sampled: nothing can be drawn; append more steps, flush(), or "
                "wait for lost shards"
            )
        counts = counts_of(self._shares.masses, num_rows, replay._generator.random() if replay.num_shards > 1 else 0.0)
        requests = []
        for shard in np.flatnonzero(counts).tolist():
            num, limit = int(counts[shard]), replay._limit_with_draw(shard)
            given = num, replay._epoch(shard), replay._take_updates(shard), self._num_draws, limit
            call = replay._shards.call
            if self._shape is None:
                handle = call(shard, "sample", *given)
            else:
                handle = call(shard, "sample_sequences", *given, self._shape)
            requests.append(_Request(shard, num, handle))
        return requests

    def unpack(self) -> Any:
        """Wait for the rows and return the batch; rows of a lost shard are drawn from the others."""
        replay = self._replay
        answers: list[_Answer] = []
        requests = self._requests
        while requests:
            missing = 0
            for request in requests:
                try:
                    answer = replay._shards.result(request.handle, replay._timeout_s)
                except ActorLostError as error:
                    with replay._lock:
                        replay._lose(request.shard, error)
                    self._shares.masses[request.shard] = 0.0
                    missing += request.num_rows
                    continue
                is_empty = isinstance(answer, ShardReport)
                with replay._lock:
                    replay._note(request.shard, answer if is_empty else answer.report)
                if is_empty:  # it was restarted, or everything in it was evicted
                    self._shares.masses[request.shard] = 0.0
                    missing += request.num_rows
                else:
                    answers.append(_Answer(request.shard, answer))
            with replay._lock:
                replay.counts.replaced_rows += missing
                requests = self._ask(missing) if missing else []
        self.stop()
        return self._merge(answers) if self._shape is None else self._merge_sequences(answers, self._shape)

    def redraw(self, error: Exception) -> None:
        """Raise ``error``: a shard skips damaged segments itself."""
        raise error

    def stop(self) -> None:
        """Count the request as done; its rows are dropped when they come."""
        with self._replay._lock:
            self._replay._num_requests -= self._is_open
            self._is_open = False

    def _merge(self, answers: list[_Answer]) -> Batch:
        settings = self._replay._settings
        rows = [answer.rows for answer in answers]
        n_step = settings.n_step
        frames_of = [each.frames for each in rows]
        if len(rows) > 1 and any(len(each.frames[0]) != each.num_rows for each in rows):
            halves = [observation_parts(each.num_rows, len(each.frames[0]), n_step) for each in rows]
            frames_of = [
                tuple(array[half[which]] for array in each.frames)
                for which in (0, 1)
                for each, half in zip(rows, halves, strict=True)
            ]
        frames = self._merge_frames(frames_of)
        both = observation_parts(self._batch_size, len(frames[0]), n_step)
        observation, next_observation = (
            settings.frame.rebuild(tuple(part[each] for part in frames))
            if isinstance(settings.frame, ObservationSpec)
            else frames[0][each]
            for each in both
        )
        index = [handles_of(each.shard, each.rows.report.epoch, each.rows.indices) for each in answers]
        names = rows[0].extras
        return Batch(
            observation,
            _join([each.action for each in rows]),
            _join([each.reward for each in rows]),
            _join([each.discount for each in rows]),
            next_observation,
            _join(index),
            self._weights(answers),
            _join([each.terminated for each in rows]),
            _join([each.truncated for each in rows]),
            {name: _join([each.extras[name] for each in rows]) for name in names},
        )

    def _merge_sequences(self, answers: list[_Answer], shape: SequenceShape) -> SequenceBatch:
        settings, rows = self._replay._settings, [answer.rows for answer in answers]
        length, frames_of = shape.length, [each.frames for each in rows]
        if len(rows) > 1 and any(each.frames[0].shape[1] == settings.stack for each in rows):  # one has a border
            frames_of = [
                tuple(sequence_part(part, (len(each.indices), length), which) for part in each.frames)
                for which in (0, 1)
                for each in rows
            ]
        frames = self._merge_frames(frames_of)
        if len(frames_of) > len(rows):
            frames = tuple(part.reshape(-1, *part.shape[2:]) for part in frames)
        views = [tuple(sequence_part(part, (self._batch_size, length), which) for part in frames) for which in (0, 1)]
        is_single = not isinstance(settings.frame, ObservationSpec)
        observation, next_observation = (each[0] if is_single else settings.frame.rebuild(each) for each in views)
        index = [
            np.where(each.rows.indices < 0, -1, handles_of(each.shard, each.rows.report.epoch, each.rows.indices))
            for each in answers
        ]
        return SequenceBatch(
            observation=observation,
            next_observation=next_observation,
            index=_join(index),
            weight=self._weights(answers),
            extras={name: _join([each.extras[name] for each in rows]) for name in rows[0].extras},
            burn_in=shape.burn_in,
            **{name: _join([each.fields[name] for each in rows]) for name in SEQUENCE_FIELDS},
        )

    def _weights(self, answers: list[_Answer]) -> npt.NDArray[np.float32]:
        """Return the importance weights, relative to the least likely transition of all shards.

        The shard gives them relative to its own least likely one, so that they are those of one memory, bit for bit, if
        there is one shard.
        """
        beta = 1.0 if self._replay._priorities is None else self._replay._beta(self._num_draws)
        masses = self._shares.masses.copy()
        for each in answers:
            masses[each.shard] = self._masses[each.shard]  # also of a shard that was lost after it gave rows
        total = masses.sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            least = np.where(masses > 0, self._shares.smallest / total, math.inf)
        of_answer = []
        for each in answers:
            report = each.rows.report
            of_answer.append(masses[each.shard] / total * report.smallest / report.mass)
            least[each.shard] = min(of_answer[-1], math.inf)
        smallest = min(least.min(), *of_answer)
        weights = [
            each.rows.weight if smallest == mine else (each.rows.weight * (smallest / mine) ** beta).astype(np.float32)
            for each, mine in zip(answers, of_answer, strict=True)
        ]
        return _join(weights)

    def _merge_frames(self, parts: list[tuple[npt.NDArray[Any], ...]]) -> tuple[npt.NDArray[Any], ...]:
        """Return the frames of all parts as one array per key; of a single part without a copy."""
        if len(parts) == 1:
            return tuple(_writable(part) for part in parts[0])
        merged = []
        for array in zip(*parts, strict=True):
            with self._replay._lock:
                out = self._replay._pool.take((sum(map(len, array)), *array[0].shape[1:]), array[0].dtype)
            np.concatenate(array, out=out)
            merged.append(out)
        return tuple(merged)


class _WritableView:
    """Gives NumPy a view of a read-only array that is not marked read-only; keeps the array alive.

    PyTorch copies read-only arrays. Those of an object store are shared, so nobody may write to a batch.
    """

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def _writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array if array.flags.writeable else np.asarray(_WritableView(array))


def _join(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return _writable(parts[0]) if len(parts) == 1 else np.concatenate(parts)
