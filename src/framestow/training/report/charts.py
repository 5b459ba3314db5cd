"""Line charts as inline SVG, for a page that needs no script and no network.

Colours are classes that the page's style sheet defines, so one chart suits a light and a dark page. Only the numbers at
the axes are part of the picture: titles and legends are HTML text, which stays readable on a phone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT = 560, 280  # of the picture, in its own units
LEFT, RIGHT, TOP, BOTTOM = 78, 16, 12, 30  # margins
NUM_COLOURS = 6
MAX_POINTS = 500  # of a line
Points = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """A line through points; ``kind`` is ``""`` (bold), ``"thin"`` or ``"dashed"``. ``title`` appears on hovering."""

    xs: Points
    ys: Points
    colour: int = 0
    kind: str = ""
    title: str = ""


@dataclass(frozen=True)
class Band:
    """The area between two lines."""

    xs: Points
    low: Points
    high: Points
    colour: int = 0


@dataclass(frozen=True)
class Dots:
    """Single points."""

    xs: Points
    ys: Points
    colour: int = 0


Layer = Line | Band | Dots


@dataclass(frozen=True)
class Key:
    """An entry of the legend: text, colour and the kind of mark (that of a line, ``"band"`` or ``"dots"``)."""

    text: str
    colour: int = 0
    kind: str = ""


def chart(title: str, layers: Sequence[Layer], caption: str, legend: Sequence[Key] = ()) -> str:
    """Return a chart as an HTML ``figure``. ``caption`` tells what the axes mean, with units. Texts are escaped."""
    shown = [finite for layer in layers if len((finite := _finite(layer)).xs)]
    picture = _picture(title, shown) if shown else "<p class='note'>nothing to show yet</p>"
    keys = "".join(f"<span>{_swatch(key)}{escape(key.text)}</span>" for key in legend)
    return (
        f"<figure class='chart'><h3>{escape(title)}</h3>{f'<div class=legend>{keys}</div>' if keys else ''}{picture}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def bin_points(xs: Points, ys: Points, num_bins: int = MAX_POINTS) -> tuple[Points, Points]:
    """Return the points with a finite y; if there are more than ``num_bins``, the means of equal numbers of them.

    >>> bin_points(np.arange(6.0), np.array([1.0, 3.0, np.nan, 5.0, 7.0, 7.0]), 3)
    (array([0. , 2. , 4.5]), array([1., 4., 7.]))
    """
    is_finite = np.isfinite(ys)
    xs, ys = xs[is_finite], ys[is_finite]
    if len(xs) <= num_bins:
        return xs, ys
    edges = np.unique(np.linspace(0, len(xs), num_bins + 1).astype(np.intp))
    counts = np.diff(edges)
    return np.add.reduceat(xs, edges[:-1]) / counts, np.add.reduceat(ys, edges[:-1]) / counts


def ticks(low: float, high: float, at_most: int = 6) -> list[float]:
    """Return round numbers from ``low`` to ``high``.

    >>> ticks(0, 3004), ticks(-0.01, 0.031)
    ([0.0, 1000.0, 2000.0, 3000.0], [-0.01, 0.0, 0.01, 0.02, 0.03])
    """
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / at_most))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) < at_most)
    digits = max(0, 1 - math.floor(math.log10(step)))
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, digits) + 0.0 for number in range(first, math.floor(high / step + 1e-9) + 1)]


def short_number(value: float) -> str:
    """Return a number for an axis.

    >>> [short_number(value) for value in (0, 0.025, -20, 1_500, 20_000, 2_500_000)]
    ['0', '0.025', '-20', '1500', '20k', '2.5M']
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / min(size, 1e3 if unit == 'k' else size):g}{unit}"
    return f"{value:.4g}"


def _finite(layer: Layer) -> Layer:
    """Return the points of a layer that can be drawn."""
    known = np.isfinite([layer.xs, *_heights(layer)]).all(axis=0)
    if isinstance(layer, Band):
        return dataclasses.replace(layer, xs=layer.xs[known], low=layer.low[known], high=layer.high[known])
    return dataclasses.replace(layer, xs=layer.xs[known], ys=layer.ys[known])


