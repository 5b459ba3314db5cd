"""Show the figures: a table for the terminal and a plot of bytes against time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from framestow.benchmarking.libraries import Library
from framestow.benchmarking.measurement import BenchFigures, SystemFigures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox


def table(figures: BenchFigures, missing: Iterable[Library] = ()) -> Group:
    """Return a table of all systems, then their settings, what was left out, and how to install missing libraries.

    The table fits into 80 columns.
    """
    grid = Table(title=_title(figures), title_justify="left", box=None, padding=(0, 0, 0, 1), pad_edge=False)
    grid.add_column("", overflow="fold")
    for heading in ("stored", "bytes", "× ours", "sample", "× ours", "× bare", "append"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for system in (figures.bare_copy, *figures.systems):
        grid.add_row(*_cells(figures, system), style="bold" if system is figures.systems[0] else None)
    return Group(grid, *_notes(figures, missing))


def _title(figures: BenchFigures) -> str:
    shape = "x".join(map(str, figures.frame_shape))
    threads = "" if figures.threads == 1 else f", framestow on {figures.threads} threads"
    return (
        f"{figures.game}, frames {shape}, stacks of {figures.stack}: transitions stored, bytes each, "
        f"µs for sample({figures.batch_size}), µs to append a step{threads}"
    )


def _cells(figures: BenchFigures, system: SystemFigures) -> list[str]:
    return [
        system.name,
        f"{system.transitions:,}",
        f"{system.bytes_per_transition:,.0f}",
        f"{figures.bytes_of_framestow(system):,.1f}",
        f"{system.sample_us:,.0f}",
        f"{figures.sample_of_framestow(system):.2f}",
        f"{figures.sample_of_bare_copy(system):.2f}",
        "" if system.append_us is None else f"{system.append_us:,.1f}",
    ]


def _notes(figures: BenchFigures, missing: Iterable[Library]) -> Iterable[Text]:
    yield Text(f"\nwith 8 environments, framestow appends a step in {figures.append_us_of_8_envs:.1f} µs")
    for system in figures.systems:
        if system.setting:
            yield Text(system.description)
    for left_out in figures.left_out:
        yield Text(f"left out: {left_out.name}: {left_out.reason}", style="yellow")
    for library in missing:
        yield Text(f"not installed: {library.key}; {library.install_command}", style="yellow")


# Offsets of a label from its point, in points: to the right first, then around it, then further away.
LABEL_OFFSETS = tuple(
    (distance * right, distance * up)
    for distance in (9, 13, 18, 24, 30, 44)
    for right, up in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
)


@dataclass(frozen=True)
class Colours:
    """The colours of a plot: points and labels of each kind of system, text and axes, grid, background."""

    ours: str
    theirs: str
    bare: str
    ink: str
    grid: str
    ground: str


LIGHT = Colours("#c8372d", "#33658a", "#777777", "#222222", "#e4e4e4", "#ffffff")
DARK = Colours("#ff7b72", "#79c0ff", "#9198a1", "#e6edf3", "#30363d", "#0d1117")


def write_plot(games: Sequence[BenchFigures], path: Path, colours: Colours = LIGHT, description: str = "") -> Path:
    """Write ``plot`` of the games to ``path`` as a PNG, 1200 pixels wide for one game; return ``path``.

    Creates missing folders. Raises ``OSError`` if the file cannot be written. ``description`` is text in the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    plot(games, colours).savefig(path, metadata={"Description": description})
    return path


