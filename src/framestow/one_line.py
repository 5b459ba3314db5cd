"""One line about an object, for its ``repr``: the name of its class, then what a person wants to know."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any


def one_line(described: object, details: Callable[[], Iterable[str]]) -> str:
    """Return ``Class(detail, detail)``, and never raise: debuggers call ``repr`` on objects that are half built."""
    try:
        known = ", ".join(details())
    except Exception as error:
        known = f"unknown: {type(error).__name__}"
    return f"{type(described).__name__}({known})"


def plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "environment"), plural(1_200, "step")
    ('1 environment', '1,200 steps')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def clause(number: int, noun: str, verb: str) -> str:
    """Return a number with its noun and verb.

    >>> clause(1, "environment", "take"), clause(2, "environment", "take")
    ('1 environment takes', '2 environments take')
    """
    return f"{plural(number, noun)} {verb}{'s' if number == 1 else ''}"


def printable(text: str) -> str:
    r"""Return ``text`` with what a terminal obeys or hides as escapes: all that ``str.isprintable`` does not know.

    These are control characters, line breaks, bidi overrides, invisible characters and lone surrogates.

    >>> printable("a\x1b]0;b\x07\n\u202ec\udc80 \u00e9") == r"a\x1b]0;b\x07\n\u202ec\udc80 é"
    True
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shapes(arrays: Any) -> str:
    """Return shape and dtype of an array or a tensor, or of each in dicts and tuples.

    >>> import numpy as np
    >>> shapes({"camera": np.zeros((2, 3), np.uint8), "arm": (np.zeros(2),)})
    '{camera: (2, 3) uint8, arm: ((2,) float64)}'
    """
    if isinstance(arrays, Mapping):
        return "{" + ", ".join(f"{key}: {shapes(part)}" for key, part in arrays.items()) + "}"
    if isinstance(arrays, tuple):
        return f"({', '.join(map(shapes, arrays))})"
    return f"{tuple(arrays.shape)} {str(arrays.dtype).removeprefix('torch.')}"


def plain_arguments(built: object) -> Iterator[str]:
    """Yield ``name=value`` for each argument of the constructor that is an attribute with a number or a string."""
    for name in inspect.signature(type(built)).parameters:
        value = getattr(built, name, None)
        if isinstance(value, (int, float, str)):
            yield f"{name}={value!r}"
