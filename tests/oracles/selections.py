"""The combinations of a test's parameters that `make test` runs: every value, or every pair of values, is in one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pytest

SIZES = {"each_value": 1, "each_pair": 2}  # of what every combination of parameters that has such a mark must be in


def mark_the_rest(tests: list[pytest.Item]) -> None:
    """Mark as exhaustive the parameters of one test that are not selected, if the test has a mark of SIZES."""
    for name, size in SIZES.items():
        if tests and tests[0].get_closest_marker(name):
            candidates = [test for test in tests if not test.get_closest_marker("exhaustive")]
            selected = selection([test.callspec.params for test in candidates], size)  # type: ignore[attr-defined]
            for place in set(range(len(candidates))) - set(selected):
                candidates[place].add_marker("exhaustive")


def selection(params: list[Mapping[str, Any]], size: int) -> list[int]:
    """Return the places of few of these parameters, so that each ``size`` values that occur together still do."""
    shown = [{name: repr(value) for name, value in each.items()} for each in params]
    together = [set(combinations(sorted(each.items()), min(size, len(each)))) for each in shown]
    missing, selected = set().union(*together), []
    while missing:
        selected.append(max(range(len(together)), key=lambda place: len(missing & together[place])))
        missing -= together[selected[-1]]
    return selected
