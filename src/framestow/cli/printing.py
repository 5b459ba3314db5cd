"""Print lines of text as they are: without line breaks, colours of numbers, or ``[tags]`` that Rich would read.

``drop_failed_output`` lets a program go on whose output cannot be printed any more.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import IO, Any

from rich.console import Console
from rich.text import Text


def print_line(console: Console, line: str, style: str = "") -> None:
    """Print ``line``. A terminal wraps it, so that a path can be copied."""
    console.print(Text(line, style), soft_wrap=True)


def print_warning(console: Console, message: str) -> None:
    """Print ``message`` as a warning."""
    print_line(console, f"warning: {message}", "yellow")


def print_named(console: Console, name: str, text: str, width: int) -> None:
    """Print ``text`` after its name, which takes ``width`` characters."""
    console.print(Text.assemble((f"{name:<{width}}", "bold"), "  ", text), soft_wrap=True)


@contextlib.contextmanager
def drop_failed_output(console: Console, on_closed_pipe: Callable[[], None]) -> Iterator[None]:
    """Within its ``with`` block, drop what cannot be printed instead of raising.

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


def discard_output(file: IO[str]) -> None:
    """Send what is written to ``file`` from now on nowhere, also what Python flushes at its end."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), file.fileno())
