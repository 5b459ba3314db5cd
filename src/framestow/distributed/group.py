"""``ShardGroup``: the shards of a replay, what each reported last, and the rows of several as one batch.

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

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.distributed.limiter import RateLimiter, ReplayCounts
from framestow.distributed.ray import START_S, Calls
from framestow.distributed.shard import EPOCH_BITS, Rows, ShardReport, Updates
from framestow.errors import ActorLostError, InvalidSettingsError, NothingToSampleError, StepTimeoutError
from framestow.frames.observation_spec import map_arrays
from framestow.replay.batch import Batch, SequenceBatch
from framestow.replay.memory_report import MemoryReport
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.sampling import OutputPool, observation_parts
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


REFRESH_S = 0.25  # age of a report at which a shard is asked again


@dataclass
class _ShardState:
    """What the group knows of a shard."""

    report: ShardReport | None = None  # the last one; None while the shard is lost
    reported_at: float = 0.0  # by time.monotonic; of a shard that starts, when it was started
    lost_with: int | None = None  # transitions that it had when it was lost; None once it is back
    question: Any = None  # handle of a report that was asked for
    counted: tuple[int, int, int] = (-1, 0, 0)  # epoch, inserted steps and ignored updates that the counts include


class ShardGroup:
    """The shards of a replay, by number. A shard that dies or hangs is *lost* until it reports again.

    Every answer of a shard has a report. The group counts what is new in it, and asks shards whose report is old.
    Any thread may call the methods; waiting for rows happens without ``lock``.

    Arguments:
        calls: Calls to the shards. The group ends them, also if a shard cannot be built.
        limiter: Gives the insert limits that travel with questions.
        counts: Counts of the replay, which the group adds to.
        timeout_s: Seconds until a shard that does not answer is lost.
    """

    def __init__(self, calls: Calls, limiter: RateLimiter, counts: ReplayCounts, timeout_s: float) -> None:
        self.calls, self.timeout_s = calls, timeout_s
        self.lock = threading.RLock()
        """Held for every change of what the replay knows of its shards."""
        self._limiter, self._counts = limiter, counts
        self._states = [_ShardState() for _ in range(calls.num_objects)]
        with contextlib.ExitStack() as unless_built:
            unless_built.callback(calls.close)
            for shard in range(len(self._states)):
                self.ask(shard)
            for shard, state in enumerate(self._states):
                handle, state.question = state.question, None
                self.record(shard, calls.result(handle, max(timeout_s, START_S)))
            unless_built.pop_all()
        if limiter.is_active:
            self.refresh()

    def __len__(self) -> int:
        """Return the number of shards."""
        return len(self._states)

    @property
    def reports(self) -> list[ShardReport | None]:
        """The last report of each shard; ``None`` while it is lost."""
        return [state.report for state in self._states]

    @property
    def inserted(self) -> list[int | None]:
        """Steps that each shard has inserted; ``None`` while it is lost."""
        return [None if report is None else report.inserted for report in self.reports]

    @property
    def transitions(self) -> int:
        """Number of transitions of all shards."""
        return sum(report.transitions for report in self.reports if report is not None)

    @property
    def nbytes(self) -> int:
        """Number of bytes in RAM of all shards' memories."""
        return sum(report.nbytes for report in self.reports if report is not None)

    def epoch(self, shard: int) -> int:
        """Return the epoch of a shard; -1 while it is lost."""
        report = self._states[shard].report
        return -1 if report is None else report.epoch

    def masses(self) -> tuple[Masses, Masses]:
        """Return the mass of each shard, 0 if it is lost, and that of one transition, infinity if it has none."""
        reports = self.reports
        return (
            np.array([0.0 if report is None else report.mass for report in reports]),
            np.array([math.inf if report is None else report.smallest for report in reports]),
        )

    # Questions and answers

    def refresh(self) -> None:
        """Ask all shards for their reports, and wait for those that are not lost."""
        with self.lock:
            for shard in range(len(self)):
                self.ask(shard)
            for shard, report in enumerate(self.reports):
                self.take_answer(shard, wait=report is not None)

    def refresh_old(self) -> None:
        """Ask shards whose report is old, without waiting; use the answers that arrived."""
        with self.lock:
            now = time.monotonic()
            for shard, state in enumerate(self._states):
                self.take_answer(shard, wait=False)
                if now - state.reported_at > REFRESH_S:
                    self.ask(shard)
                    self.take_answer(shard, wait=False)

    def ask(self, shard: int) -> None:
        """Ask a shard for its report, unless a question waits for its answer."""
        with self.lock:
            state = self._states[shard]
            if state.question is None:
                limit = self._limiter.renew_limit(shard, self.inserted, self.transitions)
                state.question = self.calls.call(shard, "report", self.epoch(shard), limit)

    def take_answer(self, shard: int, wait: bool = True) -> None:
        """Use the answer to ``ask``, if there is one or ``wait``."""
        with self.lock:
            state = self._states[shard]
            if state.question is None or not (wait or self.calls.wait([state.question])):
                return
            handle, state.question = state.question, None
            with contextlib.suppress(ActorLostError):
                self.record(shard, self.result(shard, handle))
                self._limiter.record_answer(shard)

    def result(self, shard: int, handle: Any) -> Any:
        """Wait for the answer to a call and return it; a shard without an answer is lost.

        Raises:
            ActorLostError: there is none.
        """
        try:
            return self.calls.result(handle, self.timeout_s)
        except ActorLostError as error:
            with self.lock:
                self._lose(shard, error)
            raise

    def call_all(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of all shards that are not lost; return the answers."""
        self.refresh_old()
        alive = [shard for shard, report in enumerate(self.reports) if report is not None]
        handles = [self.calls.call(shard, method, *arguments) for shard in alive]
        answers = []
        for shard, handle in zip(alive, handles, strict=True):
            with contextlib.suppress(ActorLostError):
                answers.append(self.result(shard, handle))
        return answers

    def call_each(self, method: str, arguments: Callable[[int], Sequence[Any]]) -> list[Any]:
        """Call a method that writes of every shard, with the arguments for its number; return all answers.

        Raises:
            ActorLostError: a shard does not answer within ten times ``timeout_s``.
        """
        handles = [self.calls.call(shard, method, *arguments(shard)) for shard in range(len(self))]
        return [self.calls.result(handle, 10 * self.timeout_s) for handle in handles]

    def memory_report(self, capacity: int) -> MemoryReport:
        """Return the sum of the reports of all shards that answer.

        Raises:
            ActorLostError: none does.
        """
        reports: list[MemoryReport] = self.call_all("memory_report")
        if not reports:
            raise ActorLostError("no shard answers: their memories cannot be reported; try again when they are back")
        return replace(
            reports[0],
            transitions=sum(each.transitions for each in reports),
            capacity=capacity,
            parts=_sum_by_name([each.parts for each in reports]),
            frames=_sum_by_name([each.frames for each in reports]),
            max_bytes=None,
            share_used=0.0,
            disk_bytes=sum(each.disk_bytes for each in reports),
            skipped_segments=sum(each.skipped_segments for each in reports),
            skipped_transitions=sum(each.skipped_transitions for each in reports),
            frame_bytes_by_key=_sum_by_name([each.frame_bytes_by_key for each in reports]),
            open_frames=sum(each.open_frames for each in reports),
        )

    # Health

    def record(self, shard: int, report: ShardReport) -> None:
        """Record a report; those of an earlier epoch or moment are ignored."""
        with self.lock:
            state, counts = self._states[shard], self._counts
            before = state.report
            if before is not None and (report.epoch, report.inserted) < (before.epoch, before.inserted):
                return
            if before is not None and before.epoch != report.epoch:  # restarted between two answers
                self._count_lost(state, before)
            if state.lost_with is not None:
                counts.lost_transitions += max(0, state.lost_with - report.transitions)
                state.lost_with = None
            epoch, inserted, ignored = state.counted
            is_same = epoch == report.epoch
            counts.inserted += report.inserted - (inserted if is_same else 0)
            counts.ignored_updates += report.ignored_updates - (ignored if is_same else 0)
            state.counted = report.epoch, report.inserted, report.ignored_updates
            if state.report is None:
                self._limiter.begin_epoch(shard, report.insert_limit)
            state.report, state.reported_at = report, time.monotonic()

    def _lose(self, shard: int, error: ActorLostError) -> None:
        """Sample from the other shards until this one answers again; end one that does not answer."""
        state = self._states[shard]
        is_starting = state.report is None and time.monotonic() - state.reported_at <= START_S
        if error.is_silent and not is_starting:
            self.calls.replace(shard)
            state.reported_at = time.monotonic()  # one that starts gets the time to do so
        if state.report is not None:
            self._count_lost(state, state.report)
        self.ask(shard)

    def _count_lost(self, state: _ShardState, before: ShardReport) -> None:
        state.lost_with, state.report = before.transitions, None
        self._counts.lost_shards += 1

    @property
    def num_lost(self) -> int:
        """Number of shards that are lost now."""
        self.refresh_old()
        return self.reports.count(None)

    def close(self) -> None:
        """Close the memories of the shards, and end them."""
        self.call_all("close")
        self.calls.close()


def _sum_by_name(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}


MAX_ROWS = 2**14  # that wait for one shard; more are sent at once


class PriorityUpdates:
    """Priorities by shard, in the order of their updates. The shard ignores and counts those of an earlier epoch."""

    def __init__(self, group: ShardGroup) -> None:
        self._group = group
        self._waiting: list[list[Updates]] = [[] for _ in range(len(group))]  # by shard

    def add(self, handles: npt.NDArray[np.int64], priorities: npt.NDArray[np.floating[Any]]) -> None:
        """Keep the priorities of transitions, given by their ``Batch.index``, for the next draw of their shard."""
        shards, epochs, indices = split_handles(handles)
        with self._group.lock:
            for shard, waiting in enumerate(self._waiting):
                mine = shards == shard
                if mine.any():
                    waiting.append((epochs[mine], indices[mine], priorities[mine]))
                    if sum(len(updated) for _, updated, _ in waiting) > MAX_ROWS:
                        self.send(shard)

    def take(self, shard: int) -> list[Updates]:
        """Return the priorities that wait for a shard, and forget them."""
        updates, self._waiting[shard] = self._waiting[shard], []
        return updates

    def send(self, shard: int) -> None:
        """Send the priorities that wait for a shard, before the next call to it."""
        with self._group.lock:
            self._group.calls.call(shard, "update", self.take(shard))

    def send_all(self) -> None:
        """Send all priorities, before the next calls to the shards."""
        for shard in range(len(self._group)):
            self.send(shard)


MAX_REQUESTS = 64  # draws that were neither unpacked nor stopped


@dataclass
class Request:
    """The rows of one batch that one shard was asked for."""

    shard: int
    num_rows: int
    handle: Any  # of the call


class ShardDraws:
    """Asks the shards of a group for the rows of batches.

    Arguments:
        group: The shards.
        limiter: Says when a batch may be drawn, and gives the insert limits that travel with draws.
        updates: Priorities that travel with draws.
        counts: Counts of the replay, which draws add to.
        settings: Of each shard's memory.
        sampler: Gives β, and has no transitions; ``None`` for uniform draws.
        generator: Draws how many rows of a batch each shard gives.
    """

    def __init__(
        self,
        group: ShardGroup,
        limiter: RateLimiter,
        updates: PriorityUpdates,
        counts: ReplayCounts,
        settings: MemorySettings,
        sampler: Prioritized | None,
        generator: np.random.Generator,
    ) -> None:
        self.group, self.counts, self.settings = group, counts, settings
        self._generator = generator
        self._limiter, self._updates, self._sampler = limiter, updates, sampler
        # Arrays of batches with rows of several shards. Hold the group's lock to take one.
        self._pool = OutputPool(max_buffers=8 * len(settings.frame.frame_specs))
        self.num_open = 0  # draws that were neither unpacked nor stopped

    def draw(self, batch_size: int, shape: SequenceShape | None) -> PendingRows:
        """Ask the shards for a batch, of sequences if there is a ``shape``; wait while the rate limiter forbids it."""
        self._wait_for_inserts(batch_size)
        with self.group.lock:
            if self.num_open >= MAX_REQUESTS:
                raise InvalidSettingsError(
                    f"{MAX_REQUESTS} batches were drawn and not unpacked: no more can be drawn; unpack or stop them"
                )
            self.group.refresh_old()
            pending = PendingRows(self, batch_size, shape)
            self.num_open += 1
            self.counts.batches += 1
            self.counts.sampled += batch_size
            return pending

    def may_sample(self, batch_size: int) -> bool:
        """Return whether a batch can be drawn now without waiting."""
        self.group.refresh_old()
        return self._limiter.may_sample(batch_size, self.group.transitions)

    def _wait_for_inserts(self, batch_size: int) -> None:
        if not self._limiter.is_active:
            return
        since, pause_s, limit_s = time.monotonic(), 0.001, 20 * self.group.timeout_s
        while not self.may_sample(batch_size):
            if time.monotonic() - since > limit_s:
                raise StepTimeoutError(
                    f"no batch may be sampled after {limit_s:g} s: the shards have {self.group.transitions:,} "
                    f"transitions of {self.counts.inserted:,} inserted steps, and gave {self.counts.sampled:,} rows; "
                    "see whether the actors still play, or lower the limiter's min_size"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)
            self.group.refresh()

    def ask(self, masses: Masses, num_rows: int, num_draws: int, shape: SequenceShape | None) -> list[Request]:
        """Ask shards for rows, in proportion to ``masses``; hold the group's lock.

        Raises:
            NothingToSampleError: all masses are 0.
        """
        if not masses.sum() > 0.0:
            raise NothingToSampleError(
                "no shard has a transition that can be sampled: nothing can be drawn; append more steps, flush(), or "
                "wait for lost shards"
            )
        counts = split_rows(masses, num_rows, self._generator.random() if len(masses) > 1 else 0.0)
        requests = []
        for shard in np.flatnonzero(counts).tolist():
            num, epoch, updates = int(counts[shard]), self.group.epoch(shard), self._updates.take(shard)
            limit = self._limiter.raise_limit(shard, self.group.inserted, self.group.transitions)
            handle = self.group.calls.call(shard, "sample", num, epoch, updates, num_draws, limit, shape)
            requests.append(Request(shard, num, handle))
        return requests

    def beta(self, num_draws: int) -> float:
        """Return β of a batch, after ``num_draws`` others."""
        if self._sampler is None:
            return 1.0
        self._sampler.num_draws = num_draws
        return self._sampler.current_beta

    def take_array(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array for the frames of a batch; its memory is reused once no view of it is alive."""
        with self.group.lock:
            return self._pool.take(shape, dtype)


class PendingRows:
    """Rows of one batch that shards were asked for. ``unpack`` waits for them, in any thread."""

    def __init__(self, draws: ShardDraws, batch_size: int, shape: SequenceShape | None = None) -> None:
        self._draws, self._shape = draws, shape
        # Batches before this one, which β depends on.
        self._num_draws = draws.counts.batches
        # Of the first question. In ``_masses`` a shard that was lost since, or is empty, gets 0: so all rows of the
        # batch have the probability that they would have without these shards.
        self._first_masses, self._smallest = draws.group.masses()
        self._masses = self._first_masses.copy()
        self._is_open = True  # whether the draw counts as open
        # The first questions; ``unpack`` asks more if shards are lost.
        self._requests = draws.ask(self._masses, batch_size, self._num_draws, shape)

    def unpack(self) -> Any:
        """Wait for the rows and return the batch; rows of a lost shard are drawn from the others."""
        draws = self._draws
        try:
            shards, rows = self._wait()
        finally:
            self.stop()
        masses = self._masses.copy()
        masses[shards] = self._first_masses[shards]  # also of a shard that was lost after it gave rows
        weights = compute_weights(shards, rows, masses, self._smallest, draws.beta(self._num_draws))
        return merge(shards, rows, weights, draws.settings, self._shape, draws.take_array)

    def _wait(self) -> tuple[list[int], list[Rows]]:
        """Return all answers, each with its shard."""
        requests = self._requests
        shards: list[int] = []
        rows: list[Rows] = []
        while requests:
            missing = 0
            for request in requests:
                answer = self._answer(request)
                if answer is None:
                    self._masses[request.shard] = 0.0
                    missing += request.num_rows
                else:
                    shards.append(request.shard)
                    rows.append(answer)
            with self._draws.group.lock:
                requests = self._draws.ask(self._masses, missing, self._num_draws, self._shape) if missing else []
        return shards, rows

    def _answer(self, request: Request) -> Rows | None:
        """Wait for rows; return ``None`` if the shard is lost or has none."""
        group = self._draws.group
        try:
            answer: Rows | ShardReport = group.result(request.shard, request.handle)
        except ActorLostError:
            return None
        if isinstance(answer, ShardReport):  # it was restarted, or everything in it was evicted
            group.record(request.shard, answer)
            return None
        group.record(request.shard, answer.report)
        return answer

    def redraw(self, error: Exception) -> None:
        """Raise ``error``: a shard skips damaged segments itself."""
        raise error

    def stop(self) -> None:
        """Count the draw as done; its rows are dropped when they come."""
        with self._draws.group.lock:
            if self._is_open:
                self._is_open = False
                self._draws.num_open -= 1
