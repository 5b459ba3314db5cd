"""``framestow inspect``: print what a saved replay memory contains."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from framestow.cli.printing import ProgressDisplay, print_json, print_line
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import ObservationSpec
from framestow.interface import plural
from framestow.replay.eviction.byte_amounts import format_bytes
from framestow.replay.reports.facts import Fact, shown_in
from framestow.replay.reports.inspection import OF_A_LABEL, Inspection, LabelInspection
from framestow.replay.reports.memory_report import describe_ratios
from framestow.replay.settings.action_spec import ActionSpec

NOTHING = "-"  # shown where a label has no value
MAX_COLUMNS = 3  # labels side by side in 80 characters


def show_inspection(inspection: Inspection, console: Console) -> None:
    """Print the settings of the memory, its contents per label, and its bytes per kind of file."""
    for line in _header_lines(inspection):
        print_line(console, line)
    for table in _labels_table(inspection.labels), _bytes_table(inspection):
        console.print()
        console.print(table)
    for line in describe_ratios(inspection.frames_by_files, inspection.stacked_pairs_by_files):
        print_line(console, line)
    if inspection.left_over:
        size = format_bytes(sum(inspection.left_over.values()))
        extra = f"{size} in {', '.join(inspection.left_over)} belong to no generation"
        print_line(
            console, f"{extra}: a crash left them, or a process writes them now, or they are not framestow's", "yellow"
        )


def show_shards(shards: Sequence[Inspection], console: Console) -> None:
    """Print the shards of a distributed memory, and which of them is shown below."""
    first, second = (shard.folder for shard in shards[:2])
    table = _table("shard", "transitions", "files")
    for shard in shards:
        table.add_row(shard.folder.name, f"{shard.transitions:,}", format_bytes(shard.nbytes))
    total = sum(shard.nbytes for shard in shards)
    table.add_row("total", f"{sum(shard.transitions for shard in shards):,}", format_bytes(total), style="bold")
    print_line(console, f"{first.parent}")
    print_line(console, f"memory of {plural(len(shards), 'shard')}")
    console.print()
    console.print(table)
    print_line(console, f"below: {first.name}; for another one: framestow inspect {shlex.quote(str(second))}")
    console.print()


def _header_lines(inspection: Inspection) -> Iterator[str]:
    settings = inspection.settings
    kept = [generation for generation in inspection.kept_generations if generation != inspection.generation]
    yield f"{inspection.folder}"
    yield (
        f"replay memory, format version {inspection.version}, "
        f"generation {inspection.generation}, written {inspection.written:%Y-%m-%d %H:%M:%S}"
    )
    if kept:
        yield f"other generations in this folder: {', '.join(map(str, kept))}"
    is_padded = settings.layout.takes_frames and settings.stack > 1  # others come back as they were given
    padding = f", padded with {settings.stack_padding.replace('_', ' ')}" if is_padded else ""
    yield f"{_describe_frames(settings.frame)} · stack {settings.stack}{padding} · {_describe_actions(settings.action)}"
    yield (
        f"capacity {settings.capacity:,} · num_envs {settings.num_envs} · storage {settings.storage} · "
        f"discount {settings.discount:g}" + (f" · n_step {settings.n_step}" if settings.n_step > 1 else "")
    )
    if settings.extras:
        yield f"extras {settings.extras.description}"


def _describe_frames(spec: ObservationSpec) -> str:
    if spec.is_one_array:
        return f"frames {_describe_array(spec.arrays[0].frame)}"
    arrays = (
        f"{array.key} {_describe_array(array.frame) if array.has_axes else array.frame.dtype}" for array in spec.arrays
    )
    return f"frames of {', '.join(arrays)}"


def _describe_array(frame: FrameSpec) -> str:
    return f"{'x'.join(map(str, frame.shape))} {frame.dtype}{' scaled to 0-1' if frame.is_scaled else ''}"


def _describe_actions(action: ActionSpec) -> str:
    shape = "x".join(map(str, action.shape))
    if not action.is_counted:
        return f"actions {shape} {action.dtype}"
    low, high = action.widest
    return f"actions {low} to {high}" if not shape else f"actions {shape}, {low} to {high}"


def _labels_table(labels: Sequence[LabelInspection]) -> Table:
    """Return a table with one column per label; with many labels, one row per label and the main values."""
    if len(labels) <= MAX_COLUMNS:
        table = _table("", *(label.label for label in labels))
        for fact in OF_A_LABEL:
            for attribute, words in fact.numbers.items() or [("", fact.words)]:
                values = [_number(label, fact, attribute) for label in labels]
                if fact.key != "waiting" or any(values):
                    table.add_row(words, *map(_cell, values))
        return table
    shown = dict(shown_in("column", OF_A_LABEL))
    table = _table("", *shown)
    for label in labels:
        numbers = [_number(label, fact, next(iter(fact.numbers), "")) for fact in shown.values()]
        table.add_row(label.label, *map(_cell, numbers))
    return table


def _number(label: LabelInspection, fact: Fact, attribute: str) -> float | None:
    """Return the number of a label, or ``attribute`` of one with several numbers; ``None`` if there is none."""
    value = getattr(label, fact.key)
    number: float | None = value if value is None or not attribute else getattr(value, attribute)
    return number


def _bytes_table(inspection: Inspection) -> Table:
    table = _table("files", "size", "per transition")
    transitions = max(1, inspection.transitions)
    for name, size in inspection.file_bytes.items():
        table.add_row(name, format_bytes(size), f"{size / transitions:,.1f} B")
    total = inspection.nbytes
    table.add_row("total", format_bytes(total), f"{total / transitions:,.1f} B", style="bold")
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right")
    return table


def _cell(value: float | None) -> str:
    return NOTHING if value is None else shorten_number(value)


def shorten_number(value: float) -> str:
    """Format a number in at most eleven characters.

    >>> [
    ...     shorten_number(value)
    ...     for value in (0, 12.5, -3.25, 123_456, 12_345_678, 50_000_000_000)
    ... ]
    ['0', '12.5', '-3.25', '123,456', '12,345,678', '50,000 M']
    """
    if abs(value) >= 1_000_000_000:
        return f"{value / 1_000_000:,.0f} M"
    if float(value).is_integer() or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Print what a saved replay memory contains: episodes, returns and ages per game, and the size of its files.

      framestow inspect runs/Breakout-baselines-s0-20260131-174500
      framestow inspect my.memory --json

    Takes the folder of a memory (written by save() or directory=), of a run or of a checkpoint. It only reads there,
    so it works while another process is writing. It unpacks no frame; framestow view shows them. Of a distributed run
    it lists all shards, and shows the first one.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a memory, a run or a checkpoint."""

    json: bool = False
    """Print one JSON object instead of the tables."""

    def run(self, console: Console) -> int:
        """Read the memory, print its contents and return the exit code."""
        # Imported here: --help must not wait for them.
        from framestow.cli.saved_memory import find_memories  # noqa: PLC0415
        from framestow.replay.reports.inspection import inspect_memory  # noqa: PLC0415

        found = find_memories(self.folder)
        with ProgressDisplay(console, "reading the memory", is_shown=not self.json):
            shards = [inspect_memory(*one) for one in found]
        if self.json:
            content = shards[0].to_dict()
            if len(shards) > 1:
                content["shards"] = [
                    {"folder": str(one.folder), "transitions": one.transitions, "bytes": one.nbytes} for one in shards
                ]
            print_json(console, content)
            return 0
        if len(shards) > 1:
            show_shards(shards, console)
        show_inspection(shards[0], console)
        return 0
