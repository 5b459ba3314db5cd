"""The three ways to start a worker process; the two slow ones in full only where a test is marked slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

START_METHODS = ("fork", "spawn", "forkserver")
SLOW = (pytest.mark.slow,)


def every_start_method(quick: Iterable[str] = ("fork",)) -> list[Any]:
    """Parameters for ``pytest.mark.parametrize``: those that are not ``quick`` are marked slow."""
    return [pytest.param(method, marks=() if method in quick else SLOW) for method in START_METHODS]


def with_start_methods(cases: Iterable[Any], quick: dict[str, Iterable[Any]]) -> list[Any]:
    """Pairs (case, start method): under fork all, of the others those in ``quick``; what is left is slow."""
    return [
        pytest.param(case, method, marks=() if method == "fork" or case in quick.get(method, ()) else SLOW)
        for case in cases
        for method in START_METHODS
    ]
