"""What ends a worker when its parent dies, however that happens."""

from __future__ import annotations

import multiprocessing
import os
import threading
import weakref
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

_LOOK_EVERY_S = 1.0


class _Closable(Protocol):
    def close(self) -> None:
        """Close it."""


_parent_ends: weakref.WeakSet[Any] = weakref.WeakSet()


def keep_from_forks(end: _Closable) -> None:
    """Have any process that is forked from this one close its copy of ``end`` at once.

    A worker sees the end of its parent by the other end of a pipe being closed. A later worker, or whatever else is
    forked, would inherit that end and hold it open.
    """
    _parent_ends.add(end)


def _close_parent_ends() -> None:
    for end in list(_parent_ends):
        end.close()
    _parent_ends.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_parent_ends)


def hang_on(lifeline: Connection) -> None:
    """Have this process end when the other end of ``lifeline``, through which nothing is sent, closes.

    A thread waits for that, and for the parent process itself. It needs Python's lock, which an environment that
    hangs in C may never give back; so on Linux the kernel is told to send SIGKILL as well when the pipe closes (a
    signal of the thread that made the process, PDEATHSIG, would come too early: when that thread ends).
    """
    _ask_the_kernel(lifeline)
    threading.Thread(target=_watch, args=(lifeline,), name="framestow-lifeline", daemon=True).start()


def _ask_the_kernel(lifeline: Connection) -> None:
    try:
        import fcntl  # noqa: PLC0415  # POSIX only
        import signal  # noqa: PLC0415

        number = lifeline.fileno()
        fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(number, fcntl.F_SETSIG, signal.SIGKILL)  # Linux only
        fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_ASYNC)
    except (ImportError, AttributeError, OSError):
        return


def _watch(lifeline: Connection) -> None:
    parent = multiprocessing.parent_process()
    watched: list[Any] = [lifeline] if parent is None else [lifeline, parent.sentinel]
    process = None if parent is None or parent.pid is None else process_handle(parent.pid)
    if process is not None:
        watched.append(process)
    first_parent = os.getppid()
    while not wait(watched, _LOOK_EVERY_S) and os.getppid() == first_parent:
        pass
    os._exit(1)


def process_handle(pid: int) -> int | None:
    """File that becomes readable when the process ends; ``None`` where the system has no such thing (Linux has)."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
