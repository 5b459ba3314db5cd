"""What becomes of a memory's segments that cannot be read."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from framestow.argument_checks import one_of
from framestow.errors import DamagedSegmentError
from framestow.replay.timelines.timeline import Timeline
from framestow.storage.frame_storage import FrameStorage

OnDamage: TypeAlias = Literal["raise", "skip"]
"""``"raise"``: whoever asks for a damaged segment gets the error. ``"skip"``: the segment leaves the memory, is
counted, and is never asked for again."""


class DamagedSegments:
    """Decides by ``on_damage``, and counts what was skipped. Hold the memory's lock for each call.

    Transitions that look at a frame of a skipped segment are no more drawn; all others are as likely as each other.
    """

    def __init__(self, on_damage: OnDamage, timeline: Timeline, storage: FrameStorage) -> None:
        one_of("on_damage", on_damage, get_args(OnDamage), "take 'raise' to hear of damage")
        self.are_skipped = on_damage == "skip"
        self._timeline, self._storage = timeline, storage
        self._segments: set[tuple[int, int]] = set()
        self.num_transitions = 0
        """Transitions that were lost with skipped segments, or with damaged blocks of steps."""

    @property
    def num_segments(self) -> int:
        """Segments that were skipped."""
        return len(self._segments)

    def skip(self, error: DamagedSegmentError) -> None:
        """Let the segment leave, or raise ``error`` where damage is to be heard of."""
        if not self.are_skipped:
            raise error
        length = self._storage.frames_per_segment
        first, before = error.segment * length, (error.segment + 1) * length
        self.num_transitions += self._timeline.lose(error.stream, first, before)
        self._storage.evict(error.stream, before, first)
        self._segments.add((error.stream, error.segment))
