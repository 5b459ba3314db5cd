"""Goal environments whose achieved goals encode (environment, episode, step)."""

from __future__ import annotations

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.bordered_steps import append_with_borders

NO_GOAL = -7
GOAL = FrameSpec((3,), np.dtype(np.int32))
SPACE = {"achieved_goal": GOAL, "desired_goal": GOAL, "observation": FrameSpec((2, 2))}


class GoalPlay:
    """Plays episodes of random lengths; ``lengths[env_id][episode]`` counts their steps so far.

    A tenth of the steps are borders.
    """

    def __init__(self, num_envs: int = 2, capacity: int = 1000, *, longest: int = 12, seed: int = 0, **settings):
        self.memory = ReplayMemory(capacity, SPACE, 4, **{"stack": 1, "num_envs": num_envs, "seed": 5} | settings)
        self.random, self.longest = np.random.default_rng(seed), longest
        self.borders = np.random.default_rng(seed)
        self.lengths: list[list[int]] = [[] for _ in range(num_envs)]
        self.left = [0] * num_envs

    def frames(self, env_id: int) -> dict[str, np.ndarray]:
        episode, step = len(self.lengths[env_id]) - 1, self.lengths[env_id][-1]
        return {
            "achieved_goal": np.array([[env_id, episode, step]], np.int32),
            "desired_goal": np.full((1, 3), NO_GOAL, np.int32),
            "observation": np.full((1, 2, 2), step % 256, np.uint8),
        }

    def begin(self, env_id: int, length: int) -> None:
        self.left[env_id] = length
        self.lengths[env_id].append(0)
        self.memory.begin(self.frames(env_id), [env_id])

    def play(self, num_steps: int, **extras) -> GoalPlay:
        """Step each environment ``num_steps`` times; a third each of episodes terminate, truncate or are cut."""
        for _ in range(num_steps):
            for env_id, lengths in enumerate(self.lengths):
                if not self.left[env_id]:
                    self.begin(env_id, int(self.random.integers(1, self.longest + 1)))
                self.left[env_id] -= 1
                lengths[-1] += 1
                ends, way = self.left[env_id] == 0, len(lengths) % 3
                extra = {name: values(env_id, lengths[-1]) for name, values in extras.items()}
                flags = [ends and way == 0], [ends and way == 1]
                step, border = ([0], [0.25], *flags, self.frames(env_id)), self.borders.random(1) < 0.1
                append_with_borders(self.memory, step, [env_id], border, extra)
        return self


def started_at(batch) -> np.ndarray:
    """(environment, episode, step) of each transition, ``(B, 3)``."""
    return batch.observation["achieved_goal"][:, -1]
