"""``ShardGroup``: the shards of a replay: draws from all of them, the last answer of each, and which are lost.

Rows of a batch are drawn in two stages: first the shard, in proportion to the masses in the shards' last answers, then
the row within it. So the probability of each row is known, even if a mass has changed since, and its importance weight
is exact::

    Q_i = (m_s / m) (p_i / M_s)     m_s: mass in the last answer of the row's shard; m: of all shards
                                    M_s: mass of the shard at the draw; p_i: mass of the row
    w_i = (Q_min / Q_i) ^ beta      Q_min: the smallest probability of any stored transition

A mass is 1 for each transition with ``Uniform``, and p^α with ``Prioritized``. With fresh masses, m_s = M_s, the
probability is p_i / M, as in one memory.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import OutputPool
from framestow.distributed.limiter import RateLimiter, ReplayCounts
from framestow.distributed.ray import START_S, Calls
from framestow.distributed.shard import EPOCH_BITS, NO_LIMIT, Answer, Limit, Rows, Updates
from framestow.errors import ActorLostError, InvalidSettingsError, NothingToSampleError, StepTimeoutError
from framestow.frames.observation_spec import map_arrays
from framestow.replay.forked_locks import ForkSafeLock
from framestow.replay.reading.batch import MEMBER_SHIFT, Batch, SequenceBatch
from framestow.replay.reading.sampling import observation_parts
from framestow.replay.reading.sequences import SequenceShape, sequence_part
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.settings.memory_settings import MemorySettings

REFRESH_S = 0.25  # age of an answer at which a shard is asked again
MAX_DRAWS = 64  # that were neither unpacked nor stopped
MAX_UPDATES = 2**14  # priorities that wait for one shard; more are sent at once

# Of a ``Batch.index``: the index in the shard's memory, then the shard's epoch, then the number of the shard, and last
# the number of the member of a ``ReplayEnsemble``.
INDEX_BITS = 41
MAX_SHARDS = 2 ** (MEMBER_SHIFT - INDEX_BITS - EPOCH_BITS)

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
Masses = npt.NDArray[np.float64]  # by shard
Given = tuple[int, Answer, Rows]  # a shard, its answer to a draw, and the rows in it
MakeArray = Callable[[tuple[int, ...], Any], Array]  # of a shape and a dtype, with arbitrary contents


@dataclass
class _Known:
    """What the group knows of a shard."""

    answer: Answer | None = None  # the last one; None while the shard is lost
    answered_at: float = 0.0  # by time.monotonic; of a shard that starts, when it was started
    lost_with: int | None = None  # transitions that it had when it was lost; None once it is back
    question: tuple[Any, Limit] | None = None  # handle of a question without an answer, and the limit in it
    counted: tuple[int, int] = (-1, 0)  # epoch and inserted steps that the counts include
    updates: list[Updates] = field(default_factory=list)  # priorities that wait for the next draw


class ShardGroup:
    """The shards of a replay, by number. A shard that dies or hangs is *lost* until it answers again.

    Any thread may call the methods; waiting for rows happens without ``lock``.

    Arguments:
        calls: Calls to the shards. The group ends them, also if a shard cannot be built.
        limiter: Says when a batch may be drawn, and gives the insert limits that travel with questions and draws.
        counts: Counts of the replay, which the group adds to.
        timeout_s: Seconds until a shard that does not answer is lost.
        settings: Of each shard's memory.
        sampler: Gives β, and has no transitions; ``None`` for uniform draws.
        generator: Draws how many rows of a batch each shard gives.
    """

    def __init__(
        self,
        calls: Calls,
        limiter: RateLimiter,
        counts: ReplayCounts,
        timeout_s: float,
        settings: MemorySettings,
        sampler: Prioritized | None,
        generator: np.random.Generator,
    ) -> None:
        self.calls, self.limiter, self.counts, self.timeout_s = calls, limiter, counts, timeout_s
        self.settings, self._sampler, self._generator = settings, sampler, generator
        self.lock = ForkSafeLock(order=0)  # before those of local shards' memories
        """Held for every change of what the replay knows of its shards."""
        self._known = [_Known() for _ in range(calls.num_objects)]
        self.num_open = 0  # draws that were neither unpacked nor stopped
        # Arrays of batches with rows of several shards. Hold the lock to take one.
        self._pool = OutputPool(max_buffers=8 * len(settings.frame.frame_specs))
        with contextlib.ExitStack() as unless_built:
            unless_built.callback(calls.close)
            handles = [calls.call(shard, "answer") for shard in range(calls.num_objects)]
            for shard, handle in enumerate(handles):
                self.record(shard, calls.result(handle, max(timeout_s, START_S)))
            unless_built.pop_all()
        if limiter.ratio is not None:
            self.refresh()  # gives the limits

    @property
    def _answers(self) -> list[Answer | None]:
        return [known.answer for known in self._known]

    @property
    def size(self) -> int:
        """Number of transitions of all shards."""
        return sum(answer.size for answer in self._answers if answer is not None)

    @property
    def limiter_size(self) -> int:
        """The limiter's size: ``size``, or once all shards evict, the capacity, which that size may never reach.

        The size leaves out evicted and lost steps, and those whose n-step return is incomplete.
        """
        size, answers = self.size, self._answers
        is_full = size and all(answer is not None and answer.has_evicted for answer in answers)
        return self.settings.capacity * len(answers) if is_full else size

    @property
    def num_lost(self) -> int:
        """Number of shards that are lost now."""
        self.refresh(waits=False)
        return self._answers.count(None)

    # Draws

    def may_sample(self, batch_size: int) -> bool:
        """Return whether a batch can be drawn now without waiting for inserts."""
        self.refresh(waits=False)
        return self.limiter.may_sample(batch_size, self.limiter_size)

    def draw(self, batch_size: int, shape: SequenceShape | None) -> PendingRows:
        """Ask the shards for a batch, of sequences if there is a ``shape``; wait while the rate limiter forbids it."""
        if self.limiter.ratio is not None:
            self._wait_for_inserts(batch_size)
        with self.lock:
            if self.num_open >= MAX_DRAWS:
                raise InvalidSettingsError(
                    f"{MAX_DRAWS} batches were drawn and not unpacked: no more can be drawn; unpack or stop them"
                )
            self.refresh(waits=False)
            pending = PendingRows(self, batch_size, shape)
            self.num_open += 1
            self.counts.batches += 1
            self.counts.sampled += batch_size
            return pending

    def _wait_for_inserts(self, batch_size: int) -> None:
        since, pause_s, limit_s = time.monotonic(), 0.001, 20 * self.timeout_s
        while not self.may_sample(batch_size):
            if time.monotonic() - since > limit_s:
                raise StepTimeoutError(
                    f"no batch may be sampled after {limit_s:g} s: the shards have {self.size:,} transitions of "
                    f"{self.counts.inserted:,} inserted steps, and gave {self.counts.sampled:,} rows; see whether the "
                    "actors still play, or lower the limiter's min_size"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)
            self.refresh()

    def masses(self) -> tuple[Masses, Masses]:
        """Return the mass of each shard, 0 if it is lost, and that of one transition, infinity if it has none."""
        pairs = [(0.0, math.inf) if answer is None else (answer.mass, answer.smallest) for answer in self._answers]
        masses, smallest = np.array(pairs).T
        return masses, smallest

    def ask_rows(
        self, masses: Masses, num_rows: int, num_draws: int, shape: SequenceShape | None
    ) -> list[tuple[int, int, Any]]:
        """Ask shards for rows, in proportion to ``masses``; return shard, rows and handle of each call.

        Raises:
            NothingToSampleError: all masses are 0.
        """
        if not masses.sum() > 0.0:
            raise NothingToSampleError(
                "no shard has a transition that can be sampled: nothing can be drawn; append more steps, flush(), or "
                "wait for lost shards"
            )
        requests = []
        with self.lock:
            counts = split_rows(masses, num_rows, self._generator.random() if len(masses) > 1 else 0.0)
            for shard in np.flatnonzero(counts).tolist():
                num, limit = int(counts[shard]), self._limit(shard, self.limiter.raise_limit)
                updates = self._take_updates(shard)
                handle = self.calls.call(shard, "sample", num, limit, updates, num_draws, shape)
                requests.append((shard, num, handle))
        return requests

    def beta(self, num_draws: int) -> float:
        """Return β of a batch, after ``num_draws`` others."""
        if self._sampler is None:
            return 1.0
        self._sampler.num_draws = num_draws
        return self._sampler.current_beta

    def take_array(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array for the frames of a batch; its memory is reused once no view of it is alive."""
        with self.lock:
            return self._pool.take(shape, dtype)

    # Priorities

    def add_updates(self, handles: Indices, priorities: npt.NDArray[np.floating[Any]]) -> None:
        """Keep the priorities of transitions, given by their ``Batch.index``, for the next draw of their shard."""
        shards, epochs, indices = split_handles(handles)
        with self.lock:
            for shard, known in enumerate(self._known):
                mine = shards == shard
                if mine.any():
                    known.updates.append((epochs[mine], indices[mine], priorities[mine]))
                    if sum(len(updated) for _, updated, _ in known.updates) > MAX_UPDATES:
                        self._send_updates(shard)

    def send_updates(self) -> None:
        """Send all priorities, before the next calls to the shards."""
        for shard in range(len(self._known)):
            self._send_updates(shard)

    def _send_updates(self, shard: int) -> None:
        with self.lock:
            self.calls.call(shard, "update", self._take_updates(shard))

    def _take_updates(self, shard: int) -> list[Updates]:
        updates, self._known[shard].updates = self._known[shard].updates, []
        return updates

    # Questions and answers

    def refresh(self, waits: bool = True) -> None:
        """Ask all shards what they have, and wait for those that are not lost.

        Unless it ``waits``, ask those that are lost or whose answer is old, and use the answers that arrived.
        """
        with self.lock:
            for shard, known in enumerate(self._known):
                if waits or known.answer is None or time.monotonic() - known.answered_at > REFRESH_S:
                    self.ask(shard)
            for shard, known in enumerate(self._known):
                self.take_answer(shard, waits and known.answer is not None)

    def ask(self, shard: int) -> None:
        """Ask a shard what it has, unless a question waits for its answer."""
        with self.lock:
            known = self._known[shard]
            if known.question is None:
                limit = self._limit(shard, self.limiter.renew_limit)
                known.question = self.calls.call(shard, "answer", limit), limit

    def take_answer(self, shard: int, waits: bool = True) -> None:
        """Use the answer to ``ask``, if there is one or it ``waits``."""
        with self.lock:
            known = self._known[shard]
            if known.question is None or not (waits or self.calls.wait([known.question[0]])):
                return
            (handle, limit), known.question = known.question, None
            with contextlib.suppress(ActorLostError):
                self.receive(shard, handle)
                if limit != NO_LIMIT:
                    self.limiter.record_answer(shard)

    def _limit(self, shard: int, limit: Callable[[int, Sequence[int | None], int], float]) -> Limit:
        """Return the insert limit that travels to a shard; a shard that is lost gets none."""
        answer = self._known[shard].answer
        if answer is None:
            return NO_LIMIT
        inserted = [None if each is None else each.inserted for each in self._answers]
        return answer.epoch, limit(shard, inserted, self.limiter_size)

    def receive(self, shard: int, handle: Any) -> Answer:
        """Wait for the answer to a question or a draw, record it and return it; raises as ``_result``."""
        answer: Answer = self._result(shard, handle)
        self.record(shard, answer)
        return answer

    def _result(self, shard: int, handle: Any) -> Any:
        """Wait for what a call returns; a shard that does not answer is lost.

        Raises:
            ActorLostError: it does not answer.
        """
        try:
            return self.calls.result(handle, self.timeout_s)
        except ActorLostError as error:
            with self.lock:
                self._lose(shard, error)
            raise

    def call_all(self, method: str) -> list[Any]:
        """Call a method of all shards that are not lost; return the answers."""
        self.refresh(waits=False)
        handles = [
            (shard, self.calls.call(shard, method)) for shard, answer in enumerate(self._answers) if answer is not None
        ]
        answers = []
        for shard, handle in handles:
            with contextlib.suppress(ActorLostError):
                answers.append(self._result(shard, handle))
        return answers

    def call_each(self, method: str, arguments: Callable[[int], Sequence[Any]]) -> list[Any]:
        """Call a method that writes of every shard, with the arguments for its number; return all answers.

        Raises:
            ActorLostError: a shard does not answer within ten times ``timeout_s``.
        """
        handles = [self.calls.call(shard, method, *arguments(shard)) for shard in range(len(self._known))]
        return [self.calls.result(handle, 10 * self.timeout_s) for handle in handles]

    # Health

    def record(self, shard: int, answer: Answer) -> None:
        """Record an answer; those of an earlier epoch or moment are ignored."""
        with self.lock:
            known, counts, before = self._known[shard], self.counts, self._known[shard].answer
            if before is not None and (answer.epoch, answer.inserted) < (before.epoch, before.inserted):
                return
            if before is not None and before.epoch != answer.epoch:  # restarted between two answers
                self._count_lost(known, before)
            if known.lost_with is not None:
                counts.lost_transitions += max(0, known.lost_with - answer.size)
                known.lost_with = None
            epoch, inserted = known.counted
            if epoch != answer.epoch:
                self.limiter.begin_epoch(shard)
                inserted = 0
            counts.inserted += answer.inserted - inserted
            known.counted = answer.epoch, answer.inserted
            known.answer, known.answered_at = answer._replace(rows=None), time.monotonic()

    def _lose(self, shard: int, error: ActorLostError) -> None:
        """Sample from the other shards until this one answers again; end one that does not answer."""
        known = self._known[shard]
        is_starting = known.answer is None and time.monotonic() - known.answered_at <= START_S
        if error.is_silent and not is_starting:
            self.calls.replace(shard)
            known.answered_at = time.monotonic()  # one that starts gets the time to do so
        if known.answer is not None:
            self._count_lost(known, known.answer)

    def _count_lost(self, known: _Known, before: Answer) -> None:
        known.lost_with, known.answer = before.size, None
        self.counts.lost_shards += 1

    def close(self) -> None:
        """Close the memories of the shards, and end them."""
        self.call_all("close")
        self.calls.close()


