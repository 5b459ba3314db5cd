"""The numbers of a memory, each defined once: its name and words, how it is computed, and where it is shown.

A *fact* is one row of ``OF_A_MEMORY``, or of ``OF_A_STORE`` and ``OF_A_LABEL`` in ``inspection.py``. ``MemoryReport``,
``framestow inspect``, the viewer, ``progress.csv``, TensorBoard and the page of ``framestow report`` loop over the
rows. So a new number is a row, and a field of the class that has it. Numbers of a training run stand with the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from framestow.replay.eviction.byte_amounts import format_bytes
from framestow.replay.reports.observation_report import ObservationReport

Home = Literal["report", "line", "inspect", "column", "view", "tile", "progress", "chart", "curves"]
"""Where a fact is shown. ``Fact.homes`` has its name or its words there:

============  ============================================================================================
home          name or words
============  ============================================================================================
``report``    the field of ``MemoryReport``
``line``      a line of a printed report, with ``{}`` for the number; left out where that is 0 or ``None``
``inspect``   the key in the JSON of ``framestow inspect``
``column``    its column in ``framestow inspect``, where each label has a row
``view``      the key in the viewer's resource ``memory``
``tile``      the words below the number in the viewer; ``{key}`` is another number of ``view``
``progress``  the column of ``progress.csv``
``chart``     the title of its chart on the page of ``framestow report``; needs ``progress``
``curves``    the tag in TensorBoard
============  ============================================================================================
"""


@dataclass(frozen=True)
class Fact:
    """A number of a memory.

    Arguments:
        key: The field or property of ``MemoryReport``, ``Inspection`` or ``LabelInspection`` that has it.
        words: What it counts, behind the unit.
        homes: Where it is shown, and its name or words there.
        of: Computes it; ``None`` for a property, which is computed from other facts.
        combine: Returns the number of several memories together from those of each; ``None`` for a property.
        unit: ``"bytes"``, or nothing for a count.
        numbers: Of a fact with several numbers, the words of each by its attribute.
    """

    key: str
    words: str
    homes: Mapping[Home, str]
    of: Callable[[Any], Any] | None = None
    combine: Callable[[Sequence[Any]], Any] | None = None
    unit: Literal["", "bytes"] = ""
    numbers: Mapping[str, str] = field(default_factory=dict)

    def compute(self, source: Any) -> Any:
        """Return the number of ``source``, which has what ``of`` needs; of a property, its attribute ``key``."""
        return getattr(source, self.key) if self.of is None else self.of(source)


def shown_in(home: Home, *tables: Sequence[Fact]) -> Iterator[tuple[str, Fact]]:
    """Yield the facts of ``tables`` that are shown in ``home``, each with its name or words there."""
    for table in tables:
        for fact in table:
            if home in fact.homes:
                yield fact.homes[home], fact


def lines_of(source: Any, table: Sequence[Fact]) -> list[str]:
    """Return the lines of a printed report for the numbers of ``source`` that are neither 0 nor ``None``."""
    lines = []
    for words, fact in shown_in("line", table):
        number = getattr(source, fact.key)
        if number:
            lines.append(words.format(format_bytes(number) if fact.unit == "bytes" else f"{number:,}"))
    return lines


def add_by_key(numbers: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums by key; a memory that lacks a key has 0 of it.

    >>> add_by_key([{"packed": 3}, {"packed": 4, "raw": 1}])
    {'packed': 7, 'raw': 1}
    """
    total: Counter[str] = Counter()
    for each in numbers:
        total.update(each)
    return dict(total)


def same(numbers: Sequence[Any]) -> Any:
    """Return what all memories have alike."""
    return numbers[0]


# Functions of a memory in use (``InnerMemory``), called under its lock. A training calls them every few seconds, so
# none reads steps or frames: each takes microseconds, however large the memory is.
OF_A_MEMORY = (
    Fact(
        "transitions",
        "transitions",
        {
            "report": "transitions",
            "inspect": "transitions",
            "view": "transitions",
            "tile": "transitions, of {capacity} at most",
            "progress": "transitions",
            "curves": "memory/transitions",
        },
        lambda memory: len(memory.steps),
        sum,
    ),
    Fact(
        "capacity",
        "transitions at most",
        {"report": "capacity", "view": "capacity"},
        lambda memory: memory.settings.capacity,
        sum,
    ),
    Fact("parts", "in RAM, by part", {"report": "parts"}, lambda memory: memory.bytes_by_part, add_by_key, "bytes"),
    Fact(
        "frame_bytes",
        "of an uncompressed frame",
        {"report": "frame_bytes"},
        lambda memory: memory.settings.frame.nbytes,
        same,
        "bytes",
    ),
    Fact(
        "stacked_pair_bytes",
        "of two uncompressed observations",
        {"report": "stacked_pair_bytes"},
        lambda memory: 2 * memory.settings.stack * memory.settings.frame.nbytes,
        same,
        "bytes",
    ),
    Fact(
        "frames",
        "frames, by how they are stored",
        {"report": "frames"},
        lambda memory: memory.frames.num_frames,
        add_by_key,
    ),
    Fact("disk_bytes", "in files", {"report": "disk_bytes"}, lambda memory: memory.parts.disk_bytes, sum, "bytes"),
    Fact(
        "skipped_segments",
        "damaged segments that were skipped",
        {"report": "skipped_segments", "line": "{} damaged segments were skipped"},
        lambda memory: memory.parts.damage.num_segments,
        sum,
    ),
    Fact(
        "skipped_transitions",
        "transitions lost with damaged segments and blocks of steps",
        {
            "report": "skipped_transitions",
            "line": "{} transitions are lost with damaged segments and blocks of steps",
            "view": "lost",
        },
        lambda memory: memory.parts.damage.num_transitions,
        sum,
    ),
    Fact(
        "max_bytes",
        "that the memory may take",
        {"report": "max_bytes", "line": "budget {}"},
        lambda memory: memory.settings.max_bytes,
        lambda _: None,
        "bytes",
    ),
    Fact(
        "share_used",
        "used share of the budget for transitions",
        {"report": "share_used"},
        lambda memory: memory.parts.budget.share_used(memory.core),
        lambda _: 0.0,
    ),
    Fact(
        "frame_bytes_by_key",
        "in RAM of the frames of each key",
        {"report": "frame_bytes_by_key"},
        lambda memory: memory.parts.frame_bytes_by_key,
        add_by_key,
        "bytes",
    ),
    Fact(
        "open_frames",
        "frames in open segments",
        {"report": "open_frames"},
        lambda memory: memory.parts.open_frames,
        sum,
    ),
    Fact(
        "observations",
        "how observations are stored",
        {"report": "observations"},
        lambda memory: memory.watch.report(),
        ObservationReport.of_all,
    ),
    Fact(
        "nbytes",
        "of the replay memory in RAM",
        {"progress": "memory_bytes", "chart": "Memory", "curves": "memory/bytes"},
        unit="bytes",
    ),
    Fact(
        "growing_bytes",
        "in RAM and files without work space",
        {"view": "bytes", "tile": "in RAM and files"},
        unit="bytes",
    ),
)
