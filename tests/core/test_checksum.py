"""The checksum is CRC-32C, by instruction and by table."""

from __future__ import annotations

import numpy as np
import pytest

from framestow._core import checksum
from oracles.plain_codec import crc32c


@pytest.mark.parametrize(
    ("content", "published"),
    [
        pytest.param(b"123456789", 0xE3069283, id="catalogue of checksums"),
        pytest.param(bytes(32), 0x8A9136AA, id="RFC 3720, zeros"),
        pytest.param(b"\xff" * 32, 0x62A8AB43, id="RFC 3720, ones"),
        pytest.param(bytes(range(32)), 0x46DD794E, id="RFC 3720, rising"),
        pytest.param(bytes(4096), 0x98F94189, id="a page of zeros"),
    ],
)
def test_the_checksum_is_the_published_one(content, published):
    assert published == checksum(content)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 65, 1000, 3071, 3072, 3081, 7000])
def test_any_length_agrees_with_one_bit_at_a_time(size):
    content = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)

    assert checksum(content) == crc32c(content.tobytes())


def test_bytes_memoryviews_and_arrays_give_the_same():
    content = bytes(range(200))

    assert checksum(content) == checksum(memoryview(content)) == checksum(bytearray(content))