class PendingRows:
    """Rows of one batch that shards were asked for. ``unpack`` waits for them, in any thread."""

    def __init__(self, group: ShardGroup, batch_size: int, shape: SequenceShape | None = None) -> None:
        self._group, self._shape = group, shape
        # Batches before this one, which β depends on.
        self._num_draws = group.counts.batches
        # Of the first question. In ``_masses`` a shard that was lost since, or is empty, gets 0: so all rows of the
        # batch have the probability that they would have without these shards.
        self._first_masses, self._smallest = group.masses()
        self._masses = self._first_masses.copy()
        self._is_open = True  # whether the draw counts as open
        # The first questions; ``unpack`` asks more if shards are lost.
        self._requests = group.ask_rows(self._masses, batch_size, self._num_draws, shape)

    def unpack(self) -> Any:
        """Wait for the rows and return the batch; rows of a lost shard are drawn from the others."""
        group = self._group
        try:
            given = self._wait()
        finally:
            self.stop()
        masses = self._masses.copy()
        for shard, *_ in given:  # also of a shard that was lost after it gave rows
            masses[shard] = self._first_masses[shard]
        weights = compute_weights(given, masses, self._smallest, group.beta(self._num_draws))
        return merge(given, weights, group.settings, self._shape, group.take_array)

    def _wait(self) -> list[Given]:
        """Return all answers that have rows."""
        given, requests = [], self._requests
        while requests:
            missing = 0
            for shard, num_rows, handle in requests:
                rows = None
                with contextlib.suppress(ActorLostError):
                    answer = self._group.receive(shard, handle)
                    rows = answer.rows
                if rows is None:  # it is lost, was restarted, or everything in it was evicted
                    self._masses[shard] = 0.0
                    missing += num_rows
                else:
                    given.append((shard, answer, rows))
            ask = self._group.ask_rows
            requests = ask(self._masses, missing, self._num_draws, self._shape) if missing else []
        return given

    def redraw(self, error: Exception) -> None:
        """Raise ``error``: a shard skips damaged segments itself."""
        raise error

    def stop(self) -> None:
        """Count the draw as done; its rows are discarded when they come."""
        with self._group.lock:
            if self._is_open:
                self._is_open = False
                self._group.num_open -= 1


