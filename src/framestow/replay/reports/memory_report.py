"""Report the size of a memory: the bytes that grow with it by part, its work space, and the compression ratio."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from framestow.interface import one_line, printable
from framestow.replay.eviction.byte_amounts import format_bytes
from framestow.replay.inner_memory import InnerMemory
from framestow.replay.reports.facts import OF_A_MEMORY, lines_of, shown_in
from framestow.replay.reports.observation_report import ObservationReport

SEALED_PART = "frames"  # its size per frame predicts that of later frames
PARTS_THAT_GROW = (SEALED_PART, "index", "steps", "priorities")  # with every transition; the others are work space
LEAST_RATIO = 2  # that is printed


def describe_bytes(all_bytes: float, work_space_bytes: int, disk_bytes: int = 0, files: str = "files") -> str:
    """Return the size of a memory as every line about it says it: all bytes, and how many of them do not grow.

    >>> describe_bytes(2_200_000, 2_100_000)
    '2.1 MiB, of which 2.0 MiB work space'
    >>> describe_bytes(42_000_000, 2_100_000, 38_000_000, "files of runs/memory")
    '40.1 MiB, of which 36.2 MiB in files of runs/memory and 2.0 MiB work space'
    """
    amounts = {f"in {files}": disk_bytes, "work space": work_space_bytes}
    shares = [f"{format_bytes(amount)} {where}" for where, amount in amounts.items() if amount]
    return format_bytes(all_bytes) + (f", of which {' and '.join(shares)}" if shares else "")


def describe_ratios(to_frames: float, to_pairs: float) -> list[str]:
    """Return a line of how many times smaller a memory is than uncompressed arrays, or none below ``LEAST_RATIO``."""
    ratios = {"frames": to_frames, "stacked pairs": to_pairs}
    shown = [f"{ratio:,.0f} times smaller than {what}" for what, ratio in ratios.items() if ratio >= LEAST_RATIO]
    return [", ".join(shown)] if shown else []


@dataclass(frozen=True)
class MemoryReport:
    """Number of stored transitions and frames, and the bytes that they take; prints as a table.

    ======================  ========================================================================================
    field                   meaning
    ======================  ========================================================================================
    transitions, capacity   number of stored transitions, and their maximum
    parts                   bytes in RAM, by part (see below)
    disk_bytes              bytes in the files of a memory with a ``directory``
    frame_bytes             bytes of one uncompressed frame
    stacked_pair_bytes      bytes of one transition with both observations stored whole
    frames                  number of stored frames, by how they are stored
    open_frames             number of them in open segments
    frame_bytes_by_key      of Dict and Tuple observations: bytes in RAM of each key's frames, in open segments too, and
                            of their index
    max_bytes               the memory's budget, or None
    share_used              used share of the budget for transitions, from 0 to 1
    skipped_segments        number of damaged segments that were skipped (``on_damage="skip"``)
    skipped_transitions     number of transitions lost with them, and with damaged blocks of steps
    observations            how observations are stored, and what is unusual about them: an ``ObservationReport``
    ======================  ========================================================================================

    =============  ===============================================================================================
    part           bytes of
    =============  ===============================================================================================
    frames         sealed segments; of a raw memory, uncompressed frames
    open segments  segments that are being filled, and working memory for packing and unpacking
    index          where each segment is
    steps          action, reward, flags and extras of each transition, and the positions of its frames
    priorities     the sampler's data per transition
    stacks         the current observations
    output pool    arrays reused for coming batches
    =============  ===============================================================================================
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
    skipped_transitions: int = 0
    frame_bytes_by_key: Mapping[str, int] = field(default_factory=dict)
    open_frames: int = 0
    observations: ObservationReport | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all parts in RAM."""
        return sum(self.parts.values())

    @property
    def all_bytes(self) -> int:
        """Bytes in RAM and in files together; a budget limits them."""
        return self.nbytes + self.disk_bytes

    @property
    def bytes_per_transition(self) -> float:
        """Bytes in RAM and in files that each further transition takes, at the ratio so far; 0 for an empty memory.

        Work space is not counted: it stays as large.
        """
        if not self.transitions:
            return 0.0
        others = sum(self.parts.get(part, 0) for part in PARTS_THAT_GROW if part != SEALED_PART)
        return self.sealed_bytes_per_transition + others / self.transitions

    @property
    def work_space_bytes(self) -> int:
        """Bytes in RAM that do not grow with the memory: open segments, current observations, output arrays."""
        return sum(size for part, size in self.parts.items() if part not in PARTS_THAT_GROW)

    @property
    def growing_bytes(self) -> int:
        """Bytes in RAM and in files that grow with the memory: all but its work space."""
        return self.all_bytes - self.work_space_bytes

    @property
    def times_smaller_than_frames(self) -> float:
        """Size of one uncompressed frame, divided by ``bytes_per_transition``; 0 for an empty memory."""
        return self.frame_bytes / self.bytes_per_transition if self.transitions else 0.0

    @property
    def times_smaller_than_stacked_pairs(self) -> float:
        """Size of two uncompressed stacks, divided by ``bytes_per_transition``; 0 for an empty memory."""
        return self.stacked_pair_bytes / self.bytes_per_transition if self.transitions else 0.0

    @property
    def sealed_frames(self) -> int:
        """Number of frames in sealed segments; their size predicts the size of later frames."""
        return sum(self.frames.values()) - self.open_frames

    @property
    def sealed_bytes_per_transition(self) -> float:
        """Bytes of a transition's frames in sealed segments; 0 before the first segment is sealed."""
        sealed_bytes = self.parts.get(SEALED_PART, 0) + self.disk_bytes
        sealed_share = 1 - self.open_frames / (sum(self.frames.values()) or 1)
        return sealed_bytes / (self.transitions * sealed_share) if self.transitions and sealed_share else 0.0

    @property
    def expected_capacity(self) -> int:
        """Expected number of transitions of the full memory, at the ratio so far."""
        if self.max_bytes is None or not self.transitions:
            return self.capacity
        fitting = int(self.transitions / self.share_used) if self.share_used else self.capacity
        return min(self.capacity, max(fitting, self.transitions))

    @property
    def expected_bytes(self) -> int:
        """Expected bytes of the full memory in RAM and in files, at the ratio so far."""
        more = (self.expected_capacity - self.transitions) * self.bytes_per_transition
        return self.all_bytes + int(more)

    @property
    def _has_typical_size(self) -> bool:
        """Whether a segment is sealed; before, the memory is mostly of constant size."""
        return bool(self.transitions and (self.sealed_frames or not self.open_frames))

    def describe_bytes(self, files: str = "files") -> str:
        """Return all bytes in words, and how many of them are in ``files`` are work space, which does not grow."""
        return describe_bytes(self.all_bytes, self.work_space_bytes, self.disk_bytes, files)

    def __repr__(self) -> str:
        return one_line(self, self._describe)

    def _describe(self) -> Iterator[str]:
        yield f"{self.transitions:,} of {self.capacity:,} transitions"
        yield self.describe_bytes()
        if self._has_typical_size:
            yield f"{self.bytes_per_transition:,.1f} bytes for each further one"

    def __str__(self) -> str:
        return "\n".join(map(printable, [*self._summary(), *self._table(), *self._outlook()]))

    def _repr_html_(self) -> str:
        """Return the report as HTML, which a notebook shows."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{format_bytes(size)}</td><td>{share}</td></tr>"
            for name, size, share in self._rows()
        )
        above, below = (
            "<br>".join(escape(printable(line)) for line in lines) for lines in (self._summary(), self._outlook())
        )
        head = "<tr><th>part</th><th>size</th><th>share</th></tr>"
        return f"<div>{above}<table>{head}{rows}</table>{below}</div>"

    def _summary(self) -> list[str]:
        grows = " that does not grow" if self.work_space_bytes else ""
        lines = [f"{self.transitions:,} of {self.capacity:,} transitions", f"{self.describe_bytes()}{grows}"]
        if self._has_typical_size:
            lines.append(f"{self.bytes_per_transition:,.1f} bytes for each further one")
            lines += describe_ratios(self.times_smaller_than_frames, self.times_smaller_than_stacked_pairs)
        lines += [f"{count:,} frames {how}" for how, count in self.frames.items()]
        return lines + (self.observations.lines() if self.observations else [])

    def _outlook(self) -> list[str]:
        lines = []
        if self._has_typical_size:
            lines.append(
                f"when full, about {self.expected_capacity:,} transitions in {format_bytes(self.expected_bytes)}"
            )
        return lines + lines_of(self, OF_A_MEMORY)

    def _rows(self) -> list[tuple[str, int, str]]:
        """Return name, bytes and share of each part, those in files among them; of the work space no share."""
        growing = {part: size for part, size in self.parts.items() if part in PARTS_THAT_GROW}
        growing |= {"in files": self.disk_bytes} if self.disk_bytes else {}
        whole = max(sum(growing.values()), 1)
        constant = [(part, size, "work space") for part, size in self.parts.items() if part not in growing]
        return [(part, size, f"{size / whole:.1%}") for part, size in growing.items()] + constant

    def _table(self) -> list[str]:
        rows = self._rows()
        width = max((len(name) for name, *_ in rows), default=0)
        table = [f"  {name:<{width}}  {format_bytes(size):>10}  {share:>5}" for name, size, share in rows]
        if self.frame_bytes_by_key:
            named = {printable(key): size for key, size in self.frame_bytes_by_key.items()}
            width = max(map(len, named))
            table.append("frames, open segments and index, by key")
            table += [f"  {key:<{width}}  {format_bytes(size):>10}" for key, size in named.items()]
        return table


def report_of(memory: InnerMemory) -> MemoryReport:
    """Return the report of a memory."""
    with memory.lock:
        return MemoryReport(**{name: fact.compute(memory) for name, fact in shown_in("report", OF_A_MEMORY)})


def sum_of_reports(reports: Sequence[MemoryReport], capacity: int) -> MemoryReport:
    """Return one report of several memories of the same frames, which have ``capacity`` together."""
    numbers = {
        name: fact.combine([getattr(report, fact.key) for report in reports])
        for name, fact in shown_in("report", OF_A_MEMORY)
        if fact.combine is not None
    }
    return MemoryReport(**numbers | {"capacity": capacity})
