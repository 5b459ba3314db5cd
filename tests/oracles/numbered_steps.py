"""Drives a memory with frames that carry (environment, episode, step), so that a mix-up shows which frame was wrong."""

from __future__ import annotations

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory

SHAPE = (2, 3)


def numbered_frame(env_id: int, episode: int, step: int) -> np.ndarray:
    """A frame (2, 3) that says where it belongs: environment, episode and step in its first row."""
    return np.array([[env_id, episode, step], [7, 7, 7]], np.uint8)


def numbered_memory(capacity: int, num_envs: int = 1, stack: int = 2, **settings) -> ReplayMemory:
    settings = {"seed": 0} | settings
    return ReplayMemory(capacity, FrameSpec(SHAPE), 256, stack=stack, num_envs=num_envs, **settings)


def play_episode(
    memory: ReplayMemory, episode: int, length: int, env_id: int = 0, *, terminated=False, truncated=False
) -> None:
    """Record one episode of ``length`` transitions; step t takes action t and ends in the frame t + 1."""
    memory.begin(numbered_frame(env_id, episode, 0)[None], [env_id])
    for step in range(length):
        is_last = step == length - 1
        frame = numbered_frame(env_id, episode, step + 1)[None]
        memory.append([step], [step], [is_last and terminated], [is_last and truncated], frame, [env_id])


def steps_of(observation: np.ndarray) -> list[int]:
    """The step numbers in a stack of numbered frames."""
    return observation[..., 0, 2].tolist()
