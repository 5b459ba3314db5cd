"""``pack_columns``: every number arrives as it is, in a dtype that a browser has."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.viewer.columns import pack_columns
from oracles.shown_resources import unpack

COLUMNS = [
    (np.array([True, False]), "uint8"),
    (np.array([0.1, -65504, np.inf], np.float16), "float32"),
    (np.array([1, 2**31 - 1, 1 - 2**31]), "int32"),
    (np.array([1, 2**31]), "float64"),
    (np.array([2**53, -(2**53)]), "float64"),
    (np.array([2**53 + 1]), "int64"),
    (np.array([2**64 - 1], np.uint64), "uint64"),
    (np.array([], np.int64), "int32"),
    (np.array([[1.5], [-0.0]], ">f8"), "float64"),
]


@pytest.mark.parametrize(("numbers", "dtype"), COLUMNS)
def test_numbers_arrive_exactly_in_a_dtype_of_javascript(numbers, dtype):
    shown = unpack(pack_columns({}, {"first": np.ones(3, np.uint8), "column": numbers})).arrays["column"]

    assert dtype == shown.dtype.name
    assert numbers.tolist() == shown.tolist()
