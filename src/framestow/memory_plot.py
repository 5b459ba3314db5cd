"""Plot what a saved memory contains: its bytes, returns and lengths of its episodes, ages of its transitions."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from framestow.lazy_names import missing_extra
from framestow.replay.inspection import Inspection, LabelRuns, num_not_older, runs_by_label
from framestow.replay.memory import ReplayMemory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

COLOURS = ("#c8372d", "#33658a", "#5b8c5a", "#d98e04", "#7b5ea7", "#777777")
INK, GRID = "#222222", "#e4e4e4"
NUM_BINS = 30


def require_matplotlib(what: str) -> None:
    """Raise ``MissingExtraError``, which says that ``what`` needs it, if matplotlib is not installed."""
    try:
        import_module("matplotlib")
    except ModuleNotFoundError as missing:
        raise missing_extra(what, missing.name, "pictures") from missing


def plot_memory(inspection: Inspection, memory: ReplayMemory) -> Figure:
    """Return a figure of four charts; ``inspection`` and ``memory`` are those of ``inspect_memory``.

    With more labels than colours, the labels with the most transitions have their own, and the others share one.

    ==================  ==========================================================================
    chart               shows
    ==================  ==========================================================================
    bytes               of the files, divided by the transitions, by part
    returns, lengths    of whole episodes: sums of the recorded rewards, and steps
    ages                of the transitions, in frames that their environment has appended since
    ==================  ==========================================================================
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 -- half a second that only a plot needs

    figure = Figure(figsize=(9, 6), dpi=150, layout="constrained", facecolor="white")
    charts = figure.subplots(2, 2)
    groups = _groups(runs_by_label(memory.inner.parts))
    names = [name for name, _ in groups]
    figure.suptitle(f"{inspection.transitions:,} transitions in {inspection.folder.name}", x=0.01, ha="left", color=INK)
    _draw_bytes(charts[0, 0], inspection)
    whole = [np.concatenate([one.episodes.runs[one.episodes.is_whole] for one in labels]) for _, labels in groups]
    _draw_histogram(charts[0, 1], "returns of whole episodes", "sum of rewards", [one["total_reward"] for one in whole])
    _draw_histogram(charts[1, 0], "lengths of whole episodes", "steps", [one["length"] for one in whole])
    _draw_ages(charts[1, 1], groups)
    if len(groups) > 1:
        handles = [_patch(colour) for colour in COLOURS[: len(groups)]]
        figure.legend(handles, names, loc="outside lower left", ncols=3, frameon=False, labelcolor=INK)
    return figure


def _groups(labels: Sequence[LabelRuns]) -> list[tuple[str, list[LabelRuns]]]:
    if len(labels) <= len(COLOURS):
        return [(one.label, [one]) for one in labels]
    largest = sorted(labels, key=lambda one: -one.episodes.runs["length"].sum())
    own, others = largest[: len(COLOURS) - 1], largest[len(COLOURS) - 1 :]
    return [(one.label, [one]) for one in own] + [(f"{len(others)} others", others)]


def _draw_bytes(axes: Axes, inspection: Inspection) -> None:
    parts = {part: size / max(1, inspection.transitions) for part, size in inspection.file_bytes.items()}
    bars = axes.barh(list(parts), list(parts.values()), color=COLOURS[1])
    axes.bar_label(bars, [f"{size:,.1f}" for size in parts.values()], padding=3, color=INK)
    axes.invert_yaxis()
    axes.margins(x=0.2)
    _finish(axes, f"bytes of a transition: {sum(parts.values()):,.1f}", "bytes")


def _draw_histogram(axes: Axes, title: str, label: str, values: Sequence[npt.NDArray[np.generic]]) -> None:
    together = np.concatenate(values) if values else np.empty(0)
    if together.size:
        edges = np.histogram_bin_edges(together, min(NUM_BINS, together.size)).tolist()
        axes.hist(values, edges, stacked=True, color=COLOURS[: len(values)])
    else:
        axes.annotate("no whole episode", (0.5, 0.5), xycoords="axes fraction", ha="center", color=INK)
    _finish(axes, title, label, "episodes")


def _draw_ages(axes: Axes, groups: Sequence[tuple[str, Sequence[LabelRuns]]]) -> None:
    ages = [one.oldest_ages for _, labels in groups for one in labels]
    oldest = int(np.concatenate(ages).max(initial=0))
    edges = np.unique(np.linspace(-1, oldest, NUM_BINS + 1).astype(np.int64))  # a bin has the ages after its left edge
    below = np.zeros(len(edges) - 1)
    for (_, labels), colour in zip(groups, COLOURS, strict=False):
        counts = sum(
            np.diff([num_not_older(int(edge), one.oldest_ages, one.episodes.runs["length"]) for edge in edges])
            for one in labels
        )
        axes.bar(edges[:-1] + 1, counts, np.diff(edges), below, align="edge", color=colour)
        below = below + counts
    _finish(axes, "ages of the transitions", "frames appended since by the same environment", "transitions")


def _finish(axes: Axes, title: str, x_label: str, y_label: str = "") -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 -- as above

    axes.set_title(title, loc="left", color=INK, fontsize=11)
    axes.set_xlabel(x_label, color=INK)
    axes.set_ylabel(y_label, color=INK)
    for axis in (axes.xaxis, axes.yaxis) if y_label else (axes.xaxis,):
        axis.set_major_locator(MaxNLocator(5))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.tick_params(colors=INK)
    axes.set_axisbelow(True)
    axes.grid(axis="both" if y_label else "x", color=GRID, linewidth=0.7)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.spines[["top", "right"]].set_visible(False)


def _patch(colour: str) -> Patch:
    from matplotlib.patches import Patch  # noqa: PLC0415 -- as above

    return Patch(color=colour)
