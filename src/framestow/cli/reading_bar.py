"""A bar that shows how far the reading of files has come."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


class ReadingBar(Progress):
    """Shown on a terminal only, and gone when it is done; called with the bytes that are done, and of how many."""

    def __init__(self, console: Console, what: str, *, is_shown: bool = True) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (is_shown and console.is_terminal),
        )
        self._bytes_read = self.add_task(what, total=None)

    def __call__(self, done: int, all_bytes: int) -> None:
        """Show that so many bytes are done."""
        self.update(self._bytes_read, completed=done, total=all_bytes)
