"""Parsing and formatting amounts of bytes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framestow.errors import InvalidSettingsError
from framestow.replay.eviction.byte_amounts import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("written", "num_bytes"),
    [
        ("1 GiB", 2**30),
        (" 1.5 gib ", 3 * 2**29),
        ("512 MiB", 2**29),
        ("2 TiB", 2**41),
        ("1.5 MB", 1_500_000),
        ("3 kB", 3_000),
        ("800 B", 800),
        ("1_000_000", 10**6),
        ("1,000,000", 10**6),
        (".5 KiB", 512),
        ("2 g", 2 * 10**9),
        ("500M", 500 * 10**6),
        ("1.5t", 1_500 * 10**9),
        ("7k", 7_000),
        ("9007199254740993", 2**53 + 1),
        ("9007199.254740993 GB", 9_007_199_254_740_993),
        (7056, 7056),
        (np.int64(7056), 7056),
    ],
)
def test_parse_bytes_accepts_a_number_or_a_unit(written, num_bytes):
    assert num_bytes == parse_bytes(written)


@pytest.mark.parametrize(
    "wrong", ["", "much", "1 Gi", "1 GiBi", "GiB", "1 2 GiB", "-1 GiB", "1e9", 1e9, True, None, b"1"]
)
def test_other_amounts_are_refused_with_the_accepted_forms(wrong):
    with pytest.raises(InvalidSettingsError) as refused:
        parse_bytes(wrong)

    assert str(refused.value) == (
        f"max_bytes is {wrong!r}: it must be a number of bytes; give bytes such as 2_000_000_000, or a number with a "
        "unit such as '1 GiB', '512 MiB', '1.5 GB' or '2G'"
    )


@pytest.mark.parametrize("none", [0, -5, "0 GiB", "0.5 B"])
def test_less_than_one_byte_is_refused_by_the_callers_name(none):
    with pytest.raises(InvalidSettingsError, match=re.escape(f"memory_bytes is {none!r}: it must be at least 1 byte")):
        parse_bytes(none, "memory_bytes")


@pytest.mark.parametrize("num_bytes", [0, 1, 1023, 1024, 2**20, 3 * 2**30, 2**41])
def test_formatted_bytes_are_parsed_back(num_bytes):
    assert num_bytes == (parse_bytes(format_bytes(num_bytes)) if num_bytes else 0)
