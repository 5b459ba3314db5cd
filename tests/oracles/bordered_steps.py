"""Store steps whose next observations begin a run: their frames are not the observation's, shifted by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import BY_SETTING
from framestow.replay.added_steps import RunStarts
from framestow.replay.memory import ReplayMemory
from framestow.replay.step_checks import Step


def append_with_borders(
    memory: Any,
    step: tuple[Any, ...],
    env_ids: list[int],
    borders: np.ndarray,
    extras: dict[str, np.ndarray] | None = None,
) -> None:
    """Store what ``append`` takes. ``borders``: which next observations begin a run; a run is padded as an episode."""
    target = getattr(memory, "inner", memory)  # a shard's writer has no inner door
    starts = RunStarts(np.where(borders, BY_SETTING, 0).astype(np.uint8), None)
    *fields, frames = step
    target.store_step(Step(env_ids, *fields, target.settings.frame.flatten(frames), extras), starts)


def bordered_memory(num_borders: int, **settings: Any) -> ReplayMemory:
    """Return a memory of one terminated episode of 8 steps; the next observations of the first are no shifted ones."""
    memory = ReplayMemory(20, FrameSpec((5, 3)), 6, stack=3, **settings)
    frames = np.random.default_rng(0).integers(1, 100, (9, 1, 5, 3)).astype(np.uint8)
    memory.begin(frames[0])
    for step in range(8):
        fields = [step % 6], [1.0], [step == 7], [False], frames[step + 1]
        append_with_borders(memory, fields, [0], np.array([step < num_borders]))
    return memory