def plot(games: Sequence[BenchFigures], colours: Colours = LIGHT) -> Figure:
    """Plot bytes per transition against µs per batch, both on a log scale: lower left is better.

    Each game has a chart of its own. All have the same scales, so that they can be compared.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 -- half a second that only a plot needs

    columns = 1 if len(games) == 1 else 2
    rows = -(-len(games) // columns)
    figure = Figure(figsize=(6 * columns, 5 * rows), dpi=200, layout="constrained", facecolor=colours.ground)
    charts = figure.subplots(rows, columns, squeeze=False).flat
    every = [system for game in games for system in (game.bare_copy, *game.systems)]
    for game in games:
        _draw(figure, next(charts), game, every, colours)
    for unused in charts:
        unused.set_visible(False)
    return figure


def _draw(figure: Figure, axes: Axes, figures: BenchFigures, every: Sequence[SystemFigures], colours: Colours) -> None:
    _set_axes(axes, figures, every, colours)
    axes.axhline(figures.bare_copy.sample_us, color=colours.bare, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    points = [(figures.bare_copy, colours.bare, "s")]
    points += [(system, colours.ours if _is_ours(system) else colours.theirs, "o") for system in figures.systems]
    for system, colour, marker in points:
        axes.scatter(*_point(system), color=colour, marker=marker, s=36, zorder=3)
    _label(figure, axes, [(system, colour) for system, colour, _ in points])


def _point(system: SystemFigures) -> tuple[float, float]:
    """Return bytes and µs; a memory of a few pages may show no growth, and a log scale cannot show 0."""
    return max(system.bytes_per_transition, 1.0), system.sample_us


def _is_ours(system: SystemFigures) -> bool:
    return system.name.startswith("framestow")


def _set_axes(axes: Axes, figures: BenchFigures, every: Sequence[SystemFigures], colours: Colours) -> None:
    """Set scales, limits that leave space around ``every`` system and its label, axis labels and the grid."""
    nbytes, times = [_point(system)[0] for system in every], [system.sample_us for system in every]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(nbytes) / 2.5, max(nbytes) * 4)
    axes.set_ylim(min(times) / 1.6, max(times) * 1.8)
    axes.set_xlabel("bytes per transition (log)", color=colours.ink)
    axes.set_ylabel(f"µs for sample({figures.batch_size}) (log)", color=colours.ink)
    for axis, low, high in ((axes.xaxis, *axes.get_xlim()), (axes.yaxis, *axes.get_ylim())):
        axis.set_ticks(_round_numbers(low, high), minor=False)
        axis.set_ticks([], minor=True)
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_facecolor(colours.ground)
    axes.grid(color=colours.grid, linewidth=0.7, zorder=0)
    axes.tick_params(colors=colours.ink)
    axes.spines[["left", "bottom"]].set_color(colours.ink)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        f"{figures.game}: bytes of a transition and time of a batch",
        loc="left",
        color=colours.ink,
    )
    axes.annotate(
        "lower left is better", (0.01, 0.02), xycoords="axes fraction", color=colours.bare, style="italic", fontsize=9
    )


def _round_numbers(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times the powers of ten from ``low`` to ``high``; the powers alone if these are more than 4."""
    steps = (1,) if high / low > 10_000 else (1, 2, 5)
    return [step * 10.0**power for power in range(10) for step in steps if low <= step * 10.0**power <= high]


def _label(figure: Figure, axes: Axes, points: list[tuple[SystemFigures, str]]) -> None:
    """Write each system's name beside its point, where it covers no other label and no point."""
    figure.draw_without_rendering()  # sets where points are in pixels
    taken = [_around(axes.transData.transform(_point(system))) for system, _ in points]
    inside = axes.get_window_extent()
    _, line = axes.transData.transform((1, points[0][0].sample_us))
    taken.append(_box(inside.x0, line - 2, inside.x1, line + 2))
    for own, (system, colour) in enumerate(points):
        others = taken[:own] + taken[own + 1 :]
        best_cost, best = float("inf"), LABEL_OFFSETS[0]
        for offset in LABEL_OFFSETS:
            label = _add_label(axes, system, colour, offset)
            box = label.get_window_extent().padded(4, 1)
            label.remove()
            outside = not (inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1)
            cost = sum(_overlap(box, other) for other in others) + (1e6 if outside else 0)
            if cost < best_cost:
                best_cost, best = cost, offset
            if cost == 0:
                break
        taken.append(_add_label(axes, system, colour, best).get_window_extent().padded(4, 1))


def _add_label(axes: Axes, system: SystemFigures, colour: str, offset: tuple[float, float]) -> Any:
    right, up = offset
    return axes.annotate(
        system.name,
        _point(system),
        xytext=offset,
        textcoords="offset points",
        ha="center" if right == 0 else "left" if right > 0 else "right",
        va="center" if up == 0 else "bottom" if up > 0 else "top",
        color=colour,
        fontsize=9.5,
        fontweight="bold" if _is_ours(system) else "normal",
    )


def _around(centre: Any) -> Bbox:
    x, y = centre
    return _box(x - 8, y - 8, x + 8, y + 8)


def _box(left: float, bottom: float, right: float, top: float) -> Bbox:
    from matplotlib.transforms import Bbox  # noqa: PLC0415 -- as above

    return Bbox([[left, bottom], [right, top]])


def _overlap(one: Bbox, other: Bbox) -> float:
    """Return the area that both cover, in square pixels."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(max(width, 0.0) * max(height, 0.0))
