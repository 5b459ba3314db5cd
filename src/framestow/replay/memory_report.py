"""Where the bytes of a memory are."""

from __future__ import annotations

from dataclasses import dataclass, field

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def format_bytes(num_bytes: float) -> str:
    """Bytes for people, in binary units.

    >>> format_bytes(7056), format_bytes(3 * 2**30)
    ('6.9 KiB', '3.0 GiB')
    """
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes:.0f} B"


@dataclass(frozen=True)
class MemoryReport:
    """What a memory holds and what it takes; prints as a table.

    ``parts`` gives bytes by part. ``stacked_pair_bytes`` is what one transition takes where observation and next
    observation are both kept whole, ``frame_bytes`` what one uncompressed frame takes. ``frames`` gives the frames held
    by how they are kept.
    """

    transitions: int
    capacity: int
    parts: dict[str, int]
    frame_bytes: int
    stacked_pair_bytes: int
    frames: dict[str, int] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(self.parts.values())

    @property
    def bytes_per_transition(self) -> float:
        """Bytes of all parts for each transition held; 0 while there is none."""
        return self.nbytes / self.transitions if self.transitions else 0.0

    @property
    def times_smaller_than_frames(self) -> float:
        """How many times larger one uncompressed frame a transition would be."""
        return self.frame_bytes * self.transitions / self.nbytes

    @property
    def times_smaller_than_stacked_pairs(self) -> float:
        """How many times larger two uncompressed stacks a transition would be."""
        return self.stacked_pair_bytes * self.transitions / self.nbytes

    def __str__(self) -> str:
        lines = [f"{self.transitions:,} of {self.capacity:,} transitions in {format_bytes(self.nbytes)}"]
        if self.transitions:
            lines[0] += f", {self.bytes_per_transition:,.1f} bytes each"
            lines.append(
                f"{self.times_smaller_than_frames:,.0f} times smaller than uncompressed frames, "
                f"{self.times_smaller_than_stacked_pairs:,.0f} times smaller than stacked pairs"
            )
        lines += [f"{count:,} frames {how}" for how, count in self.frames.items()]
        width = max(len(name) for name in self.parts)
        lines += [f"  {name:<{width}}  {format_bytes(size):>10}" for name, size in self.parts.items()]
        return "\n".join(lines)
