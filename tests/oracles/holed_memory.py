"""A memory of which random segments have left: holes in the midst of episodes, each reward the number of its step."""

from __future__ import annotations

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.episode_lists import RecordedPlay


def holed_play(stack: int = 4, num_steps: int = 1500, seed: int = 0) -> RecordedPlay:
    """Episodes of 1 to 150 steps, all of which terminate but the last, in a memory that keeps 300 of their steps."""
    rng = np.random.default_rng(seed)
    memory = ReplayMemory(300, FrameSpec((3, 2)), 6, stack=stack, retention="random", stack_padding="zeros", seed=seed)
    play = RecordedPlay(memory)
    left = 0
    for step in range(num_steps):
        if not left:
            left = int(rng.integers(1, 150))
            play.begin(rng.integers(1, 100, (1, 3, 2)).astype(np.uint8))
        left -= 1
        action, frame = [int(rng.integers(6))], rng.integers(1, 100, (1, 3, 2)).astype(np.uint8)
        play.append(action, [float(step)], [left == 0], [False], frame)
    return play
