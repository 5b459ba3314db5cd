"""``ShardedReplay``: several shards, each with a part of the environments, sampled as one replay memory.

How rows are drawn and weighted: ``framestow.distributed.pending_rows``.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import check_seed, folder_path, real_number, whole_number
from framestow.closing import Closing
from framestow.distributed.calls import START_S, Calls, LocalCalls
from framestow.distributed.chunks import ShardReport, ShardWriter, WriterSettings, check_writer_env_ids
from framestow.distributed.pending_rows import EPOCH_BITS, INDEX_BITS, PendingRows, Shares
from framestow.distributed.rate_limiter import SampleToInsertRatio
from framestow.distributed.saved_shards import prune_before, read_generation, shard_folder, write_generation
from framestow.distributed.shard import Shard, ShardSettings, Updates, sampler_settings
from framestow.errors import ActorLostError, InvalidSettingsError, StepTimeoutError
from framestow.frames.observation_spec import observation_spec
from framestow.frames.stacking import StackPadding
from framestow.one_line import one_line, plural
from framestow.replay.action_spec import ActionSpec
from framestow.replay.batch import Batch, SequenceBatch
from framestow.replay.byte_amounts import format_bytes, parse_bytes
from framestow.replay.eviction import Retention
from framestow.replay.memory import check_batch_size
from framestow.replay.memory_report import MemoryReport
from framestow.replay.memory_settings import MemorySettings, labels_of
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.samplers.sampler import Sampler, check_priorities
from framestow.replay.sampling import OutputPool
from framestow.replay.sequences import Borders, SequenceShape
from framestow.replay.step_fields import ExtrasSpec
from framestow.storage.frame_storage import Storage

MAX_SHARDS = 2 ** (63 - INDEX_BITS - EPOCH_BITS)
MAX_REQUESTS = 64  # draws that were neither unpacked nor stopped
REFRESH_S = 0.25  # age of a report at which a shard is asked again
MAX_UPDATE_ROWS = 2**14  # priorities that wait for the next draw of their shard

StartShards = Callable[[Sequence[ShardSettings]], Calls]


def start_local_shards(settings: Sequence[ShardSettings]) -> Calls:
    """Return shards in this process, for tests and to debug a program without a cluster."""
    return LocalCalls([partial(Shard, one) for one in settings])


@dataclass
class ReplayCounts:
    """What a replay has counted since it was built, or since the run that it resumes began."""

    inserted: int = 0  # steps that shards reported
    sampled: int = 0  # rows
    batches: int = 0
    ignored_updates: int = 0  # priorities of transitions that were evicted or lost with a shard
    lost_shards: int = 0  # shards that died or did not answer
    lost_transitions: int = 0  # that a shard had before, and did not have after its restart
    replaced_rows: int = 0  # drawn again from other shards
    waited_s: float = 0.0  # for inserts


class ShardedReplay(Closing):
    """Replay memory in several shards, each of which owns a ``ReplayMemory`` with a part of the environments.

    Environment e belongs to shard ``e % shards``. The calls are those of ``ReplayMemory``; differences:

    - ``add``, ``begin`` and ``append`` collect chunks of ``frames_per_segment`` frames, and a chunk can be sampled when
      it was sent. ``flush`` sends the rest. ``writer`` returns an object with the same calls for an actor.
    - ``sampler`` is ``Uniform()`` or ``Prioritized()``, with one weight normalisation over all shards.
    - ``Batch.index`` has the shard, its restarts, and the index there. ``update_priorities`` ignores and counts those
      that were evicted or lost. Updates are sent with the next draw of their shard.
    - After the loss of a shard, batches come from the others, with the probabilities that this gives. The shard is
      restarted: with a ``directory`` it has what it had flushed, otherwise it is empty.

    >>> import numpy as np
    >>> from framestow import FrameSpec
    >>> from framestow.distributed import ShardedReplay, start_local_shards
    >>> replay = ShardedReplay(100, FrameSpec((2, 2)), 4, shards=2, num_envs=2, seed=0, start=start_local_shards)
    >>> replay.begin(np.zeros((2, 2, 2), np.uint8))
    >>> replay.append([1, 3], [0.5, 0.5], [False, False], [True, True], np.ones((2, 2, 2), np.uint8))
    >>> replay.flush()
    >>> sorted(set(replay.sample(32).action.tolist()))
    [1, 3]

    Arguments:
        capacity: Maximum number of transitions of all shards together.
        shards: Number of shards.
        directory: Folder for the shards' memories, which all nodes must share if a shard may restart elsewhere.
        flush_every: Seconds between two flushes of each shard, with a ``directory``.
        rate_limiter: Holds back ``sample`` and writers; ``None`` holds back neither.
        timeout_s: Seconds until a shard that does not answer counts as lost.
        start: Starts the shards: ``framestow.distributed.start_ray_shards``, or ``start_local_shards`` in this process.
        max_bytes: Budget of all shards together.
        saved: Folder and generation of a ``save`` that the shards start with.

    The other arguments are those of ``ReplayMemory``. One thread samples, and a loader's threads unpack.
    """

    def __init__(
        self,
        capacity: int,
        observation_space: Any,
        action_space: Any,
        *,
        shards: int = 1,
        stack: int = 4,
        stack_padding: StackPadding = "first_frame",
        num_envs: int = 1,
        n_step: int = 1,
        discount: float = 0.99,
        sampler: Sampler | None = None,
        storage: Storage = "packed",
        retention: Retention = "fifo",
        seed: int | None = None,
        threads: int = 1,
        max_bytes: int | str | None = None,
        label: str = "",
        frames_per_segment: int | None = None,
        directory: str | Path | None = None,
        flush_every: float = 5.0,
        extras: Mapping[str, npt.DTypeLike] | ExtrasSpec | None = None,
        rate_limiter: SampleToInsertRatio | None = None,
        timeout_s: float = 30.0,
        start: StartShards | None = None,
        saved: tuple[Path, int] | None = None,
    ) -> None:
        seed = check_seed(seed)
        whole_number("num_envs", num_envs, 1, rule="a replay has at least 1 environment")
        rule = f"a replay has 1 to {MAX_SHARDS} shards, and each needs an environment of the {num_envs}"
        self.num_shards = shards = whole_number("shards", shards, 1, min(MAX_SHARDS, num_envs), rule=rule)
        real_number("flush_every", flush_every, 0, rule="it is a number of seconds above 0", is_least_excluded=True)
        real_number("timeout_s", timeout_s, 0, rule="it is a number of seconds above 0", is_least_excluded=True)
        num_bytes = None if max_bytes is None else parse_bytes(max_bytes)
        of_shard = MemorySettings(
            -(-capacity // shards),
            observation_spec(observation_space),
            ActionSpec.from_space(action_space),
            stack,
            -(-num_envs // shards),
            discount,
            storage,
            1,
            stack_padding,
            labels_of(label, -(-num_envs // shards)),
            retention,
            None if num_bytes is None else num_bytes // shards,
            frames_per_segment,
            ExtrasSpec.from_declared(extras),
            n_step,
        )
        self.capacity, self.num_envs, self.stack = of_shard.capacity * shards, num_envs, stack
        # Settings of a shard's memory; seconds of one call; None without a limit.
        self._settings, self._timeout_s, self._limiter = of_shard, timeout_s, rate_limiter
        priorities = sampler_settings(sampler)
        self._priorities = None if priorities is None else Prioritized(**priorities)  # gives β; has no transitions
        folder = None if directory is None else folder_path("directory", directory).resolve()
        generation = None if saved is None else read_generation(*saved, shards)
        state = {} if generation is None else generation.state
        self.counts = ReplayCounts(**state.get("counts", {}))
        self._check_limiter()
        # By shard: its last report; None while it is lost.
        self._reports: list[ShardReport | None] = [None] * shards
        seeds = [seed, *_derive_seeds(seed, shards - 1)]
        settings = [
            ShardSettings(
                of_shard,
                seeds[number],
                priorities,
                None if folder is None else shard_folder(folder, number),
                flush_every,
                None if generation is None or saved is None else generation.of_shard(saved[0], number),
                math.inf if rate_limiter is None else 0.0,  # refresh, below, raises it
                threads,
            )
            for number in range(shards)
        ]
        # Calls to the shards.
        self._shards = (_start_ray_shards if start is None else start)(settings)
        # Draws how many rows of a batch each shard gives.
        self._generator = np.random.default_rng(None if seed is None else [seed, 1])
        if "generator" in state:
            self._generator.bit_generator.state = state["generator"]
        # Held to change anything below. Waiting for the rows of a batch happens without it, in a loader's threads.
        self._lock = threading.RLock()
        # Arrays of batches with rows of several shards. Hold ``_lock`` to take one.
        self._pool = OutputPool(max_buffers=8 * len(of_shard.frame.frame_specs))
        self._num_requests = 0  # draws that were neither unpacked nor stopped
        self._reported_at = [0.0] * shards  # time of each report, by time.monotonic
        self._lost_with: list[int | None] = [None] * shards  # transitions that a shard had when it was lost
        self._questions: dict[int, Any] = {}  # reports that were asked for, by shard
        # By shard: the epoch of its last report, and its inserted steps and ignored updates, which ``counts`` include.
        self._counted: dict[int, tuple[int, int, int]] = {}
        # By shard: priorities that wait for the next draw.
        self._updates: list[list[Updates]] = [[] for _ in range(shards)]
        self._limits = [0.0] * shards  # the largest insert limit that may be in force
        self._newest_limits = [0.0] * shards  # the same, without those that the pending question replaces
        # Of this object's own ``begin``, ``append`` and ``add``; None before the first of them.
        self._writer: ShardWriter | None = None
        with contextlib.ExitStack() as unless_built:
            unless_built.callback(self._shards.close)
            for number in range(shards):
                self._ask(number)
            for number in range(shards):
                self._note(number, self._shards.result(self._questions.pop(number), max(timeout_s, START_S)))
            unless_built.pop_all()
        if rate_limiter is not None:
            self.refresh()

    # Storing steps

    def writer(
        self,
        env_ids: Sequence[int] | None = None,
        *,
        max_in_flight: int = 2,
        priority: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]] | None = np.abs,
    ) -> ShardWriter:
        """Return an object that stores the steps of ``env_ids``, for an actor: give it to a ``Recorder``.

        It numbers its environments from 0. It can be sent to another process as long as it is not used. Each
        environment has one writer; a later one replaces an earlier one.

        Arguments:
            env_ids: Numbers of environments of the replay; ``None`` means all.
            max_in_flight: Calls to each shard before the writer waits.
            priority: Initial priorities of transitions from their n-step TD errors (``ShardWriter.note_values``);
                ``None`` gives new transitions the largest priority so far.
        """
        return self._new_writer(env_ids, max_in_flight, priority, waits_for_limiter=True)

    def _new_writer(
        self, env_ids: Sequence[int] | None, max_in_flight: int, priority: Any, waits_for_limiter: bool
    ) -> ShardWriter:
        envs = check_writer_env_ids(range(self.num_envs) if env_ids is None else env_ids, self.num_envs)
        rule = "at least 1 call is in flight; give 2, so that packing and sending overlap"
        whole_number("max_in_flight", max_in_flight, 1, rule=rule)
        settings = WriterSettings(
            self._settings, envs, max_in_flight, self._timeout_s, START_S, waits_for_limiter, priority
        )
        return ShardWriter(self._shards, settings)

    @property
    def _own_writer(self) -> ShardWriter:
        # It does not wait for the rate limiter: the process that samples would wait for itself.
        if self._writer is None:
            self._writer = self._new_writer(None, 2, None, waits_for_limiter=False)
        return self._writer

    def begin(self, frames: Any, env_ids: Sequence[int] | npt.NDArray[Any] | None = None) -> None:
        """Start an episode in each of ``env_ids``, as ``ReplayMemory.begin`` does."""
        self._own_writer.begin(frames, env_ids)

    def append(
        self,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        frames: Any,
        env_ids: Sequence[int] | npt.NDArray[Any] | None = None,
        extras: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        """Store one step of each of ``env_ids``, as ``ReplayMemory.append`` does, in chunks."""
        self._own_writer.append(actions, rewards, terminated, truncated, frames, env_ids, extras)

    def add(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        next_observation: Any,
        terminated: Any,
        truncated: Any,
        env_ids: Any = None,
        extras: Mapping[str, Any] | None = None,
    ) -> None:
        """Store one step of each of ``env_ids`` with its stacked observations, as ``ShardWriter.add`` does."""
        self._own_writer.add(observation, action, reward, next_observation, terminated, truncated, env_ids, extras)

    def observations(self) -> Any:
        """Return the current observation of each environment that ``begin`` and ``append`` feed."""
        return self._own_writer.observations()

    @property
    def open_episodes(self) -> npt.NDArray[np.bool_]:
        """Whether each environment that ``begin`` and ``append`` feed has an open episode."""
        return self._own_writer.open_episodes

    def _check_extras(self, extras: Mapping[str, npt.ArrayLike] | None, num_steps: int) -> Any:
        return self._settings.extras.check_extras(extras, num_steps)

    def flush(self) -> None:
        """Send all steps of ``begin`` and ``append``, send all priorities, and write shards to their ``directory``."""
        if self._writer is not None:
            self._writer.flush()
        with self._lock:
            for number in range(self.num_shards):
                self._send_updates(number)
        self._of_all("flush")
        self.refresh()

    # Sampling

    def sample(self, batch_size: int) -> Batch:
        """Sample ``batch_size`` transitions of all shards, as one memory would; wait if the rate limiter says so.

        Raises:
            NothingToSampleError: no shard has any.
        """
        batch: Batch = _unpack(self.draw_ahead(batch_size))
        return batch

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Give new TD errors, as ``ReplayMemory.update_priorities`` does; sent with the next draw of their shards."""
        numbers, values = check_priorities(indices, priorities)
        if self._priorities is None:
            raise InvalidSettingsError(
                "sampler is a Uniform: it does not use priorities; build the replay with sampler=Prioritized()"
            )
        with self._lock:
            if (numbers >= 0).all() and self.num_shards == 1 and not self._epoch(0):
                self._add_update(0, numbers, values)
                return
            shards = numbers >> (INDEX_BITS + EPOCH_BITS)
            epochs = (numbers >> INDEX_BITS) % 2**EPOCH_BITS
            local = numbers % 2**INDEX_BITS
            for number in range(self.num_shards):
                mine = (shards == number) & (numbers >= 0)
                now = mine & (epochs == self._epoch(number) % 2**EPOCH_BITS)
                self.counts.ignored_updates += int(np.count_nonzero(mine & ~now))
                if now.any():
                    self._add_update(number, local[now], values[now])

    def _add_update(self, shard: int, indices: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> None:
        updates = self._updates[shard]
        updates.append((indices.copy(), values.copy()))
        if sum(len(each) for each, _ in updates) > MAX_UPDATE_ROWS:
            self._send_updates(shard)

    def _send_updates(self, shard: int) -> None:
        updates = self._take_updates(shard)
        if updates is not None:
            try:
                call = self._shards.call(shard, "update", self._epoch(shard), updates)
                self._shards.result(call, self._timeout_s)
            except ActorLostError as error:
                self._lose(shard, error)

    def _take_updates(self, shard: int) -> Updates | None:
        updates, self._updates[shard] = self._updates[shard], []
        if not updates:
            return None
        return np.concatenate([each for each, _ in updates]), np.concatenate([each for _, each in updates])

    def sample_sequences(
        self,
        batch_size: int,
        length: int,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
    ) -> SequenceBatch:
        """Sample sequences, each of one shard, as ``ReplayMemory.sample_sequences`` does."""
        drawn = self.draw_sequences_ahead(batch_size, length, overlap=overlap, burn_in=burn_in, borders=borders)
        batch: SequenceBatch = _unpack(drawn)
        return batch

    def draw_sequences_ahead(
        self,
        batch_size: int,
        length: int,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
    ) -> PendingRows:
        """Ask the shards for sequences, and leave waiting for the answers to a loader's thread."""
        shape = SequenceShape(length, overlap, burn_in, borders)
        shape.check()
        return self._draw(check_batch_size(batch_size), shape)

    def draw_ahead(self, batch_size: int) -> PendingRows:
        """Ask the shards for a batch, and leave waiting for the answers to a loader's thread.

        Waits while the rate limiter forbids a sample.
        """
        return self._draw(check_batch_size(batch_size), None)

    def _draw(self, batch_size: int, shape: SequenceShape | None) -> PendingRows:
        self._wait_for_inserts(batch_size)
        with self._lock:
            if self._num_requests >= MAX_REQUESTS:
                raise InvalidSettingsError(
                    f"{MAX_REQUESTS} batches were drawn and not unpacked: their rows take memory; unpack or stop them"
                )
            self._refresh_old()
            pending = PendingRows(self, batch_size, shape)
            self._num_requests += 1
            self.counts.batches += 1
            self.counts.sampled += batch_size
            return pending

    def may_sample(self, batch_size: int) -> bool:
        """Return whether a batch can be sampled now without waiting for inserts."""
        with self._lock:
            self._refresh_old()
            if self._limiter is None:
                return len(self) > 0
            return len(self) > 0 and self._limiter.may_sample(
                batch_size, self.counts.inserted, self.counts.sampled, len(self)
            )

    @property
    def who_waits(self) -> str:
        """``"learner"``, ``"actors"`` or ``"nobody"``: whom the rate limiter holds back."""
        if self._limiter is None:
            return "nobody"
        if self._limiter.inserts_left(self.counts.inserted, self.counts.sampled, len(self)) <= 0:
            return "actors"
        can_sample = self._limiter.may_sample(1, self.counts.inserted, self.counts.sampled, len(self))
        return "nobody" if can_sample else "learner"

    def _wait_for_inserts(self, batch_size: int) -> None:
        if self._limiter is None:
            return
        since, pause_s = time.monotonic(), 0.001
        while not self.may_sample(batch_size):
            if time.monotonic() - since > 20 * self._timeout_s:
                raise StepTimeoutError(
                    f"no batch may be sampled after {20 * self._timeout_s:g} s: the shards have {len(self):,} "
                    f"transitions of {self.counts.inserted:,} inserted steps, and gave {self.counts.sampled:,} rows; "
                    "see whether the actors still play, or lower the limiter's min_size"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)
            self.refresh()
        self.counts.waited_s += time.monotonic() - since

    def _check_limiter(self) -> None:
        if self._limiter is not None and self._limiter.min_size > self.capacity:
            raise InvalidSettingsError(
                f"rate_limiter has min_size {self._limiter.min_size}: the replay stores {self.capacity} transitions; "
                "lower it, or raise capacity"
            )

    def _insert_limit(self, shard: int) -> float:
        """Return up to which number a shard may insert steps, so that all limits together stay within the band.

        It is an equal part of what all may insert, but no more than the limits of the other shards leave.
        """
        report = self._reports[shard]
        if self._limiter is None or report is None:
            return math.inf if self._limiter is None else 0.0
        left = self._limiter.inserts_left(self.counts.inserted, self.counts.sampled, len(self))
        others = (
            max(0, limit - each.inserted)
            for number, (limit, each) in enumerate(zip(self._limits, self._reports, strict=True))
            if number != shard and each is not None
        )
        return report.inserted + max(0, min(math.ceil(left / self.num_shards), left - sum(others)))

    def _limit_with_draw(self, shard: int) -> float:
        """Return the insert limit that a draw gives to a shard; it never lowers the last one."""
        return self._record_sent_limit(shard, max(self._insert_limit(shard), self._newest_limits[shard]))

    def _record_sent_limit(self, shard: int, limit: float) -> float:
        """Note a limit that is sent to a shard, and return it."""
        self._newest_limits[shard] = limit
        self._limits[shard] = max(self._limits[shard], limit)
        return limit

    # Shards and their reports

    def refresh(self) -> None:
        """Ask all shards for their reports, and wait for those that are alive."""
        with self._lock:
            for number in range(self.num_shards):
                self._ask(number)
            for number in range(self.num_shards):
                if self._reports[number] is not None or self._lost_with[number] is None:
                    self._answer(number, self._timeout_s)
                else:
                    self._answer_if_done(number)

    def _refresh_old(self) -> None:
        """Ask shards whose report is old, without waiting; use the answers that arrived."""
        now = time.monotonic()
        for number in range(self.num_shards):
            self._answer_if_done(number)
            if now - self._reported_at[number] > REFRESH_S:
                self._ask(number)
                self._answer_if_done(number)

    def _ask(self, shard: int) -> None:
        if shard not in self._questions:
            limit = self._record_sent_limit(shard, self._insert_limit(shard))
            self._questions[shard] = self._shards.call(shard, "report", self._epoch(shard), limit)

    def _answer_if_done(self, shard: int) -> None:
        if shard in self._questions and self._shards.wait([self._questions[shard]]):
            self._answer(shard, self._timeout_s)

    def _answer(self, shard: int, timeout_s: float) -> None:
        handle = self._questions.pop(shard, None)
        if handle is None:
            return
        try:
            self._note(shard, self._shards.result(handle, timeout_s))
        except ActorLostError as error:
            self._lose(shard, error)
        else:  # calls are executed in order: limits from before the question are no longer in force
            self._limits[shard] = self._newest_limits[shard]

    def _note(self, shard: int, report: ShardReport) -> None:
        """Take over a report; those of an earlier epoch or moment are ignored."""
        before = self._reports[shard]
        if before is not None and (report.epoch, report.inserted) < (before.epoch, before.inserted):
            return
        is_same = before is not None and before.epoch == report.epoch
        if before is not None and not is_same and self._lost_with[shard] is None:  # restarted between two answers
            self._lost_with[shard] = before.transitions
            self.counts.lost_shards += 1
        had = self._lost_with[shard]
        if had is not None:
            self.counts.lost_transitions += max(0, had - report.transitions)
            self._lost_with[shard] = None
        first = self._last_counts(shard, report.epoch)
        self.counts.inserted += report.inserted - first[0]
        self.counts.ignored_updates += report.ignored_updates - first[1]
        self._counted[shard] = report.epoch, report.inserted, report.ignored_updates
        if not is_same:
            self._limits[shard] = self._newest_limits[shard] = report.insert_limit
        self._reports[shard], self._reported_at[shard] = report, time.monotonic()

    def _last_counts(self, shard: int, epoch: int) -> tuple[int, int]:
        counted = self._counted.get(shard)
        return counted[1:] if counted is not None and counted[0] == epoch else (0, 0)

    def _lose(self, shard: int, error: ActorLostError) -> None:
        """Sample from the other shards until this one answers again; end one that does not answer."""
        report = self._reports[shard]
        if error.is_silent and (report is not None or time.monotonic() - self._reported_at[shard] > START_S):
            self._shards.replace(shard)
            self._reported_at[shard] = time.monotonic()  # one that starts gets the time to do so
        if report is not None:
            self._lost_with[shard] = report.transitions
            self.counts.lost_shards += 1
            self._reports[shard] = None
            self._updates[shard] = []
        self._ask(shard)

    @property
    def lost_now(self) -> int:
        """Number of shards that do not answer now."""
        with self._lock:
            self._refresh_old()
            return sum(report is None for report in self._reports)

    def _epoch(self, shard: int) -> int:
        report = self._reports[shard]
        return report.epoch if report is not None else -1

    def _beta(self, num_draws: int) -> float:
        """Return β of a batch."""
        assert self._priorities is not None
        self._priorities.num_draws = num_draws
        return self._priorities.current_beta

    def _shares(self) -> Shares:
        return Shares(
            np.array([0.0 if report is None else report.mass for report in self._reports]),
            np.array([math.inf if report is None else report.smallest for report in self._reports]),
        )

    def __repr__(self) -> str:
        def details() -> Iterator[str]:
            yield f"{len(self):,} of {self.capacity:,} transitions"
            yield format_bytes(self.nbytes)
            yield f"stack {self.stack}"
            yield plural(self.num_envs, "environment")
            yield plural(self.num_shards, "shard")

        return one_line(self, details)

    def __len__(self) -> int:
        """Return the number of transitions that the shards reported last."""
        return sum(report.transitions for report in self._reports if report is not None)

    @property
    def nbytes(self) -> int:
        """Number of bytes in RAM of all shards' memories, as they reported last."""
        return sum(report.nbytes for report in self._reports if report is not None)

    def report(self) -> MemoryReport:
        """Return the sum of the reports of all shards that answer."""
        reports: list[MemoryReport] = self._of_all("memory_report")
        if not reports:
            raise ActorLostError("no shard answers: their memories cannot be reported; try again when they are back")
        total = replace(reports[0], capacity=self.capacity, max_bytes=None, share_used=0.0)
        return replace(
            total,
            transitions=sum(each.transitions for each in reports),
            parts=_sum([each.parts for each in reports]),
            frames=_sum([each.frames for each in reports]),
            disk_bytes=sum(each.disk_bytes for each in reports),
            skipped_segments=sum(each.skipped_segments for each in reports),
            skipped_transitions=sum(each.skipped_transitions for each in reports),
            frame_bytes_by_key=_sum([each.frame_bytes_by_key for each in reports]),
            open_frames=sum(each.open_frames for each in reports),
        )

    def _of_all(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of all shards that are not lost; return their answers."""
        with self._lock:
            self._refresh_old()
            alive = [number for number, report in enumerate(self._reports) if report is not None]
        handles = [self._shards.call(number, method, *arguments) for number in alive]
        answers = []
        for number, handle in zip(alive, handles, strict=True):
            try:
                answers.append(self._shards.result(handle, self._timeout_s))
            except ActorLostError as error:
                with self._lock:
                    self._lose(number, error)
        return answers

    # Saving

    def save(self, path: str | Path, *, keep_previous: bool = False) -> int:
        """Save all shards to the folder ``path``, with what a resumed replay needs; return the generation.

        Each shard writes to ``path/shard-<number>``, so all nodes must share this folder. Steps that are still on the
        way to a shard are not saved.

        Arguments:
            path: The folder.
            keep_previous: Whether the generations before this one stay, until ``prune``.

        Raises:
            ActorLostError: a shard is lost; the previous generation stays.
        """
        folder = folder_path("path", path).resolve()
        with self._lock:
            for number in range(self.num_shards):
                self._send_updates(number)
        handles = [
            self._shards.call(number, "save", shard_folder(folder, number), True) for number in range(self.num_shards)
        ]
        saved = [self._shards.result(handle, 10 * self._timeout_s) for handle in handles]
        with self._lock:
            for number, (_, report) in enumerate(saved):
                self._note(number, report)  # the counts are those of the saved steps
            state = {"counts": vars(self.counts).copy(), "generator": self._generator.bit_generator.state}
        generation = write_generation(folder, [generation for generation, _ in saved], state)
        if not keep_previous:
            self.prune(folder, generation)
        return generation

    def prune(self, path: str | Path, generation: int) -> None:
        """Delete the generations before ``generation`` from the folder ``path``."""
        folder = folder_path("path", path).resolve()
        saved = read_generation(folder, generation, self.num_shards)
        handles = [
            self._shards.call(number, "prune", *saved.of_shard(folder, number)) for number in range(self.num_shards)
        ]
        for handle in handles:
            self._shards.result(handle, 10 * self._timeout_s)
        prune_before(folder, generation)

    def close(self) -> None:
        """Flush the shards and end them."""
        if self._writer is not None:
            with contextlib.suppress(ActorLostError):
                self._writer.flush()
        self._of_all("close")
        self._shards.close()


def _unpack(pending: PendingRows) -> Any:
    try:
        return pending.unpack()
    finally:
        pending.stop()


def _sum(parts: list[Mapping[str, int]]) -> dict[str, int]:
    return {
        name: sum(part.get(name, 0) for part in parts) for name in dict.fromkeys(key for part in parts for key in part)
    }


def _derive_seeds(seed: int | None, num: int) -> list[int | None]:
    if seed is None:
        return [None] * num
    return [int(np.random.SeedSequence(seed, spawn_key=(n,)).generate_state(1, np.uint32)[0]) for n in range(num)]


def _start_ray_shards(settings: Sequence[ShardSettings]) -> Calls:
    from framestow.distributed.ray_actors import start_ray_shards  # noqa: PLC0415 -- imports Ray

    return start_ray_shards(settings)
