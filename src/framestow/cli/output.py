"""``say``: print lines where no ``Terminal`` is at hand. Needs no extra."""

from __future__ import annotations

from typing import IO

from framestow.interface import printable


class OutputClosedError(Exception):
    """The program that read the output has ended."""


def say(text: str, file: IO[str] | None = None, *, end: str = "\n") -> None:
    """Print ``text``, with control characters but line breaks as escapes.

    Raises:
        OutputClosedError: nobody reads it.
    """
    try:
        print("\n".join(map(printable, text.split("\n"))), file=file, end=end, flush=True)
    except BrokenPipeError as error:
        raise OutputClosedError from error