def make_handles(shard: int, epoch: int, indices: Indices) -> Indices:
    """Return the ``Batch.index`` of transitions of a shard; -1 stays. Those of shard 0 at first are its own indices.

    >>> make_handles(1, 2, np.array([5, -1])) - [(1 << 53) + (2 << 41), 0]
    array([ 5, -1])
    """
    first = (shard << (INDEX_BITS + EPOCH_BITS)) + (epoch % 2**EPOCH_BITS << INDEX_BITS)
    return np.where(indices < 0, -1, indices + first)


def split_handles(handles: Indices) -> tuple[Indices, Indices, Indices]:
    """Return shards, epochs and indices of a ``Batch.index``; the epochs modulo ``2 ** EPOCH_BITS``.

    >>> [part.tolist() for part in split_handles(make_handles(1, 2, np.array([5])))]
    [[1], [2], [5]]
    """
    epochs = (handles >> INDEX_BITS) % 2**EPOCH_BITS
    return handles >> (INDEX_BITS + EPOCH_BITS), epochs, handles % 2**INDEX_BITS


def split_rows(masses: Masses, num_rows: int, random: float) -> Indices:
    """Return how many of ``num_rows`` each shard gives: in proportion to ``masses``, rounded systematically.

    The mean over ``random``, uniform in [0, 1), is exactly ``num_rows * masses / sum``, and each count differs from it
    by less than 1. So the marginals are those of independent draws, with a lower variance.

    >>> [
    ...     split_rows(np.array([3.0, 1.0]), 2, random).tolist()
    ...     for random in (0.0, 0.4, 0.5, 0.9)
    ... ]
    [[1, 1], [1, 1], [2, 0], [2, 0]]
    """
    edges = np.concatenate([[0.0], np.cumsum(masses)])
    edges = np.floor(edges * (num_rows / edges[-1]) + random)
    edges[-1] = num_rows + math.floor(random)
    counts: Indices = np.diff(edges).astype(np.int64)
    return counts


