"""Create the step store that a memory's settings ask for, and count changes of its blocks."""

from __future__ import annotations

from typing import TypeAlias

from framestow.replay.eviction.retention import RandomRetention
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.steps.block_steps import BlockSteps
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import Indices, StepSettings

AnySteps: TypeAlias = RingSteps | BlockSteps


def step_settings(settings: MemorySettings, segment_frames: int, capacity: int | None = None) -> StepSettings:
    """Return the settings of the steps of a memory whose storage evicts ``segment_frames`` frames at a time.

    ``capacity``: that of the settings, or another one for steps that are only read.
    """
    return StepSettings(
        settings.capacity if capacity is None else capacity,
        settings.num_envs,
        settings.stack,
        settings.action,
        settings.discount,
        segment_frames,
        settings.extras,
        settings.n_step,
        releases_pages=settings.max_bytes is not None,
    )


def make_step_store(
    settings: MemorySettings, segment_frames: int, seed: int | None = None, capacity: int | None = None
) -> AnySteps:
    """Return the step store of these settings.

    ``seed`` is the memory's seed; random retention spawns a separate generator from it.
    """
    steps = step_settings(settings, segment_frames, capacity)
    return BlockSteps(steps, RandomRetention(seed)) if settings.retention == "random" else RingSteps(steps)


FEW_VERSIONS = 64


def raise_versions(steps: AnySteps, indices: Indices) -> None:
    """Raise the versions of the blocks that have these stored steps, so that the next save writes them again."""
    versions = steps.block_versions
    for key in steps.blocks_of(indices):
        versions[key] = versions.get(key, 0) + 1
    if len(versions) > 2 * steps.num_sealed + FEW_VERSIONS:  # most are of evicted blocks
        for key in versions.keys() - set(steps.list_sealed_steps()):
            del versions[key]  # a block that is not sealed yet is in no log
