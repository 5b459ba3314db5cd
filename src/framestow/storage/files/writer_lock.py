"""The lock of the one writer of a folder, which a dead process does not keep."""

from __future__ import annotations

import os
import socket
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from framestow.errors import IncompatibleError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = "LOCK"
_LOCKED_BYTE = 2**30  # Windows locks bytes and lets nobody read them, so it is one behind what the file says


class WriterLock:
    """Held from construction until :meth:`close`, or the death of this process.

    ``flock`` on a file that stays: the kernel lets go of it when the process is gone, whatever killed it, so a file
    that is left over keeps nobody out. What it contains is who holds it. A forked child lets go of it at once:
    otherwise it would keep the lock of a parent that died. On network file systems it is as good as their ``flock``.
    """

    _descriptor: int | None = None  # also where an interrupt comes before the file is opened

    def __init__(self, path: Path, what: str, way_out: str) -> None:
        """Lock ``path``, a file in a folder that exists.

        Raises :class:`~framestow.errors.IncompatibleError`, ``{what} is being written by process … on …: one may at a
        time; {way_out}``, where another process has it, or another object of this one.
        """
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(self._descriptor)
        except (BlockingIOError, PermissionError) as error:
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            holder = os.read(self._descriptor, 300).decode(errors="replace").strip() or "another process"
            self.close()
            raise IncompatibleError(f"{what} is being written by {holder}: one may at a time; {way_out}") from error
        except BaseException:
            self.close()
            raise
        with suppress(OSError):  # on a full disk it holds all the same
            who = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
            os.ftruncate(self._descriptor, os.write(self._descriptor, who))
        _held.add(self)

    def close(self) -> None:
        """Let go of it. Closing again does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> WriterLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _lock(descriptor: int) -> None:
    """Lock an open file, or raise ``OSError`` at once."""
    if sys.platform == "win32":
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _let_go_in_a_forked_child() -> None:
    for lock in list(_held):
        lock.close()  # closes the child's copy; the parent's keeps the lock


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_let_go_in_a_forked_child)
