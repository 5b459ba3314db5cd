"""Small run states, the same for the same number."""

import numpy as np
import torch

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.training.checkpoint import RunState


def run_state(agent_steps: int) -> RunState:
    memory = ReplayMemory(100, FrameSpec((6, 6)), 3, stack=2, storage="packed", seed=agent_steps)
    frames = np.random.default_rng(agent_steps).integers(0, 256, (51, 1, 6, 6), dtype=np.uint8)
    memory.begin(frames[0])
    for frame in frames[1:]:
        memory.append([1], [0.5], [False], [False], frame)
    return RunState(
        agent_steps=agent_steps,
        agent={"weights": torch.full((1_000,), float(agent_steps))},
        memory=memory,
        rest={"environment": np.arange(agent_steps), "tally": {"agent_steps": agent_steps, "best_score": None}},
    )
