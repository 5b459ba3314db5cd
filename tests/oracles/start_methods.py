"""The three ways to start a worker process; all in full only where every one is tried, in `make exhaustive`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

START_METHODS = ("fork", "spawn", "forkserver")
EXHAUSTIVE = (pytest.mark.exhaustive,)


def every_start_method(quick: Iterable[str] = ("fork",)) -> list[Any]:
    """Parameters for ``pytest.mark.parametrize``: those that are not ``quick`` are marked exhaustive."""
    return [pytest.param(method, marks=() if method in quick else EXHAUSTIVE) for method in START_METHODS]


def with_start_methods(cases: Iterable[Any], quick: dict[str, Iterable[Any]]) -> list[Any]:
    """Pairs (case, start method): under fork all, of the others those in ``quick``; what is left is exhaustive."""
    return [
        pytest.param(case, method, marks=() if method == "fork" or case in quick.get(method, ()) else EXHAUSTIVE)
        for case in cases
        for method in START_METHODS
    ]
