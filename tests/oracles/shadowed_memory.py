"""A memory that an oracle of plain lists is kept beside."""

from __future__ import annotations

import numpy as np

from framestow.replay.memory import ReplayMemory
from oracles.list_memory import ListMemory


class ShadowedMemory(ReplayMemory):
    """A memory beside the oracle, which is told everything that the memory is told."""

    def __init__(self, *args, **settings) -> None:
        super().__init__(*args, **settings)
        self.oracle = ListMemory(
            self.capacity, self.num_streams, self.stack, self.settings.discount, n_step=self.settings.n_step
        )

    def begin(self, frames, streams=None):
        super().begin(frames, streams)
        self.oracle.begin(np.asarray(frames), self.listed(streams))

    def append(self, actions, rewards, terminated, truncated, frames, streams=None):
        super().append(actions, rewards, terminated, truncated, frames, streams)
        step = (actions, rewards, terminated, truncated, np.asarray(frames))
        self.oracle.append(*step, self.listed(streams))

    def listed(self, streams) -> list[int]:
        return list(range(self.num_streams)) if streams is None else np.asarray(streams).tolist()
