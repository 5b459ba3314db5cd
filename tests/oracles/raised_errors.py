"""What a call raised, where a test goes on after it."""

from __future__ import annotations

from collections.abc import Callable


def error_of(call: Callable[..., object], *arguments: object) -> OSError | None:
    """The ``OSError`` that ``call(*arguments)`` raises, ``None`` if it raises nothing."""
    try:
        call(*arguments)
    except OSError as error:
        return error
    return None
