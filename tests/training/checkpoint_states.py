"""Small run states, the same for the same number."""

from pathlib import Path

import numpy as np
import torch

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.training.checkpoint import RunState, load_memory, read_agent, read_agent_steps, read_rest

NUM_STEPS = 700  # of the memory: more than two segments


def run_state(agent_steps: int, store: Path | None = None) -> RunState:
    """Return a state whose memory is full with 500 transitions; in the files of ``store`` if it is given."""
    on_disk = {"directory": store, "flush_every": None} if store else {}
    memory = ReplayMemory(500, FrameSpec((6, 6)), 3, stack=2, storage="packed", seed=agent_steps, **on_disk)
    memory.begin(_frames(agent_steps, 1)[0])
    return _state(agent_steps, _with_steps(memory, agent_steps))


def grown(state: RunState, agent_steps: int) -> RunState:
    """Return a later state of the same run, with more steps in its memory."""
    return _state(agent_steps, _with_steps(state.memory, agent_steps))


def read_checkpoint(checkpoint: Path, memory_on_disk: bool = False) -> RunState:
    """Return the state that a checkpoint has."""
    memory = load_memory(checkpoint, memory_on_disk)
    return RunState(read_agent_steps(checkpoint), read_agent(checkpoint), memory, read_rest(checkpoint))


def _state(agent_steps: int, memory: ReplayMemory) -> RunState:
    return RunState(
        agent_steps=agent_steps,
        agent={"weights": torch.full((1_000,), float(agent_steps))},
        memory=memory,
        rest={"environment": np.arange(agent_steps), "tally": {"agent_steps": agent_steps, "best_score": None}},
    )


def _with_steps(memory: ReplayMemory, seed: int) -> ReplayMemory:
    for frame in _frames(seed, NUM_STEPS):
        memory.append([1], [0.5], [False], [False], frame)
    return memory


def _frames(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 1, 6, 6), dtype=np.uint8)
