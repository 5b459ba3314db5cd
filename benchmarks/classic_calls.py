"""The calls of nnabla-rl's and of Berkeley's buffer, over framestow's class or a plain one."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow.benchmarking.buffers import BatchArrays, LibraryBuffer
from framestow.benchmarking.play import Row


class Experiences(LibraryBuffer):
    """nnabla-rl's calls, of one environment; observations are floats, k / 255."""

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer)
        self._generator = np.random.default_rng(0)

    def prepare(self, row: Row) -> Any:
        s, s_next = row.observations[0] / np.float32(255), row.next_observations[0] / np.float32(255)
        return s, int(row.actions[0]), float(row.rewards[0]), float(not row.terminated[0]), s_next, {}

    def add(self, prepared: Any) -> object:
        return self._buffer.append(prepared)

    def sample(self, batch_size: int) -> Any:
        if hasattr(self._buffer, "sample"):
            return self._buffer.sample(batch_size)[0]
        indices = self._generator.choice(len(self._buffer), batch_size, replace=False)
        return [self._buffer[index] for index in indices]

    def as_arrays(self, batch: list[Any]) -> BatchArrays:
        s, a, rewards, _, s_next, _ = zip(*batch, strict=True)
        observations, next_observations = (np.rint(np.stack(part) * 255).astype(np.uint8) for part in (s, s_next))
        return BatchArrays(observations, next_observations, np.array(rewards), np.array(a).ravel())


class FrameHistory(LibraryBuffer):
    """Berkeley's calls: a frame ``(H, W, 1)``, the policy's observation, and the effect; channels are joined last.

    They tell no truncation and no last frame; framestow's take both, as arguments that are not measured here.
    """

    def prepare(self, row: Row) -> Row:
        return row

    def add(self, row: Row) -> None:
        slot = self._buffer.store_frame(row.observations[0, -1, :, :, None])
        self._buffer.encode_recent_observation()
        self._buffer.store_effect(slot, int(row.actions[0]), float(row.rewards[0]), bool(row.ended[0]))

    def sample(self, batch_size: int) -> Any:
        return self._buffer.sample(batch_size)

    def as_arrays(self, batch: Any) -> BatchArrays:
        observations, actions, rewards, next_observations, _ = batch
        return BatchArrays(
            observations.transpose(0, 3, 1, 2), next_observations.transpose(0, 3, 1, 2), rewards, actions
        )
