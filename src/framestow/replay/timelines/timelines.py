"""The timelines there are, by the retention that settings name."""

from __future__ import annotations

from framestow.replay.memory_settings import MemorySettings
from framestow.replay.timelines.ring_timeline import RingTimeline
from framestow.replay.timelines.timeline import Timeline


def make_timeline(settings: MemorySettings, segment_frames: int) -> Timeline:
    """Make the timeline of a memory whose storage lets go of ``segment_frames`` frames at once."""
    return RingTimeline(
        settings.capacity,
        settings.num_streams,
        settings.stack,
        settings.frame,
        settings.action,
        settings.discount,
        segment_frames,
    )
