"""The three start methods of worker processes; `make exhaustive` tests every combination."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

START_METHODS = ("fork", "spawn", "forkserver")
EXHAUSTIVE = (pytest.mark.exhaustive,)


def every_start_method(quick: Iterable[str] = ("fork",)) -> list[Any]:
    """Return parameters for ``pytest.mark.parametrize``; methods outside ``quick`` are marked exhaustive."""
    return [pytest.param(method, marks=() if method in quick else EXHAUSTIVE) for method in START_METHODS]


def with_start_methods(cases: Iterable[Any], quick: dict[str, Iterable[Any]]) -> list[Any]:
    """Return pairs (case, start method): all with fork, the others if in ``quick``; the rest are marked exhaustive."""
    return [
        pytest.param(case, method, marks=() if method == "fork" or case in quick.get(method, ()) else EXHAUSTIVE)
        for case in cases
        for method in START_METHODS
    ]
