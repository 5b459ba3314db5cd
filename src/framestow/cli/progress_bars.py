"""Progress bars and byte tables of the commands that read or write many bytes."""

from __future__ import annotations

from typing import Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from framestow.cli.printing import print_line
from framestow.interface import plural
from framestow.offline.transfer import Transferred
from framestow.replay.byte_amounts import format_bytes


class ProgressDisplay(Progress):
    """A progress bar. It appears on a terminal only, and disappears when the work is done.

    Call it with what is done and the total.

    Arguments:
        console: Where the bar appears.
        description: What the command does meanwhile.
        unit: What is counted. ``None`` for work that counts nothing: the bar then only moves.
        is_shown: Whether there is a bar.
    """

    def __init__(
        self,
        console: Console,
        description: str = "",
        unit: Literal["bytes", "items"] | None = None,
        *,
        is_shown: bool = True,
    ) -> None:
        columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False), BarColumn()]
        if unit:
            amount = DownloadColumn(binary_units=True) if unit == "bytes" else MofNCompleteColumn()
            columns += [amount, TimeRemainingColumn()]
        super().__init__(*columns, console=console, transient=True, disable=not (is_shown and console.is_terminal))
        self._task = self.add_task(description, total=None)

    def __call__(self, done: int, total: int | None) -> None:
        """Show that ``done`` of ``total`` are done; ``None`` if the total is unknown."""
        self.update(self._task, completed=done, total=total)

    def show_part(self, part: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` of ``part`` are done. Each part has a time left of its own."""
        if part != self.tasks[0].description:
            self.reset(self._task, description=part)
        self(done, total)


def show_transfer(console: Console, transferred: Transferred, seconds: float) -> None:
    """Print how much was transferred, which steps were skipped and why, and the notes about the format."""
    print_line(
        console,
        f"{plural(transferred.transitions, 'transition')} of {plural(transferred.episodes, 'episode')} in "
        f"{seconds:,.1f} s",
    )
    for reason, steps in transferred.left_out.items():
        print_line(console, f"left out: {reason}: {steps:,}")
    for note in transferred.notes:
        print_line(console, f"note: {note}")


def show_bytes(console: Console, before: tuple[str, int, int], after: tuple[str, int, int]) -> None:
    """Print a table of sizes on disk and in RAM, and how many times smaller or larger ``after`` is.

    ``before`` and ``after`` are each a name, bytes on disk and bytes in RAM.
    """
    table = Table("", "on disk", "in RAM", show_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, on_disk, in_ram in (before, after):
        table.add_row(name, format_bytes(on_disk), format_bytes(in_ram))
    table.add_row("ratio", *(_ratio(one, other) for one, other in zip(before[1:], after[1:], strict=True)))
    console.print(table)


def _ratio(before: int, after: int) -> str:
    if before >= after:
        return f"{before / max(1, after):,.1f} times smaller"
    return f"{after / max(1, before):,.1f} times larger"
