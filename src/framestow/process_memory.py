"""Measure the memory and processor time that this process uses, and the memory and disk space still available."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from framestow.machine_limits import free_memory


def resident_bytes() -> int:
    """Return the resident set size of this process in bytes."""
    return int(psutil.Process().memory_info().rss)


def processor_seconds() -> float:
    """Return the processor time, user and system, of this process and its descendants, such as worker processes.

    Counts all threads since each process started. A process that ended counts once its parent has waited for it.
    """
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it ended in the meantime
            times = process.cpu_times()
            total += times.user + times.system
            if psutil.LINUX:  # of its children that ended
                total += times.children_user + times.children_system
    return total


def live_bytes() -> int:
    """Return the resident set size after returning freed memory to the system, if the C library supports it.

    So the difference of two calls is the memory of the objects created between them, even if they reuse freed memory.
    """
    gc.collect()
    trim = _of_c_library("malloc_trim")
    if trim is not None:
        trim(0)
    return resident_bytes()


def keep_freed_bytes(num_bytes: int) -> None:
    """Let the C library keep up to ``num_bytes`` of freed memory for later instead of returning it to the system.

    It is for loops that free and allocate the same megabytes again and again: each page that comes back from the system
    is cleared in a page fault. Only glibc has this option; elsewhere nothing changes.
    """
    set_option = _of_c_library("mallopt")
    if set_option is not None:
        set_option(_M_TRIM_THRESHOLD, num_bytes)
        set_option(_M_MMAP_THRESHOLD, min(num_bytes, _LARGEST_MMAP_THRESHOLD))


def _of_c_library(name: str) -> Callable[..., int] | None:
    """Return a function of Linux's C library; ``None`` if it has none of this name, as on other systems."""
    return getattr(ctypes.CDLL(None), name, None) if psutil.LINUX else None


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGEST_MMAP_THRESHOLD = 2**25  # that glibc accepts, on 64 bits


def available_bytes() -> int:
    """Return how many more bytes this process can allocate before it swaps, fails or is killed.

    This is the minimum of three values: the machine's free memory, the rest of each control group of the process
    (versions 1 and 2; containers and batch systems set them), and the rest of ``ulimit -v``.
    """
    return min(int(psutil.virtual_memory().available), free_memory())


def available_disk_bytes(path: Path) -> int:
    """Return how many more bytes a user can write to the disk of ``path``, which need not exist yet."""
    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    return int(psutil.disk_usage(str(existing)).free)
