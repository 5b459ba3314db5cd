"""What this process uses, and what the system leaves to it: memory, processor time, cores, disk space, signals.

Containers and batch systems set the limits of control groups, of version 1 or 2. ``groups_file`` is
``/proc/self/cgroup``, and ``mounts`` the folder where the groups are mounted.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

GROUPS_FILE, MOUNTS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_NO_LIMIT = 2**60  # bytes; without a limit, control groups of version 1 report a number near 2**63


def resident_bytes() -> int:
    """Return the resident set size of this process in bytes."""
    import psutil  # type: ignore[import-untyped]  # noqa: PLC0415 -- below replay, which needs NumPy alone

    return int(psutil.Process().memory_info().rss)


def processor_seconds() -> float:
    """Return the processor time, user and system, of this process and its descendants, such as worker processes.

    Counts all threads since each process started. A process that ended counts once its parent has waited for it.
    """
    import psutil  # noqa: PLC0415 -- as above

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
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGEST_MMAP_THRESHOLD = 2**25  # that glibc accepts, on 64 bits


def available_bytes() -> int:
    """Return ``free_memory()``, which psutil makes known on every system."""
    import psutil  # noqa: PLC0415 -- as above

    return min(int(psutil.virtual_memory().available), free_memory())


def available_disk_bytes(path: Path) -> int:
    """Return how many more bytes a user can write to the disk of ``path``, which need not exist yet."""
    import psutil  # noqa: PLC0415 -- as above

    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    return int(psutil.disk_usage(str(existing)).free)


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


@contextmanager
def block_signals(numbers: Iterable[int]) -> Iterator[None]:
    """Block signals in this thread while the ``with`` block runs; they arrive after it.

    Processes and threads that start meanwhile inherit the block and keep it. Windows blocks none.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
