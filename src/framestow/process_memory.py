"""What the operating system says that this process takes, and may take."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil  # type: ignore[import-untyped]

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
NO_LIMIT = 2**60  # bytes; version 1 of the control groups writes a number near 2**63 where there is no limit


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


def available_bytes() -> int:
    """Return how many more bytes this process can take before it swaps, is refused memory or is killed.

    The least of what the machine has free, what each control group of the process leaves (containers and batch
    systems set those; versions 1 and 2 are read), and what ``ulimit -v`` leaves.
    """
    available = int(psutil.virtual_memory().available)
    available = min([available, *group_headrooms(PROC / "self" / "cgroup", CGROUPS)])
    if resource is not None and sys.platform == "linux":
        soft_limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if soft_limit != resource.RLIM_INFINITY:
            available = min(available, soft_limit - int(psutil.Process().memory_info().vms))
    return max(available, 0)


def available_disk_bytes(path: Path) -> int:
    """Return how many bytes a user may still write where ``path`` is or will be."""
    there = path.absolute()
    while not there.exists():
        there = there.parent
    return int(psutil.disk_usage(str(there)).free)


def group_headrooms(groups_file: Path, mounts: Path) -> Iterator[int]:
    """Yield the bytes that each limited control group above this process leaves.

    ``groups_file`` is Linux's ``/proc/self/cgroup``, ``mounts`` the folder where the groups are mounted. A group's
    cached files that were not used of late count as free, since the kernel drops them before it kills anybody.
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
    """The group and those it lies in; where a container sees only its own one, that is mounted at the top."""
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
    except OSError:  # the root group has no such files
        return
    reclaimable = dict(zip(statistics[::2], statistics[1::2], strict=True)).get(cache_name, "0")
    yield max(int(limit) - usage + int(reclaimable), 0)
