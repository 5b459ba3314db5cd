"""Store steps whose next observations begin a stretch: their frames are not the observation's, shifted by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.step_checks import APPEND


def append_with_borders(
    memory: Any,
    step: tuple[Any, ...],
    env_ids: list[int],
    borders: np.ndarray,
    extras: dict[str, np.ndarray] | None = None,
) -> None:
    """Store what ``append`` takes. ``borders``: which next observations begin a stretch, padded as an episode is."""
    inner = getattr(memory, "inner", memory)  # a shard's writer has no inner door
    planner, settings = getattr(inner, "core", None) or inner.planner, inner.settings
    *fields, frames = step
    stacks = []
    for array, current, part in zip(
        settings.frame.arrays, planner.stacks(), settings.frame.flatten(frames), strict=True
    ):
        newest = array.as_stored(np.asarray(part))[:, None]
        older = current[env_ids][:, 1:].copy()
        older[borders] = 0 if settings.stack_padding == "zeros" else newest[borders]
        stacks.append(np.concatenate([older, newest], axis=1))
    whole = env_ids, *fields, settings.layout.flatten(settings.layout.join(stacks)), extras, True
    if inner is memory:
        memory.store(planner.plan_append, APPEND, whole)
    else:
        inner.append(whole)


def bordered_memory(num_borders: int, **settings: Any) -> ReplayMemory:
    """Return a memory of one terminated episode of 8 steps; the next observations of the first are no shifted ones."""
    memory = ReplayMemory(20, FrameSpec((5, 3)), 6, stack=3, **settings)
    frames = np.random.default_rng(0).integers(1, 100, (9, 1, 5, 3)).astype(np.uint8)
    memory.begin(frames[0])
    for step in range(8):
        fields = [step % 6], [1.0], [step == 7], [False], frames[step + 1]
        append_with_borders(memory, fields, [0], np.array([step < num_borders]))
    return memory
