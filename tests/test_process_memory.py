"""Bytes that the operating system counts."""

import pytest

from framestow.process_memory import live_bytes

MIB = 2**20


@pytest.mark.skipif("not __import__('psutil').LINUX", reason="only glibc hands freed memory back when asked")
def test_what_is_built_where_something_was_freed_before_is_counted():
    freed = [bytes(1000) for _ in range(40_000)]
    kept = [bytes(1000)]
    del freed
    before = live_bytes()

    kept += [bytes(1000) for _ in range(40_000)]

    assert 38 * MIB < live_bytes() - before < 46 * MIB
