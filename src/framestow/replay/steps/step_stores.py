"""Create the step store that a memory's settings ask for."""

from __future__ import annotations

from framestow.replay.eviction import RandomRetention
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.steps.block_steps import BlockSteps
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import StepSettings, StepStore


def make_step_store(
    settings: MemorySettings, segment_frames: int, seed: int | None = None, capacity: int | None = None
) -> StepStore:
    """Return the step store of a memory whose storage evicts ``segment_frames`` frames at a time.

    ``seed`` is the memory's seed; random retention spawns a separate generator from it. ``capacity``: that of the
    settings, or another one for steps that are only read.
    """
    steps = StepSettings(
        settings.capacity if capacity is None else capacity,
        settings.num_envs,
        settings.stack,
        settings.frame,
        settings.action,
        settings.discount,
        segment_frames,
        settings.extras,
        settings.n_step,
    )
    if settings.retention == "random":
        return BlockSteps(steps, RandomRetention(seed))
    return RingSteps(steps, releases_pages=settings.max_bytes is not None)
