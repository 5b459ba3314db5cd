"""The timelines there are, by the retention that settings name."""

from __future__ import annotations

from framestow.replay.eviction import RandomRetention
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.timelines.block_timeline import BlockTimeline
from framestow.replay.timelines.ring_timeline import RingTimeline
from framestow.replay.timelines.timeline import StepSettings, Timeline


def make_timeline(settings: MemorySettings, segment_frames: int, seed: int | None = None) -> Timeline:
    """Make the timeline of a memory whose storage lets go of ``segment_frames`` frames at once.

    ``seed``: the memory's; who leaves at random is drawn from it, by a generator of its own.
    """
    steps = StepSettings(
        settings.capacity,
        settings.num_envs,
        settings.stack,
        settings.frame.leaf_frames[0],  # those of other leaves are looked at before it is asked
        settings.action,
        settings.discount,
        segment_frames,
        settings.extras,
        settings.n_step,
    )
    if settings.retention == "random":
        return BlockTimeline(steps, RandomRetention(seed))
    return RingTimeline(steps, gives_pages_back=settings.max_bytes is not None)
