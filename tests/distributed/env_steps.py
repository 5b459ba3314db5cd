"""Numbered steps of several environments: a frame says which one it is, so a wrong frame is named."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow import FrameSpec, ReplayMemory
from framestow.distributed import ShardedReplay, start_local_shards

SHAPE, STACK, DISCOUNT = (6, 5), 3, 0.5
EPISODE = 13  # steps; environments end theirs at different times


def frame_of(env_id: int, number: int) -> np.ndarray:
    """Return frame ``number`` of an environment: noise that changes in one row from frame to frame."""
    frame = np.random.default_rng([env_id, number // 16]).integers(0, 256, SHAPE, dtype=np.uint8)
    frame[number % SHAPE[0]] = (env_id, number % 256, number // 256, 7, 7)
    return frame


class NumberedSteps:
    """Plays environments step by step into a memory. The reward of a step is ``1000 * env_id + its number``."""

    def __init__(self, num_envs: int = 1) -> None:
        self.num_steps = [0] * num_envs
        self._num_frames = [0] * num_envs
        self._is_open = [False] * num_envs

    def play(self, memory: Any, env_id: int, num_steps: int, number: int | None = None) -> None:
        """Store ``num_steps`` steps of one environment, which the memory calls ``number``."""
        number = env_id if number is None else number
        for _ in range(num_steps):
            step = self.num_steps[env_id]
            if not self._is_open[env_id]:
                memory.begin(self._next_frame(env_id), [number])
            ends = (step + 5 * env_id) % EPISODE == EPISODE - 1
            kind = (step // EPISODE) % 2 == 0
            of_step = [step % 4], [1000.0 * env_id + step], [ends and kind], [ends and not kind]
            memory.append(*of_step, self._next_frame(env_id), [number])
            self._is_open[env_id] = not ends
            self.num_steps[env_id] += 1

    def _next_frame(self, env_id: int) -> np.ndarray:
        self._num_frames[env_id] += 1
        return frame_of(env_id, self._num_frames[env_id] - 1)[None]


def arguments(**settings: Any) -> dict[str, Any]:
    """Return the arguments that a memory and a replay share."""
    given = {"capacity": 400, "observation_space": FrameSpec(SHAPE), "action_space": 4}
    return given | {"stack": STACK, "discount": DISCOUNT, "seed": 3} | settings


def local_replay(**settings: Any) -> ShardedReplay:
    """Return a replay with shards in this process."""
    return ShardedReplay(start=start_local_shards, **arguments(**settings))


def priorities_in(stored: ReplayMemory) -> np.ndarray:
    """Return p^alpha of each sampleable transition, in the order of their indices."""
    stored.inner.parts.notified_sampler.total_mass()  # the sampler takes note of new transitions
    return stored.sampler.state(stored.inner.steps)["weights"]


def memory(**settings: Any) -> ReplayMemory:
    """Return a memory of the same steps."""
    return ReplayMemory(**arguments(**settings))
