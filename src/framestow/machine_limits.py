"""What the system and Linux's control groups leave to this process: memory, and cores.

Containers and batch systems set the limits of control groups, of version 1 or 2. ``groups_file`` is
``/proc/self/cgroup``, and ``mounts`` the folder where the groups are mounted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

GROUPS_FILE, MOUNTS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_NO_LIMIT = 2**60  # bytes; without a limit, control groups of version 1 report a number near 2**63


def num_cores(groups_file: Path = GROUPS_FILE, mounts: Path = MOUNTS) -> int:
    """Return the number of cores that this process may use, at least 1.

    That is the minimum of two numbers: the cores that it may run on, and the whole cores of each control group, such as
    2 for ``docker run --cpus 2.5``.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *map(int, group_cores(groups_file, mounts))]))


def group_cores(groups_file: Path, mounts: Path) -> Iterator[float]:
    """Yield the cores that each limited control group of this process may keep busy."""
    for folder, is_version_2 in _group_folders("cpu", groups_file, mounts):
        try:
            if is_version_2:
                quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
                period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except OSError:  # the root group lacks these files
            continue
        if quota not in ("max", "-1"):
            yield int(quota) / int(period)


def free_memory(groups_file: Path = GROUPS_FILE, mounts: Path = MOUNTS) -> int:
    """Return how many more bytes this process can allocate before it swaps, fails or is killed.

    This is the minimum of three values: the machine's free memory, the rest of each control group of the process, and
    the rest of ``ulimit -v``. Elsewhere than on Linux nothing is known, and it is ``sys.maxsize``.
    """
    if sys.platform != "linux":
        return sys.maxsize
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        num_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        free.append(limit - num_pages * resource.getpagesize())
    return max(min([sys.maxsize, *free, *group_headrooms(groups_file, mounts)]), 0)


def group_headrooms(groups_file: Path, mounts: Path) -> Iterator[int]:
    """Yield the bytes that each limited control group of this process can still use.

    Inactive cached files count as free, since the kernel drops them before it kills a process.
    """
    for folder, is_version_2 in _group_folders("memory", groups_file, mounts):
        if is_version_2:
            yield from _headroom(folder, "memory.max", "memory.current", "inactive_file")
        else:
            yield from _headroom(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _group_folders(controller: str, groups_file: Path, mounts: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the folders of the groups that have a controller, and whether they are of version 2."""
    try:
        lines = groups_file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        hierarchy, controllers, group = line.split(":", 2)
        is_version_2 = hierarchy == "0"
        if is_version_2 or controller in controllers.split(","):
            mount = mounts if is_version_2 else mounts / controller
            for folder in _with_parents(mount, PurePosixPath(group)):
                yield folder, is_version_2


def _with_parents(mount: Path, group: PurePosixPath) -> Iterator[Path]:
    """Yield the folders of a group and of its parents; in a container, the group may be mounted at the top."""
    below = group.relative_to("/") if group.is_absolute() else group
    for part in (below, *below.parents):
        if ".." not in part.parts and (mount / part).is_dir():
            yield mount / part


def _headroom(folder: Path, limit_name: str, usage_name: str, cache_name: str) -> Iterator[int]:
    try:
        limit = (folder / limit_name).read_text(encoding="ascii").strip()
        if limit == "max" or int(limit) >= _NO_LIMIT:
            return
        usage = int((folder / usage_name).read_text(encoding="ascii"))
        statistics = (folder / "memory.stat").read_text(encoding="ascii").split()
    except OSError:  # the root group lacks these files
        return
    reclaimable = dict(zip(statistics[::2], statistics[1::2], strict=True)).get(cache_name, "0")
    yield max(int(limit) - usage + int(reclaimable), 0)
