"""Create the timeline that a memory's settings ask for."""

from __future__ import annotations

from framestow.replay.eviction import RandomRetention
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.timelines.block_timeline import BlockTimeline
from framestow.replay.timelines.ring_timeline import RingTimeline
from framestow.replay.timelines.timeline import StepSettings, Timeline


def make_timeline(settings: MemorySettings, segment_frames: int, seed: int | None = None) -> Timeline:
    """Return the timeline of a memory whose storage evicts ``segment_frames`` frames at a time.

    ``seed`` is the memory's seed; random retention spawns a separate generator from it.
    """
    steps = StepSettings(
        settings.capacity,
        settings.num_envs,
        settings.stack,
        settings.frame.leaf_frames[0],  # the memory checks the frames of other leaves before
        settings.action,
        settings.discount,
        segment_frames,
        settings.extras,
        settings.n_step,
    )
    if settings.retention == "random":
        return BlockTimeline(steps, RandomRetention(seed))
    return RingTimeline(steps, releases_pages=settings.max_bytes is not None)
