"""Agents of any recipe and random batches for them."""

from typing import Any

import numpy as np

from framestow.agents.dqn import DQN
from framestow.agents.settings import AgentSettings
from framestow.replay.reading.batch import Batch
from framestow.training.settings import Settings

TINY = (2, 12, 12)
ATARI = (4, 84, 84)
NUM_ACTIONS = 3


def agent_settings(recipe: str = "dqn", **changes: Any) -> AgentSettings:
    return Settings("Pong", recipe=recipe, **changes).agent()


def build_agent(recipe: str = "dqn", seed: int = 0, shape: tuple[int, int, int] = TINY, **changes: Any) -> DQN:
    return DQN(shape, NUM_ACTIONS, agent_settings(recipe, **changes), device="cpu", seed=seed)


def random_batch(
    seed: int, shape: tuple[int, int, int] = TINY, size: int = 16, reward: float | None = None, discount: float = 0.9
) -> Batch:
    """Return transitions with a third of them terminated, and weights that differ."""
    generator = np.random.default_rng(seed)
    windows = generator.integers(0, 256, (size, shape[0] + 1, *shape[1:]), dtype=np.uint8)
    rewards = generator.normal(size=size) if reward is None else np.full(size, reward)
    terminated = np.arange(size) % 3 == 2 if discount else np.zeros(size, bool)
    return Batch(
        observation=windows[:, :-1],
        action=generator.integers(NUM_ACTIONS, size=size),
        reward=rewards.astype(np.float32),
        discount=np.where(terminated, 0, discount).astype(np.float32),
        next_observation=windows[:, 1:],
        index=np.arange(size),
        weight=generator.uniform(0.2, 1.0, size).astype(np.float32),
        terminated=terminated,
        truncated=np.zeros(size, bool),
    )
