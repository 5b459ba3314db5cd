"""The checksum is CRC-32C, by instruction and by table."""

from __future__ import annotations

import numpy as np
import pytest

from framestow._core import checksum
from oracles.plain_codec import crc32c


def test_the_checksum_has_the_check_value_of_the_catalogue():
    assert checksum(b"123456789") == 0xE3069283


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 65, 1000, 3071, 3072, 3081, 7000])
def test_any_length_agrees_with_one_bit_at_a_time(size):
    content = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)

    assert checksum(content) == crc32c(content.tobytes())


def test_bytes_memoryviews_and_arrays_give_the_same():
    content = bytes(range(200))

    assert checksum(content) == checksum(memoryview(content)) == checksum(bytearray(content))
