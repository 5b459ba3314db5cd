"""Rows of one batch that several shards are asked for: ``ShardDraws`` asks, ``PendingRows`` waits for the answers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from framestow.distributed.chunks import ShardReport
from framestow.distributed.merging import Masses, compute_weights, merge, split_rows
from framestow.distributed.priority_updates import PriorityUpdates
from framestow.distributed.rate_limiter import RateLimiter, ReplayCounts
from framestow.distributed.shard import Rows
from framestow.distributed.shard_group import ShardGroup
from framestow.errors import ActorLostError, InvalidSettingsError, NothingToSampleError, StepTimeoutError
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.sampling import OutputPool
from framestow.replay.sequences import SequenceShape

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
