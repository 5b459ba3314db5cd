"""Where the bytes of a memory are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from framestow.replay.byte_amounts import format_bytes

# The others depend on settings, not on how many transitions are held.
SEALED_PARTS = ("frames", "other floats")
PARTS_THAT_GROW = (*SEALED_PARTS, "index", "steps", "priorities")


@dataclass(frozen=True)
class MemoryReport:
    """What a memory holds and what it takes; prints as a table.

    ``parts`` gives bytes in RAM by part, ``disk_bytes`` those in the files of a memory that lives in a folder.
    ``stacked_pair_bytes`` is what one transition takes where observation and next observation are both kept whole,
    ``frame_bytes`` what one uncompressed frame takes. ``frames`` gives the frames held by how they are kept,
    ``open_frames`` how many of them lie in open segments. ``frame_bytes_by_key``, where observations are dicts or
    tuples, gives the bytes in RAM of each key's frames, with their open segments and index. ``max_bytes`` is the
    memory's budget, ``None`` where it has none, and ``share_used`` how much of the room for transitions in it is taken.
    ``skipped_segments`` counts the damaged segments that were taken out (``on_damage="skip"``).

    =============  ===============================================================================================
    part           what it counts
    =============  ===============================================================================================
    frames         sealed segments; of a raw memory, frames as they came
    open segments  the segments that are being filled, and what packing and unpacking needs beside them
    index          where each segment lies
    steps          action, reward, flags and extras of each transition, and where its frames are
    priorities     what the sampler keeps of each transition, where it keeps anything
    stacks         what the policy sees now
    output pool    arrays that are kept for batches to come
    =============  ===============================================================================================

    Floats have two parts more: ``newest pixels``, and ``other floats`` for frames that are no pixels over 255.
    """

    transitions: int
    capacity: int
    parts: Mapping[str, int]
    frame_bytes: int
    stacked_pair_bytes: int
    frames: Mapping[str, int] = field(default_factory=dict)
    disk_bytes: int = 0
    max_bytes: int | None = None
    share_used: float = 0.0
    skipped_segments: int = 0
    frame_bytes_by_key: Mapping[str, int] = field(default_factory=dict)
    open_frames: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all parts in RAM."""
        return sum(self.parts.values())

    @property
    def all_bytes(self) -> int:
        """Bytes in RAM and in files together: what a budget bounds."""
        return self.nbytes + self.disk_bytes

    @property
    def bytes_per_transition(self) -> float:
        """Bytes in RAM and in files for each transition held; 0 while there is none."""
        return self.all_bytes / self.transitions if self.transitions else 0.0

    @property
    def times_smaller_than_frames(self) -> float:
        """How many times larger one uncompressed frame a transition would be."""
        return self.frame_bytes * self.transitions / self.all_bytes

    @property
    def times_smaller_than_stacked_pairs(self) -> float:
        """How many times larger two uncompressed stacks a transition would be."""
        return self.stacked_pair_bytes * self.transitions / self.all_bytes

    @property
    def sealed_frames(self) -> int:
        """Frames in sealed segments, whose size tells what later frames will take."""
        return sum(self.frames.values()) - self.open_frames

    @property
    def sealed_bytes_per_transition(self) -> float:
        """Bytes of a transition's frames once their segment is sealed; 0 while no segment is."""
        sealed_bytes = sum(self.parts.get(part, 0) for part in SEALED_PARTS) + self.disk_bytes
        sealed_share = 1 - self.open_frames / (sum(self.frames.values()) or 1)
        return sealed_bytes / (self.transitions * sealed_share) if self.transitions and sealed_share else 0.0

    @property
    def growing_bytes_per_transition(self) -> float:
        """Bytes that each further transition is expected to take, at the ratio so far; 0 while there is none."""
        if not self.transitions:
            return 0.0
        others = sum(self.parts.get(part, 0) for part in PARTS_THAT_GROW if part not in SEALED_PARTS)
        return self.sealed_bytes_per_transition + others / self.transitions

    @property
    def expected_capacity(self) -> int:
        """Transitions that the memory is expected to hold when it is full, at the ratio so far."""
        if self.max_bytes is None or not self.transitions:
            return self.capacity
        fitting = int(self.transitions / self.share_used) if self.share_used else self.capacity
        return min(self.capacity, max(fitting, self.transitions))

    @property
    def expected_bytes(self) -> int:
        """Bytes in RAM and in files that are expected when it is full, at the ratio so far."""
        more = (self.expected_capacity - self.transitions) * self.growing_bytes_per_transition
        return self.all_bytes + int(more)

    def __str__(self) -> str:
        lines = [f"{self.transitions:,} of {self.capacity:,} transitions in {format_bytes(self.all_bytes)}"]
        if self.transitions:
            lines[0] += f", {self.bytes_per_transition:,.1f} bytes each"
            lines.append(
                f"{self.times_smaller_than_frames:,.0f} times smaller than frames, "
                f"{self.times_smaller_than_stacked_pairs:,.0f} times smaller than stacked pairs"
            )
        lines += [f"{count:,} frames {how}" for how, count in self.frames.items()]
        lines += self._table()
        if self.transitions and (self.sealed_frames or not self.open_frames):
            lines.append(
                f"when full, about {self.expected_capacity:,} transitions in {format_bytes(self.expected_bytes)}"
            )
        if self.skipped_segments:
            lines.append(f"{self.skipped_segments:,} damaged segments were skipped")
        if self.max_bytes is not None:
            lines.append(f"budget {format_bytes(self.max_bytes)}")
        return "\n".join(lines)

    def _table(self) -> list[str]:
        rows = dict(self.parts) | ({"in files": self.disk_bytes} if self.disk_bytes else {})
        width = max(map(len, rows), default=0)
        whole = max(self.all_bytes, 1)
        table = [f"  {name:<{width}}  {format_bytes(size):>10}  {size / whole:>5.1%}" for name, size in rows.items()]
        if self.frame_bytes_by_key:
            width = max(map(len, self.frame_bytes_by_key))
            table.append("of which the frames of")
            table += [f"  {key:<{width}}  {format_bytes(size):>10}" for key, size in self.frame_bytes_by_key.items()]
        return table
