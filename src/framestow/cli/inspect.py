"""``framestow inspect``: print what a saved replay memory contains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from framestow.cli.printing import print_json, print_line
from framestow.errors import InvalidSettingsError, MissingExtraError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec
from framestow.one_line import plural
from framestow.replay.action_spec import ActionSpec
from framestow.replay.byte_amounts import format_bytes
from framestow.replay.inspection import Inspection, LabelInspection

if TYPE_CHECKING:
    from framestow.replay.memory import ReplayMemory

NOTHING = "-"  # shown where a label has no value
WAITING = "  others wait for their return"  # row of a label whose steps wait for their n-step return
MAX_COLUMNS = 3  # labels side by side in 80 characters
FIELDS: tuple[tuple[str, str, Callable[[LabelInspection], float | None]], ...] = (
    # row name in the table with one column per label; column name in the table with one row per label ("": omitted);
    # value
    ("environments", "", lambda label: label.num_envs),
    ("transitions", "transitions", lambda label: label.transitions),
    (WAITING, "", lambda label: label.waiting),
    ("frames", "", lambda label: label.frames),
    ("whole episodes", "whole", lambda label: label.whole_episodes),
    ("cut-off episodes", "cut", lambda label: label.cut_episodes),
    ("running episodes", "", lambda label: label.open_episodes),
    ("return of whole episodes, mean", "return", lambda label: label.returns.mean if label.returns else None),
    ("  minimum", "", lambda label: label.returns.least if label.returns else None),
    ("  maximum", "", lambda label: label.returns.greatest if label.returns else None),
    ("steps of whole episodes, mean", "steps", lambda label: label.lengths.mean if label.lengths else None),
    ("  minimum", "", lambda label: label.lengths.least if label.lengths else None),
    ("  maximum", "", lambda label: label.lengths.greatest if label.lengths else None),
    ("age in steps, median", "age", lambda label: label.ages.median if label.ages else None),
    ("  oldest", "", lambda label: label.ages.oldest if label.ages else None),
)


def show_inspection(inspection: Inspection, console: Console) -> None:
    """Print the settings of the memory, its contents per label, and its bytes per kind of file."""
    for line in _header_lines(inspection):
        print_line(console, line)
    for table in _labels_table(inspection.labels), _bytes_table(inspection):
        console.print()
        console.print(table)
    for line in _ratios(inspection):
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
    print_line(console, f"below: {first.name}; for another one: framestow inspect {second}")
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
    yield " · ".join(
        (
            _describe_frames(settings.frame),
            f"stack {settings.stack}, padded with {settings.stack_padding.replace('_', ' ')}",
            _describe_actions(settings.action),
        )
    )
    yield (
        f"capacity {settings.capacity:,} · num_envs {settings.num_envs} · storage {settings.storage} · "
        f"discount {settings.discount:g}" + (f" · n_step {settings.n_step}" if settings.n_step > 1 else "")
    )
    if settings.extras:
        yield f"extras {settings.extras.description}"


def _describe_frames(spec: AnySpec) -> str:
    if isinstance(spec, FrameSpec):
        return f"frames {_describe_array(spec)}"
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
        for name, _, value_of in FIELDS:
            values = [value_of(label) for label in labels]
            if name != WAITING or any(values):
                table.add_row(name, *map(_cell, values))
        return table
    shown = [(header, value_of) for _, header, value_of in FIELDS if header]
    table = _table("", *(header for header, _ in shown))
    for label in labels:
        table.add_row(label.label, *(_cell(value_of(label)) for _, value_of in shown))
    return table


def _bytes_table(inspection: Inspection) -> Table:
    table = _table("files", "size", "per transition")
    transitions = max(1, inspection.transitions)
    for name, size in inspection.file_bytes.items():
        table.add_row(name, format_bytes(size), f"{size / transitions:,.1f} B")
    total = inspection.nbytes
    table.add_row("total", format_bytes(total), f"{total / transitions:,.1f} B", style="bold")
    return table


def _ratios(inspection: Inspection) -> Iterator[str]:
    if inspection.transitions:
        yield (
            f"{inspection.times_smaller_than_frames:,.1f} times smaller than raw frames, "
            f"{inspection.times_smaller_than_stacked_pairs:,.1f} times smaller than stacked pairs"
        )


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

    >>> [shorten_number(value) for value in (0, 12.5, -3.25, 123_456, 12_345_678, 50_000_000_000)]
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
      framestow inspect my.memory --plot charts.png --filmstrip transition.png

    Takes the folder of a memory (written by save() or directory=), of a run or of a checkpoint. It only reads there,
    so it works while another process is writing. It draws one transition into a PNG picture. Of a distributed run it
    lists all shards, and shows the first one.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a memory, a run or a checkpoint."""

    filmstrip: Path | None = None
    """PNG file for the picture. None writes NAME-filmstrip.png into the current folder; with --json, no picture."""

    plot: Path | None = None
    """PNG, SVG or PDF file for charts of bytes, returns and lengths of episodes, and ages. None draws no charts."""

    key: str = ""
    """Array to draw if an observation has several, such as camera or arm.0. Empty: the largest picture."""

    seed: int = 0
    """Seed that selects the transition to draw; each transition is equally likely."""

    json: bool = False
    """Print one JSON object instead of the tables."""

    def run(self, console: Console) -> int:
        """Read the memory, print its contents, draw the transition and return the exit code."""
        # Imported here: --help must not wait for them.
        from framestow.cli.progress_bars import ProgressDisplay  # noqa: PLC0415
        from framestow.cli.saved_memory import find_memories  # noqa: PLC0415
        from framestow.replay.inspection import inspect_memory  # noqa: PLC0415

        if self.seed < 0:
            raise InvalidSettingsError(f"seed is {self.seed}: it must be at least 0; give another --seed")
        if self.plot:
            _check_plot(self.plot)
        found = find_memories(self.folder)
        with ProgressDisplay(console, "reading the memory", is_shown=not self.json):
            inspection, memory = inspect_memory(*found[0])
            shards = [inspection, *(inspect_memory(*other)[0] for other in found[1:])]
        pictures: dict[str, Path | None] = {
            "filmstrip": self._picture() if len(memory) else None,
            "plot": self.plot,
        }
        with ProgressDisplay(console, "drawing", is_shown=not self.json):
            lacking = self._draw(pictures, inspection, memory)
        self._show(pictures, inspection, shards, console)
        for error in lacking:
            if self.filmstrip or self.plot:
                raise error
            print_line(console, f"no picture: {error}", "yellow")
        return 0

    def _draw(
        self, pictures: dict[str, Path | None], inspection: Inspection, memory: ReplayMemory
    ) -> list[MissingExtraError]:
        """Write the pictures; return the errors of those that lack a package, and set their paths to ``None``."""
        lacking = []
        for name, draw in (("filmstrip", self._draw_filmstrip), ("plot", _draw_charts)):
            path = pictures[name]
            try:
                if path:
                    draw(path, inspection, memory)
            except MissingExtraError as error:
                lacking.append(error)
                pictures[name] = None
        return lacking

    def _draw_filmstrip(self, path: Path, inspection: Inspection, memory: ReplayMemory) -> None:
        from framestow.cli.filmstrip import write_filmstrip  # noqa: PLC0415 -- needs an extra
        from framestow.replay.inspection import draw_transition  # noqa: PLC0415

        drawn = draw_transition(memory, self.seed)
        write_filmstrip(path, drawn, memory.inner.settings.frame, inspection.label_of(drawn.env_id), self.key)

    def _show(
        self, pictures: dict[str, Path | None], inspection: Inspection, shards: Sequence[Inspection], console: Console
    ) -> None:
        if self.json:
            content = inspection.to_dict() | {name: path and str(path) for name, path in pictures.items()}
            if len(shards) > 1:
                content["shards"] = [
                    {"folder": str(one.folder), "transitions": one.transitions, "bytes": one.nbytes} for one in shards
                ]
            print_json(console, content)
            return
        if len(shards) > 1:
            show_shards(shards, console)
        show_inspection(inspection, console)
        for name, shown in (("filmstrip", "picture of one transition"), ("plot", "charts")):
            if path := pictures[name]:
                print_line(console, f"{shown}: {path}")

    def _picture(self) -> Path | None:
        if self.filmstrip is None and not self.json:
            return Path(f"{self.folder.resolve().name}-filmstrip.png")
        return self.filmstrip


def _draw_charts(path: Path, inspection: Inspection, memory: ReplayMemory) -> None:
    from framestow.memory_plot import plot_memory, require_matplotlib  # noqa: PLC0415 -- slow import

    require_matplotlib("the plot of a memory")
    plot_memory(inspection, memory).savefig(path)


def _check_plot(path: Path) -> None:
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidSettingsError(f"plot is {path}: its suffix chooses the format; end it with .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise InvalidSettingsError(f"plot is {path}: the folder {path.parent} does not exist; make it first")
