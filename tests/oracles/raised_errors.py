"""Catch the error of a call, for tests that continue after it."""

from __future__ import annotations

from collections.abc import Callable


def error_of(call: Callable[..., object], *arguments: object) -> OSError | None:
    """Return the ``OSError`` of ``call(*arguments)``, or ``None``."""
    try:
        call(*arguments)
    except OSError as error:
        return error
    return None
