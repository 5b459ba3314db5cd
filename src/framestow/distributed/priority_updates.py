"""``PriorityUpdates``: new priorities of sampled transitions, which wait for the next draw of their shard."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.distributed.merging import split_handles
from framestow.distributed.shard import Updates
from framestow.distributed.shard_group import ShardGroup

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
