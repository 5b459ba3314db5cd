"""A list oracle that follows the evictions of a memory: it knows which transitions are still sampleable."""

from __future__ import annotations

import numpy as np

from framestow.replay.memory import ReplayMemory
from oracles.list_memory import ListMemory


class EvictingListMemory(ListMemory):
    """The oracle for a memory that evicts any frames: a transition with an evicted frame is not sampleable."""

    def __init__(self, capacity: int, num_envs: int, **settings) -> None:
        super().__init__(capacity, num_envs, **settings)
        self.newest = [-1] * num_envs
        self.stretches = [0] * num_envs
        self.windows: list[tuple[int, int, int]] = []  # environment, first frame, start
        self.sampleable: set[int] = set()

    @property
    def held(self) -> list[int]:
        here = (number for number in self.sampleable if not self.is_pending(number) and not self.has_forgotten(number))
        return sorted(here)

    def begin(self, frames: np.ndarray, env_ids: list[int]) -> None:
        super().begin(frames, env_ids)
        for env_id in env_ids:
            self.newest[env_id] += 1
            self.stretches[env_id] = self.newest[env_id]

    def append(
        self, actions, rewards, terminated, truncated, frames, env_ids: list[int], extras=None, borders=None
    ) -> None:
        super().append(actions, rewards, terminated, truncated, frames, env_ids, extras, borders)
        for row, env_id in enumerate(env_ids):
            first = max(self.stretches[env_id], self.newest[env_id] - self.stack + 1)
            self.sampleable.add(len(self.windows))
            self.windows.append((env_id, first, self.newest[env_id]))
            self.newest[env_id] += 1
            if borders is not None and borders[row]:
                self.stretches[env_id] = self.newest[env_id]

    def frames_evicted(self, env_id: int, first: int, before: int) -> None:
        self.sampleable = {
            number
            for number in self.sampleable
            if not (
                self.windows[number][0] == env_id
                and self.windows[number][1] < before
                and self.windows[number][2] + len(self.steps_of(number)) >= first
            )
        }

    def clear(self) -> None:
        super().clear()
        self.sampleable = set()


class ObservedMemory(ReplayMemory):
    """A memory with random retention that calls ``listener(env_id, first, before)`` for frames that it evicts."""

    def observe_evictions(self, listener) -> None:
        steps = self.inner.steps
        choose, frames = steps.retention.choose, steps.segment_frames

        def observed(num_sealed: int) -> int:
            rank = choose(num_sealed)
            _, env_ids, segments, _, are_sealed = steps.blocks()
            row = np.flatnonzero(are_sealed)[rank]
            listener(int(env_ids[row]), int(segments[row]) * frames, (int(segments[row]) + 1) * frames)
            return rank

        steps.retention.choose = observed