def compute_weights(given: Sequence[Given], masses: Masses, smallest: Masses, beta: float) -> npt.NDArray[np.float32]:
    """Return the importance weights of all rows, relative to the least likely transition of all shards.

    A shard gives the weights of its rows relative to its own least likely one. So they are those of one memory, bit for
    bit, if there is one shard.

    Arguments:
        given: The rows.
        masses: The masses that the rows were drawn by; 0 for a shard that gave none and is lost.
        smallest: By shard, the mass of one transition before the draw; infinity for an empty shard.
        beta: The exponent.
    """
    total = masses.sum()
    least = np.where(masses > 0, smallest, math.inf) / total
    of_rows = [masses[shard] / total * answer.smallest / answer.mass for shard, answer, _ in given]
    for (shard, *_), mine in zip(given, of_rows, strict=True):
        least[shard] = mine  # newer than before the draw
    smallest_of_all = min(least.min(), *of_rows)
    weights = [
        rows.weight if mine == smallest_of_all else (rows.weight * (smallest_of_all / mine) ** beta).astype(np.float32)
        for (*_, rows), mine in zip(given, of_rows, strict=True)
    ]
    return _join(weights)


def merge(
    given: Sequence[Given],
    weights: npt.NDArray[np.float32],
    settings: MemorySettings,
    shape: SequenceShape | None = None,
    make_array: MakeArray = np.empty,
) -> Batch | SequenceBatch:
    """Return the rows of several shards as one batch, in their order; of sequences if there is a ``shape``.

    The arrays of a single answer are not copied. ``make_array`` gives those that other frames are copied into.
    """
    steps = [rows.indices.shape for *_, rows in given]
    arrays = zip(*(rows.frames for *_, rows in given), strict=True)
    halves = [_merge_frames(parts, steps, settings.n_step, make_array) for parts in arrays]
    observation, next_observation = (settings.layout.join(parts, len(steps[0])) for parts in zip(*halves, strict=True))
    fields = map_arrays(lambda *parts: _join(parts), *(rows.fields for *_, rows in given))
    fields |= {"observation": observation, "next_observation": next_observation, "weight": weights}
    fields["index"] = _join([make_handles(shard, answer.epoch, rows.indices) for shard, answer, rows in given])
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


def _make_writable(array: Array) -> Array:
    """Return a view that is not marked read-only, since PyTorch copies read-only arrays.

    Arrays of an object store are shared, so nobody may write to a batch.
    """
    if array.flags.writeable:
        return array
    interface = {**array.__array_interface__, "data": (array.__array_interface__["data"][0], False)}
    return np.asarray(SimpleNamespace(__array_interface__=interface, kept_alive=array))


def _join(parts: Sequence[Array]) -> Array:
    return _make_writable(parts[0]) if len(parts) == 1 else np.concatenate(parts)
