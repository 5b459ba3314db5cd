"""Once through everything that a memory holds, batch by batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.replay.batch import Batch
from framestow.replay.memory_parts import MemoryParts

Indices = npt.NDArray[np.int64]
Give = Callable[[Callable[[], Indices]], Batch]  # the batch of what it is given to choose by, under the memory's lock


class HeldBatches:
    """Gives every transition that was held when it was made exactly once; an iterator.

    What leaves the memory meanwhile is left out, and what comes is not taken in, so batches stay full to the last one
    and there may be fewer of them. ``len()`` tells how many are still to come if nothing leaves.
    """

    def __init__(
        self,
        parts: MemoryParts,
        give: Give,
        batch_size: int,
        shuffled: bool,
        seed: int | None,
        drop_last: bool,
    ) -> None:
        if seed is not None and not shuffled:
            raise InvalidSettingsError(
                f"seed is {seed}: what is not shuffled has one order; give shuffled=True with it"
            )
        self._parts, self._give, self._batch_size, self._drops_last = parts, give, batch_size, drop_last
        with parts.lock:
            timeline = parts.timeline
            self._num_planned = len(timeline) // batch_size if drop_last else -(-len(timeline) // batch_size)
            # What is drawable of each stream now starts below this; a step that lacks its return yet does not.
            newest = timeline.newest_positions
            settled = np.maximum(newest - parts.settings.n_step + 1, timeline.episode_starts)
            self._stops = np.where(timeline.is_open, settled, newest)
            self._order = timeline.held_indices() if shuffled else None
        if self._order is not None:
            np.random.default_rng(seed).shuffle(self._order)
        self._num_given = 0
        self._last, self._place = self._next = -1, 0  # the index given last, or how far in the order

    def __iter__(self) -> HeldBatches:
        return self

    def __len__(self) -> int:
        return max(self._num_planned - self._num_given, 0)

    def __next__(self) -> Batch:
        if self._num_given >= self._num_planned:
            raise StopIteration
        batch = self._give(self._next_in_order if self._order is None else self._next_shuffled)
        self._last, self._place = self._next
        self._num_given += 1
        return batch

    def _next_in_order(self) -> Indices:
        timeline, last = self._parts.timeline, self._last
        found, num_missing = [np.zeros(0, np.int64)], self._batch_size
        while num_missing:
            behind = timeline.held_after(last, num_missing)
            if not len(behind):
                break
            last = int(behind[-1])
            streams, positions = timeline.places(behind)
            found.append(behind[positions < self._stops[streams]])
            num_missing -= len(found[-1])
        return self._chosen(found, last=last)

    def _next_shuffled(self) -> Indices:
        place, order = self._place, self._order
        found, num_missing = [np.zeros(0, np.int64)], self._batch_size
        while order is not None and num_missing and place < len(order):
            drawn = order[place : place + num_missing]
            place += len(drawn)
            found.append(drawn[self._parts.timeline.is_held(drawn)])
            num_missing -= len(found[-1])
        return self._chosen(found, place=place)

    def _chosen(self, found: list[Indices], last: int = -1, place: int = 0) -> Indices:
        """What a batch is made of; nothing has been given before that is done."""
        indices = np.concatenate(found)
        if not len(indices) or (self._drops_last and len(indices) < self._batch_size):
            self._num_given = self._num_planned
            raise StopIteration
        self._next = last, place
        return indices
