"""What the operating system says that this process takes."""

from __future__ import annotations

import psutil  # type: ignore[import-untyped]


def resident_bytes() -> int:
    """Return the resident set size of this process in bytes."""
    return int(psutil.Process().memory_info().rss)
