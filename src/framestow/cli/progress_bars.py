"""Progress bars and byte tables of the commands that read or write many bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from framestow.offline import transfer
from framestow.offline.transfer import Transferred
from framestow.replay.byte_amounts import format_bytes


class ReadingBar(Progress):
    """A progress bar for reading. It appears on a terminal only, and disappears when the work is done.

    Call it with the bytes read so far and the bytes in total.
    """

    def __init__(self, console: Console, description: str, *, is_shown: bool = True) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (is_shown and console.is_terminal),
        )
        self._bytes_read = self.add_task(description, total=None)

    def __call__(self, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` bytes are read."""
        self.update(self._bytes_read, completed=done, total=total)


@contextmanager
def byte_bar(console: Console, description: str) -> Iterator[transfer.Progress]:
    """Show a progress bar on a terminal; yield the function that updates it with the bytes done and in total."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show_transfer(console: Console, transferred: Transferred, seconds: float) -> None:
    """Print how much was transferred, which steps were skipped and why, and the notes about the format."""
    console.print(
        f"{transferred.transitions:,} transitions of {transferred.episodes:,} episodes in {seconds:,.1f} s",
        highlight=False,
    )
    for reason, steps in transferred.left_out.items():
        console.print(f"left out: {reason}: {steps:,}", highlight=False, soft_wrap=True)
    for note in transferred.notes:
        console.print(f"note: {note}", highlight=False, soft_wrap=True)


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