def _picture(title: str, layers: Sequence[Layer]) -> str:
    x_low, x_high = _range([layer.xs for layer in layers])
    y_low, y_high = _range([ys for layer in layers for ys in _heights(layer)], margin=0.04)

    def x_at(x: Any) -> Any:
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def y_at(y: Any) -> Any:
        return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in ticks(y_low, y_high):
        y = f"{y_at(tick):.1f}"
        parts.append(f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y}' y2='{y}'/>")
        parts.append(f"<text x='{LEFT - 7}' y='{y}' dy='.35em' text-anchor='end'>{short_number(tick)}</text>")
    x_ticks = ticks(x_low, x_high)
    for tick in x_ticks:
        anchor = "start" if tick == x_low else "end" if x_at(tick) > WIDTH - RIGHT - 20 else "middle"
        parts.append(f"<text x='{x_at(tick):.1f}' y='{HEIGHT - 8}' text-anchor='{anchor}'>{short_number(tick)}</text>")
    parts += [_draw_layer(layer, x_at, y_at) for layer in layers]
    box = f"viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{escape(title)}'"
    return f"<svg {box}>{''.join(parts)}</svg>"


def _draw_layer(layer: Layer, x_at: Any, y_at: Any) -> str:
    colour = f"c{layer.colour % NUM_COLOURS}"
    if isinstance(layer, Dots):
        points = zip(x_at(layer.xs), y_at(layer.ys), strict=True)
        circles = "".join(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='2'/>" for x, y in points)
        return f"<g class='fill {colour}'>{circles}</g>"
    if isinstance(layer, Band):
        edge = [*zip(layer.xs, layer.high, strict=True), *zip(layer.xs[::-1], layer.low[::-1], strict=True)]
        return f"<path class='band fill {colour}' d='M{_path(np.array(edge), x_at, y_at)}Z'/>"
    line = np.stack([layer.xs, layer.ys], axis=1)
    if len(line) == 1:
        return f"<g class='fill {colour}'><circle cx='{x_at(line[0, 0]):.1f}' cy='{y_at(line[0, 1]):.1f}' r='4'/></g>"
    title = f"<title>{escape(layer.title)}</title>" if layer.title else ""
    return f"<path class='{layer.kind} {colour}' d='M{_path(line, x_at, y_at)}'>{title}</path>"


def _path(points: npt.NDArray[np.float64], x_at: Any, y_at: Any) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(x_at(points[:, 0]), y_at(points[:, 1]), strict=True))


def _heights(layer: Layer) -> list[Points]:
    return [layer.low, layer.high] if isinstance(layer, Band) else [layer.ys]


def _range(arrays: Sequence[Points], margin: float = 0.0) -> tuple[float, float]:
    """Return the least and the greatest number; 0 belongs to them if it is near."""
    low, high = min(float(array.min()) for array in arrays), max(float(array.max()) for array in arrays)
    low = 0.0 if 0.0 < low < 0.6 * high else low
    if high - low < 1e-9 * max(abs(high), 1e-6):
        half = abs(high) / 2 or 0.5
        low, high = low - half, high + half
    extra = margin * (high - low)
    return (low if low == 0.0 else low - extra), high + extra


def _swatch(key: Key) -> str:
    colour = f"c{key.colour % NUM_COLOURS}"
    if key.kind == "dots":
        mark = f"<g class='fill {colour}'><circle cx='12' cy='5' r='3'/></g>"
    elif key.kind == "band":
        mark = f"<path class='band fill {colour}' d='M0 0H24V10H0Z'/>"
    else:
        mark = f"<path class='{key.kind} {colour}' d='M0 5H24'/>"
    return f"<svg viewBox='0 0 24 10'>{mark}</svg>"


def read_style() -> str:
    """Return the style sheet that all pages have: that of ``framestow report`` and that of ``framestow view``."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")
