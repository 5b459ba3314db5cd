"""The figures as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from framestow.benchmarking.figures import BenchFigures, SystemFigures
from framestow.benchmarking.peers.roster import Peer


def table(figures: BenchFigures, missing: Iterable[Peer] = ()) -> Group:
    """Lay out all systems, then how each is set, what was left out, and how to install what is missing.

    Fits into 80 columns.
    """
    grid = Table(title=_title(figures), title_justify="left", box=None, padding=(0, 0, 0, 1), pad_edge=False)
    grid.add_column("", overflow="fold")
    for heading in ("held", "bytes", "× ours", "sample", "× ours", "× bare", "append"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for system in (figures.bare_copy, *figures.systems):
        grid.add_row(*_cells(figures, system), style="bold" if system is figures.systems[0] else None)
    return Group(grid, *_notes(figures, missing))


def _title(figures: BenchFigures) -> str:
    shape = "x".join(map(str, figures.frame_shape))
    threads = "" if figures.threads == 1 else f", framestow on {figures.threads} threads"
    return (
        f"{figures.game}, frames {shape}, stacks of {figures.stack}: transitions held, bytes each, "
        f"µs for sample({figures.batch_size}), µs to append a step{threads}"
    )


def _cells(figures: BenchFigures, system: SystemFigures) -> list[str]:
    return [
        system.name,
        f"{system.transitions:,}",
        f"{system.bytes_per_transition:,.0f}",
        f"{figures.times_our_bytes(system):,.1f}",
        f"{system.sample_us:,.0f}",
        f"{figures.times_our_time(system):.2f}",
        f"{figures.of_the_bare_copy(system):.2f}",
        "" if system.append_us is None else f"{system.append_us:,.1f}",
    ]


def _notes(figures: BenchFigures, missing: Iterable[Peer]) -> Iterable[Text]:
    yield Text(
        f"\nfrom 8 streams that give a step each at once framestow appends in {figures.append_us_of_8_streams:.1f} µs"
    )
    for system in figures.systems:
        if system.setting:
            yield Text(system.description)
    for left_out in figures.left_out:
        yield Text(f"left out: {left_out.name}: {left_out.reason}", style="yellow")
    for peer in missing:
        yield Text(f"not installed: {peer.key}; {peer.install_command}", style="yellow")
