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
            self.capacity, self.num_envs, self.stack, self.inner.settings.discount, n_step=self.inner.settings.n_step
        )

    def begin(self, frames, env_ids=None):
        super().begin(frames, env_ids)
        self.oracle.begin(np.asarray(frames), self.listed(env_ids))

    def append(self, actions, rewards, terminated, truncated, frames, env_ids=None):
        super().append(actions, rewards, terminated, truncated, frames, env_ids)
        step = (actions, rewards, terminated, truncated, np.asarray(frames))
        self.oracle.append(*step, self.listed(env_ids))

    def listed(self, env_ids) -> list[int]:
        return list(range(self.num_envs)) if env_ids is None else np.asarray(env_ids).tolist()
