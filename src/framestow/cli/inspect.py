"""``framestow inspect``: what a saved memory holds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec
from framestow.replay.action_spec import ActionSpec
from framestow.replay.byte_amounts import format_bytes
from framestow.replay.inspection import Inspection, LabelInspection

NOTHING = "-"
MAX_COLUMNS = 3  # labels that stand side by side in 80 columns
FIELDS: tuple[tuple[str, str, Callable[[LabelInspection], float | None]], ...] = (
    # beside a column for each label, above a column where each has a row ("" leaves it out there), what stands in it
    ("environments", "", lambda told: told.num_envs),
    ("transitions", "transitions", lambda told: told.transitions),
    ("frames", "", lambda told: told.frames),
    ("whole episodes", "whole", lambda told: told.whole_episodes),
    ("episodes cut off", "cut", lambda told: told.cut_episodes),
    ("episodes going on", "", lambda told: told.open_episodes),
    ("return of whole ones, mean", "return", lambda told: told.returns.mean if told.returns else None),
    ("  least", "", lambda told: told.returns.least if told.returns else None),
    ("  greatest", "", lambda told: told.returns.greatest if told.returns else None),
    ("steps of whole ones, mean", "steps", lambda told: told.lengths.mean if told.lengths else None),
    ("  least", "", lambda told: told.lengths.least if told.lengths else None),
    ("  greatest", "", lambda told: told.lengths.greatest if told.lengths else None),
    ("age in steps, median", "age", lambda told: told.ages.median if told.ages else None),
    ("  oldest", "", lambda told: told.ages.oldest if told.ages else None),
)


def show_inspection(inspection: Inspection, console: Console) -> None:
    """Print what it is, what is held by game, and where the bytes are."""
    for line in _what_it_is(inspection):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    for table in _labels_table(inspection.labels), _bytes_table(inspection):
        console.print()
        console.print(table)
    for line in _ratios(inspection):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    if inspection.left_over:
        size = format_bytes(sum(inspection.left_over.values()))
        told = f"{size} in {', '.join(inspection.left_over)} belong to no commit"
        console.print(Text(f"{told}: a crash left them, or a writer is at work", "yellow"), soft_wrap=True)


def _what_it_is(inspection: Inspection) -> Iterator[str]:
    settings = inspection.settings
    kept = [generation for generation in inspection.kept_generations if generation != inspection.generation]
    yield f"{inspection.folder}"
    yield (
        f"a memory of format version {inspection.version}, "
        f"generation {inspection.generation}, written {inspection.written:%Y-%m-%d %H:%M:%S}"
        + (f"\nkept beside it: generation {', '.join(map(str, kept))}" if kept else "")
    )
    yield " · ".join(
        (
            _told_frames(settings.frame),
            f"stack {settings.stack}, padded with {settings.stack_padding.replace('_', ' ')}",
            _told_actions(settings.action),
        )
    )
    yield (
        f"capacity {settings.capacity:,} · num_envs {settings.num_envs} · storage {settings.storage} · "
        f"discount {settings.discount:g}" + (f" · n_step {settings.n_step}" if settings.n_step > 1 else "")
    )
    if settings.extras:
        yield f"extras {settings.extras.description}"


def _told_frames(spec: AnySpec) -> str:
    if isinstance(spec, FrameSpec):
        return f"frames {_told_array(spec)}"
    told = (f"{leaf.key} {_told_array(leaf.frame) if leaf.has_axes else leaf.frame.dtype}" for leaf in spec.leaves)
    return f"frames of {', '.join(told)}"


def _told_array(frame: FrameSpec) -> str:
    return f"{'x'.join(map(str, frame.shape))} {frame.dtype}{' scaled to 0-1' if frame.is_scaled else ''}"


def _told_actions(action: ActionSpec) -> str:
    shape = "x".join(map(str, action.shape))
    if not action.is_counted:
        return f"actions {shape} {action.dtype}"
    low, high = action.widest
    return f"actions {low} to {high}" if not shape else f"actions {shape}, {low} to {high}"


def _labels_table(labels: Sequence[LabelInspection]) -> Table:
    """A column for each label where that fits, otherwise a row with what matters most."""
    if len(labels) <= MAX_COLUMNS:
        table = _table("", *(told.label for told in labels))
        for name, _, told_of in FIELDS:
            table.add_row(name, *(_told(told_of(one)) for one in labels))
        return table
    shown = [(header, told_of) for _, header, told_of in FIELDS if header]
    table = _table("", *(header for header, _ in shown))
    for one in labels:
        table.add_row(one.label, *(_told(told_of(one)) for _, told_of in shown))
    return table


def _bytes_table(inspection: Inspection) -> Table:
    table = _table("in files", "bytes", "a transition")
    transitions = max(1, inspection.transitions)
    for name, size in inspection.file_bytes.items():
        table.add_row(name, format_bytes(size), f"{size / transitions:,.1f} B")
    total = inspection.nbytes
    table.add_row("all", format_bytes(total), f"{total / transitions:,.1f} B", style="bold")
    return table


def _ratios(inspection: Inspection) -> Iterator[str]:
    if inspection.transitions:
        yield (
            f"{inspection.times_smaller_than_frames:,.1f} times smaller than its frames, "
            f"{inspection.times_smaller_than_stacked_pairs:,.1f} times smaller than stacked pairs"
        )


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right")
    return table


def _told(value: float | None) -> str:
    return NOTHING if value is None else shortened(value)


def shortened(value: float) -> str:
    """Write a number in at most eleven characters.

    >>> [shortened(value) for value in (0, 12.5, -3.25, 123_456, 12_345_678, 50_000_000_000)]
    ['0', '12.5', '-3.25', '123,456', '12,345,678', '50,000 M']
    """
    if abs(value) >= 1_000_000_000:
        return f"{value / 1_000_000:,.0f} M"
    if float(value).is_integer() or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Tell what a memory on the disk holds: by game its episodes, returns and ages, and where the bytes are.

    Takes the folder of a memory (what save() wrote, or directory=), of a run or of a checkpoint. Changes nothing
    there, so it works beside whoever is writing. Draws one transition into a picture.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a memory, a run or a checkpoint."""

    filmstrip: Path | None = None
    """PNG file for the transition; None writes NAME-filmstrip.png where you are, and nothing with --json."""

    key: str = ""
    """Which array is drawn where an observation has several, such as camera or arm.0; the largest picture if empty."""

    seed: int = 0
    """Which transition is drawn; each is equally likely."""

    json: bool = False
    """Print one JSON object instead of tables."""

    def run(self, console: Console) -> int:
        """Look, print and draw; return the exit code."""
        # Help does not wait for what reads and draws.
        from framestow.cli.filmstrip import write_filmstrip  # noqa: PLC0415
        from framestow.cli.saved_memory import find_memory  # noqa: PLC0415
        from framestow.replay.inspection import draw_transition, inspect_memory  # noqa: PLC0415

        if self.seed < 0:
            raise InvalidSettingsError(f"seed is {self.seed}: it must be at least 0; give another --seed")
        found = find_memory(self.folder)
        inspection, memory = inspect_memory(found.folder, found.generation)
        picture = self._picture() if len(memory) else None
        if picture:
            drawn = draw_transition(memory, self.seed)
            write_filmstrip(picture, drawn, memory._settings.frame, inspection.label_of(drawn.env_id), self.key)
        if self.json:
            told = inspection.to_dict() | {"filmstrip": None if picture is None else str(picture)}
            print(json.dumps(told, indent=1))
            return 0
        show_inspection(inspection, console)
        if picture:
            console.print(f"a transition of it is drawn in {picture}", soft_wrap=True, highlight=False, markup=False)
        return 0

    def _picture(self) -> Path | None:
        if self.filmstrip is None and not self.json:
            return Path(f"{self.folder.resolve().name}-filmstrip.png")
        return self.filmstrip
