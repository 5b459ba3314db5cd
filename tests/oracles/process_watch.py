"""Find what processes leave behind: child processes, shared memory, file descriptors, threads."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from oracles.patience import PATIENCE_S

SHARED_MEMORY = Path("/dev/shm")


class Identity(NamedTuple):
    """Unique identity of a process; a pid alone may be reused."""

    pid: int
    started: int  # clock ticks since the machine started


def identity(pid: int) -> Identity:
    """Return the process with this pid; raise ``ProcessLookupError`` if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
    return Identity(pid, int(fields[19]))


def log_process(path: Path, pid: int) -> None:
    """Write a process into a new file; raise ``FileExistsError`` if the file exists."""
    with path.open("x") as file:
        file.write(json.dumps(identity(pid)))


def logged_processes(folder: Path, pattern: str = "*") -> set[Identity]:
    """Return the processes that the files of a folder name."""
    texts = [file.read_text() for file in folder.glob(pattern)]
    return {Identity(*json.loads(text)) for text in texts if text}


def with_descendants(pid: int) -> set[Identity]:
    """A process and all that it started, directly or not."""
    found = {identity(pid)}
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(ProcessLookupError):
            found.add(identity(child.pid))
    return found


def still_there(processes: Iterable[Identity]) -> dict[Identity, str]:
    """Those that exist, zombies included, and what they are doing."""
    found = {}
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if identity(process.pid) == process:
                found[process] = psutil.Process(process.pid).status()
    return found


def still_running(processes: Iterable[Identity]) -> dict[Identity, str]:
    """Those that are no zombies: to reap one is its parent's affair."""
    return {process: status for process, status in still_there(processes).items() if status != psutil.STATUS_ZOMBIE}


def end(processes: Iterable[Identity]) -> None:
    """Kill those that still run."""
    for process in still_running(processes):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def eventually(is_so: Callable[[], object]) -> bool:
    """Wait until ``is_so()`` is true, at most ``PATIENCE_S``; return whether it is."""
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > until:
            return bool(is_so())
        time.sleep(0.02)
    return True


def mapped_shared_memory(pid: int | None = None) -> set[str]:
    """Return the names of existing files of ``/dev/shm`` that a process has mapped."""
    maps = Path(f"/proc/{os.getpid() if pid is None else pid}/maps")
    if not maps.exists():
        return set()
    paths = {line.split(maxsplit=5)[-1].strip() for line in maps.read_text().splitlines()}
    return {Path(path).name for path in paths if path.startswith(f"{SHARED_MEMORY}/") and Path(path).exists()}


def left_in_shared_memory(names: Iterable[str]) -> list[str]:
    return [name for name in names if (SHARED_MEMORY / name).exists()]


def num_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def thread_names() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())
