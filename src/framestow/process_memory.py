"""Measure the memory and processor time that this process uses, and the memory and disk space still available."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import psutil  # type: ignore[import-untyped]

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
NO_LIMIT = 2**60  # bytes; without a limit, control groups of version 1 report a number near 2**63


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
    available = int(psutil.virtual_memory().available)
    available = min([available, *group_headrooms(PROC / "self" / "cgroup", CGROUPS)])
    if resource is not None and sys.platform == "linux":
        soft_limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if soft_limit != resource.RLIM_INFINITY:
            available = min(available, soft_limit - int(psutil.Process().memory_info().vms))
    return max(available, 0)


def available_disk_bytes(path: Path) -> int:
    """Return how many more bytes a user can write to the disk of ``path``, which need not exist yet."""
    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    return int(psutil.disk_usage(str(existing)).free)


def group_headrooms(groups_file: Path, mounts: Path) -> Iterator[int]:
    """Yield the bytes that each limited control group of this process can still use.

    ``groups_file`` is Linux's ``/proc/self/cgroup``, and ``mounts`` the folder where the groups are mounted. Inactive
    cached files count as free, since the kernel drops them before it kills a process.
    """
    try:
        lines = groups_file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        hierarchy, controllers, group = line.split(":", 2)
        if hierarchy == "0":
            names, mount = ("memory.max", "memory.current", "inactive_file"), mounts
        elif "memory" in controllers.split(","):
            names, mount = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"), mounts / "memory"
        else:
            continue
        for folder in _folders_of(mount, PurePosixPath(group)):
            yield from _headroom(folder, *names)


def _folders_of(mount: Path, group: PurePosixPath) -> Iterator[Path]:
    """Yield the folders of a group and of its parents; in a container, the group may be mounted at the top."""
    below = group.relative_to("/") if group.is_absolute() else group
    for part in (below, *below.parents):
        if ".." not in part.parts and (mount / part).is_dir():
            yield mount / part


def _headroom(folder: Path, limit_name: str, usage_name: str, cache_name: str) -> Iterator[int]:
    try:
        limit = (folder / limit_name).read_text(encoding="ascii").strip()
        if limit == "max" or int(limit) >= NO_LIMIT:
            return
        usage = int((folder / usage_name).read_text(encoding="ascii"))
        statistics = (folder / "memory.stat").read_text(encoding="ascii").split()
    except OSError:  # the root group lacks these files
        return
    reclaimable = dict(zip(statistics[::2], statistics[1::2], strict=True)).get(cache_name, "0")
    yield max(int(limit) - usage + int(reclaimable), 0)
