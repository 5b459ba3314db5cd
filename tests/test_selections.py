"""The selection of a test's parameters has every value, or every pair of values, and few combinations."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from oracles.selections import selection

AXES = {"mode": ["next", "same", "disabled"], "storage": ["packed", "raw"], "n_step": [1, 3, 5]}
ALL = [dict(zip(AXES, values, strict=True)) for values in product(*AXES.values())]


@pytest.mark.parametrize(("size", "count"), [(1, 3), (2, 9)])
def test_a_selection_has_all_that_occurs_together_in_as_few_combinations_as_can_be(size, count):
    selected = [ALL[place] for place in selection(ALL, size)]

    assert len(selected) == count
    for names in combinations(AXES, size):
        for values in product(*(AXES[name] for name in names)):
            assert any(values == tuple(each[name] for name in names) for each in selected), (names, values)


def test_values_that_occur_together_in_one_combination_only_keep_it():
    pairs = [{"kind": 0, "at": 5}, {"kind": 0, "at": 6}, {"kind": 1, "at": 6}]

    assert selection(pairs, 2) == [0, 1, 2]
    assert sorted(selection(pairs, 1)) == [0, 2]


def test_a_single_parameter_keeps_all_its_values():
    assert selection([{"seed": seed} for seed in range(3)], 2) == [0, 1, 2]
