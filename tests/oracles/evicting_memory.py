"""A memory with random retention that reports its evictions, and an oracle that applies them to plain lists."""

from __future__ import annotations

import numpy as np

from framestow.replay.memory import ReplayMemory
from oracles.list_memory import ListMemory


class EvictingListMemory(ListMemory):
    """The oracle of random retention: transitions that reference evicted frames are not sampleable."""

    def __init__(self, capacity: int, num_envs: int, **settings) -> None:
        super().__init__(capacity, num_envs, **settings)
        self.newest = [-1] * num_envs
        self.starts = [0] * num_envs
        self.windows: list[tuple[int, int, int]] = []  # stream, first referenced position, start
        self.readable: set[int] = set()

    @property
    def held(self) -> list[int]:
        return sorted(number for number in self.readable if not self.is_pending(number))

    def begin(self, frames: np.ndarray, env_ids: list[int]) -> None:
        super().begin(frames, env_ids)
        for stream in env_ids:
            self.newest[stream] += 1
            self.starts[stream] = self.newest[stream]

    def append(self, actions, rewards, terminated, truncated, frames, env_ids: list[int], extras=None) -> None:
        super().append(actions, rewards, terminated, truncated, frames, env_ids, extras)
        for stream in env_ids:
            first = max(self.starts[stream], self.newest[stream] - self.stack + 1)
            self.readable.add(len(self.windows))
            self.windows.append((stream, first, self.newest[stream]))
            self.newest[stream] += 1

    def frames_evicted(self, stream: int, first: int, before: int) -> None:
        self.readable = {
            number
            for number in self.readable
            if not (
                self.windows[number][0] == stream
                and self.windows[number][1] < before
                and self.windows[number][2] + len(self.steps_of(number)) >= first
            )
        }


class ReportingStorage:
    """A storage that reports its evictions to ``listener``."""

    def __init__(self, storage, listener) -> None:
        self._storage, self._listener = storage, listener

    def __getattr__(self, name: str):
        return getattr(self._storage, name)

    def evict(self, stream: int, before: int, first: int = 0) -> None:
        self._storage.evict(stream, before, first)
        self._listener(stream, first, before)


class ReportingMemory(ReplayMemory):
    """A memory that reports the evicted frames to ``listener`` as (stream, first, before)."""

    def report_evictions_to(self, listener) -> None:
        self._storage = ReportingStorage(self._storage, listener)
