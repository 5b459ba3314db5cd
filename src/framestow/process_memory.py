"""What the operating system says that this process takes."""

from __future__ import annotations

import ctypes
import gc

import psutil  # type: ignore[import-untyped]


def resident_bytes() -> int:
    """Return the resident set size of this process in bytes."""
    return int(psutil.Process().memory_info().rss)


def live_bytes() -> int:
    """Return the resident set size once what was freed is handed back to the system, where the C library can do that.

    The difference of two calls is what was built between them, also where it took the place of something freed before.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if psutil.LINUX else None
    if trim is not None:
        trim(0)
    return resident_bytes()
