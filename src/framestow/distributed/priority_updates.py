"""``PriorityUpdates``: new priorities of sampled transitions, which wait for the next draw of their shard."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.distributed.merging import EPOCH_BITS, split_handles
from framestow.distributed.rate_limiter import ReplayCounts
from framestow.distributed.shard import Updates
from framestow.distributed.shard_group import ShardGroup
from framestow.errors import ActorLostError

MAX_ROWS = 2**14  # that wait for one shard; more are sent at once


class PriorityUpdates:
    """Priorities by shard and epoch. Those of an epoch that is over are ignored and counted."""

    def __init__(self, group: ShardGroup, counts: ReplayCounts) -> None:
        self._group, self._counts = group, counts
        # By shard: the epoch of the updates that wait, and these.
        self._waiting: list[tuple[int, list[Updates]]] = [(-1, []) for _ in range(len(group))]

    def add(self, handles: npt.NDArray[np.int64], priorities: npt.NDArray[np.floating[Any]]) -> None:
        """Keep the priorities of transitions, given by their ``Batch.index``, for the next draw of their shard."""
        shards, epochs, indices = split_handles(handles)
        with self._group.lock:
            for shard in range(len(self._group)):
                epoch, mine = self._group.epoch(shard), shards == shard
                now = mine & (epochs == epoch % 2**EPOCH_BITS)
                self._counts.ignored_updates += int(np.count_nonzero(mine & ~now))
                if now.any():
                    self._add(shard, epoch, (indices[now], priorities[now]))

    def _add(self, shard: int, epoch: int, updates: Updates) -> None:
        if self._waiting[shard][0] != epoch:
            self.take(shard)
            self._waiting[shard] = epoch, []
        waiting = self._waiting[shard][1]
        waiting.append(updates)
        if sum(len(indices) for indices, _ in waiting) > MAX_ROWS:
            self._send(shard)

    def take(self, shard: int) -> Updates | None:
        """Return the priorities that wait for a shard in the order of their updates, and forget them."""
        epoch, waiting = self._waiting[shard]
        self._waiting[shard] = epoch, []
        if not waiting:
            return None
        indices, priorities = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
        if epoch != self._group.epoch(shard):
            self._counts.ignored_updates += len(indices)
            return None
        return indices, priorities

    def send_all(self) -> None:
        """Send all priorities now, and wait until the shards have them."""
        with self._group.lock:
            for shard in range(len(self._group)):
                self._send(shard)

    def _send(self, shard: int) -> None:
        updates = self.take(shard)
        if updates is not None:
            with contextlib.suppress(ActorLostError):
                call = self._group.calls.call(shard, "update", self._group.epoch(shard), updates)
                self._group.result(shard, call)
