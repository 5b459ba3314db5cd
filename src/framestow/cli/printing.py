"""Print lines of text as they are: without line breaks, colours of numbers, or ``[tags]`` that Rich would read."""

from __future__ import annotations

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
