"""``Terminal``: what a command prints, also of files, reaches a terminal as text.

Names and labels in files of others may have control characters, which a terminal obeys, and ``[tags]``, which rich
reads. Every text, table, progress display and warning of a command passes here; an error is one line of
``output``. ``discard_failed_output`` lets a program go on whose output cannot be printed any more.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Literal

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from framestow.cli.output import OutputClosedError, discard_output
from framestow.interface import printable


class Terminal(Console):
    """A console that shows control characters as escapes, and reads no ``[tags]`` and names of emoji."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string, such as a cell of a table, as one line of text."""
        options |= {"markup": False, "emoji": False, "highlight": False, "highlighter": None}
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is printed of anything, without a control character in its text but line breaks."""
        for text, style, control in super().render(renderable, options):
            shown = text if control or text.isprintable() else "\n".join(map(printable, text.split("\n")))
            yield Segment(shown, style, control)

    def on_broken_pipe(self) -> None:
        """End the command."""
        raise OutputClosedError


def print_line(console: Console, line: str, style: str = "") -> None:
    """Print one line. A terminal wraps it, so that a path can be copied."""
    console.print(Text(printable(line), style), soft_wrap=True)


def print_warning(console: Console, message: str) -> None:
    """Print ``message`` as a warning."""
    print_line(console, f"warning: {message}", "yellow")


def print_named(console: Console, name: str, text: str, width: int) -> None:
    """Print ``text`` after its name, which takes ``width`` characters."""
    console.print(Text.assemble((f"{name:<{width}}", "bold"), "  ", printable(text)), soft_wrap=True)


def print_json(console: Console, content: object) -> None:
    """Print ``content`` as JSON, whose text has no control characters."""
    console.print(Text(json.dumps(content, indent=1)), soft_wrap=True)


@contextlib.contextmanager
def library_messages(console: Console) -> Iterator[None]:
    """Within its ``with`` block, print warnings and logged messages, which may name files, on ``console``."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print_warning(console, record.getMessage())

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print_warning(console, str(message))

    handler, logger, show_before = Handler(logging.WARNING), logging.getLogger("framestow"), warnings.showwarning
    logger.addHandler(handler)
    warnings.showwarning = show
    try:
        yield
    finally:
        logger.removeHandler(handler)
        warnings.showwarning = show_before


@contextlib.contextmanager
def discard_failed_output(console: Console, on_closed_pipe: Callable[[], None]) -> Iterator[None]:
    """Within its ``with`` block, discard what cannot be printed instead of raising.

    The terminal may be closed, the disk full, or the reader of a pipe gone, which also calls ``on_closed_pipe``.
    """
    file = console.file
    console.file = _OutputThatMayFail(file, on_closed_pipe)  # type: ignore[assignment]  # it has all that a console calls
    try:
        yield
    finally:
        console.file = file


class _OutputThatMayFail:
    def __init__(self, file: IO[str], on_closed_pipe: Callable[[], None]) -> None:
        self._file = file
        self._on_closed_pipe = on_closed_pipe

    def write(self, text: str) -> int:
        self._try(lambda: self._file.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._file.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except BrokenPipeError:
            discard_output(self._file)
            self._on_closed_pipe()
        except OSError as error:
            if error.errno == errno.EIO:  # the terminal is closed, and stays so
                discard_output(self._file)


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
