"""A memory and the list oracle with the same random steps."""

from __future__ import annotations

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.list_memory import ListMemory

SHAPE = (20, 30)
NUM_ENVS = 2
DISCOUNT = 0.9


def recorded(
    num_steps: int, *, capacity: int = 40, seed: int = 1, stack_padding: str = "first_frame", **settings
) -> tuple[ReplayMemory, ListMemory]:
    settings = {
        "num_envs": NUM_ENVS,
        "discount": DISCOUNT,
        "seed": seed,
        "stack_padding": stack_padding,
    } | settings
    memory = ReplayMemory(capacity, FrameSpec(SHAPE), 4, **{"stack": 4} | settings)
    oracle = ListMemory(capacity, NUM_ENVS, 4, DISCOUNT, stack_padding)
    play_on(memory, oracle, num_steps, seed)
    return memory, oracle


def play_on(memory: ReplayMemory, oracle: ListMemory, num_steps: int, seed: int) -> None:
    """Record ``num_steps`` steps on both environments; open episodes continue."""
    random = np.random.default_rng(seed)
    for _ in range(num_steps):
        closed = [env_id for env_id in range(NUM_ENVS) if not oracle.is_open[env_id]]
        if closed:
            first = random.integers(0, 3, (len(closed), *SHAPE), dtype=np.uint8)
            memory.begin(first, closed)
            oracle.begin(first, closed)
        terminated, truncated = random.random((2, NUM_ENVS)) < 0.1
        frames = random.integers(0, 3, (NUM_ENVS, *SHAPE), dtype=np.uint8)
        step = (
            random.integers(0, 4, NUM_ENVS),
            random.normal(size=NUM_ENVS),
            terminated,
            truncated,
            frames,
            list(range(NUM_ENVS)),
        )
        memory.append(*step)
        oracle.append(*step)
