"""The table and the picture show every system."""

from dataclasses import replace
from importlib import import_module
from io import StringIO
from itertools import combinations
from types import ModuleType

import pytest
from rich.console import Console

from framestow.benchmarking.libraries import LIBRARIES
from framestow.benchmarking.report import table
from oracles.figures_of_a_run import some_figures


def _printed(width: int) -> str:
    screen = StringIO()
    Console(width=width, file=screen).print(table(some_figures(), [LIBRARIES["torchrl"]]))
    return screen.getvalue()


def test_the_table_fits_into_80_columns_with_every_system_on_a_line_of_its_own():
    lines = _printed(80).splitlines()

    assert max(map(len, lines)) <= 80
    [ours] = [line.split() for line in lines if line.startswith("framestow, packed ")]
    assert ["framestow,", "packed", "1,000,000", "52", "1.0", "148", "1.00", "1.51", "11.2"] == ours
    [halved] = [line.split() for line in lines if line.startswith("sb3-extra-buffers, halved  ")]
    assert ["70,000", "701", "13.6", "530", "3.58", "5.41", "250.0"] == halved[2:]


def test_the_table_lists_settings_losses_and_missing_libraries():
    printed = _printed(200)

    assert "Stable-Baselines3 2.9.2: optimize_memory_usage, torch threads: 1; gives up truncation" in printed
    assert "left out: cpprb: TypeError: no such argument" in printed
    assert 'not installed: torchrl; pip install "torchrl"' in printed
    assert "framestow appends a step in 4.1 µs" in printed
    assert "framestow on 2 threads" in printed


@pytest.fixture
def plot_module() -> ModuleType:
    pytest.importorskip("matplotlib", reason='matplotlib is not installed: pip install "framestow[bench]"')
    return import_module("framestow.benchmarking.report")


def test_several_games_have_a_chart_each_with_the_same_scales(plot_module: ModuleType):
    first, *games = [replace(some_figures(), game=name) for name in ("Pong", "Qbert", "Freeway")]
    larger = replace(first, bare_copy=replace(first.bare_copy, sample_us=9_000.0))

    figure = plot_module.plot([larger, *games])

    charts = [axes for axes in figure.axes if axes.get_visible()]
    assert ["Pong", "Qbert", "Freeway"] == [axes.get_title("left").partition(":")[0] for axes in charts]
    assert {(axes.get_xlim(), axes.get_ylim()) for axes in charts} == {(charts[0].get_xlim(), charts[0].get_ylim())}
    assert charts[1].get_ylim()[1] > 9_000


def test_no_label_covers_another_one_or_a_point_even_where_systems_are_close(plot_module: ModuleType):
    figures = some_figures()
    crowd = tuple(replace(figures.systems[3], name=f"neighbour {number}") for number in range(4))

    figure = plot_module.plot([replace(figures, systems=figures.systems + crowd)])

    [axes] = figure.axes
    figure.draw_without_rendering()
    labels = {
        text.get_text(): text.get_window_extent() for text in axes.texts if text.get_text() != "lower left is better"
    }
    names = {system.name for system in (*figures.systems, *crowd, figures.bare_copy)}
    assert names == labels.keys()
    assert [] == [pair for pair in combinations(labels, 2) if labels[pair[0]].overlaps(labels[pair[1]])]
    points = [
        axes.transData.transform((system.bytes_per_transition, system.sample_us))
        for system in (*figures.systems, figures.bare_copy)
    ]
    assert not any(label.contains(*point) for label in labels.values() for point in points)
    inside = axes.get_window_extent()
    assert all(inside.contains(label.x0, label.y0) and inside.contains(label.x1, label.y1) for label in labels.values())
