"""``say``: print lines where no ``Terminal`` is at hand, ``fit`` them into its width. Needs no extra."""

from __future__ import annotations

import os
import textwrap
from shutil import get_terminal_size
from typing import IO

from framestow.interface import printable

FAILED = 1  # exit code of an error


class OutputClosedError(Exception):
    """The program that read the output has ended."""


def say(text: str, file: IO[str] | None = None, *, end: str = "\n") -> None:
    """Print ``text``, with control characters but line breaks as escapes.

    Raises:
        OutputClosedError: nobody reads it.
        OSError: it cannot be written: the disk is full.
    """
    try:
        print("\n".join(map(printable, text.split("\n"))), file=file, end=end, flush=True)
    except BrokenPipeError as error:
        raise OutputClosedError from error


def discard_output(file: IO[str]) -> None:
    """Send what is written to ``file`` from now on nowhere, also what Python flushes at its end."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), file.fileno())


def fit(text: str) -> str:
    """Return ``text`` with longer lines than the terminal (or ``COLUMNS``) broken between words."""
    width = get_terminal_size().columns
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join("\n".join(textwrap.wrap(line, width)) if len(line) > width else line for line in lines)
