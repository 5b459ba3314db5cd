"""Pages straight from the operating system."""

from __future__ import annotations

import mmap
import sys


def private_pages(num_bytes: int) -> mmap.mmap:
    """Take pages of zeros that no other process sees, as many as hold ``num_bytes``; they go back with the object.

    An allocator would keep what is freed for itself once it has seen a few large blocks: 10 % of 64 MiB of raw frames.
    """
    size = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
