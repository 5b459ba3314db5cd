"""The lock of a folder's one writer. The lock of a dead process is released."""

from __future__ import annotations

import gc
import os
import socket
import sys
import weakref
from contextlib import ExitStack, suppress
from pathlib import Path

from framestow.errors import IncompatibleError
from framestow.interface import Closing
from framestow.storage.files.file_system import open_file

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = "LOCK"  # usual name of the file that the one writer of a folder locks
_LOCKED_BYTE = 2**30  # Windows makes locked bytes unreadable, so lock one after the content


class WriterLock(Closing):
    """A ``flock`` on a file, from construction until ``close`` or the death of this process.

    The file stays, and contains the process that locked it last. The kernel releases the lock when the process dies, so
    a leftover file locks nobody out. A forked child releases its copy at once; otherwise it would keep the lock of a
    dead parent. On a network file system the lock is as reliable as its ``flock``.
    """

    # The open, locked file; None once closed, and also if an interrupt comes before the file is open.
    _descriptor: int | None = None

    def __init__(self, path: Path, what: str, way_out: str) -> None:
        """Lock the file ``path`` in an existing folder.

        Raises:
            IncompatibleError: another process, or another object of this one, has the lock. The message is
                ``{what} is being written by process … on …: one process may write at a time; {way_out}``. Or the
                file has several names; nothing is written to it.
            DamagedDataError: something else than a file has its name.
        """
        self._descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        with ExitStack() as on_error:
            on_error.callback(self.close)
            try:
                _lock(self._descriptor)
            except (BlockingIOError, PermissionError) as error:
                os.lseek(self._descriptor, 0, os.SEEK_SET)
                holder = os.read(self._descriptor, 300).decode(errors="replace").strip() or "another process"
                raise IncompatibleError(
                    f"{what} is being written by {holder}: one process may write at a time; {way_out}"
                ) from error
            on_error.pop_all()
        with suppress(OSError):  # a full disk does not affect the lock itself
            owner = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
            os.ftruncate(self._descriptor, os.write(self._descriptor, owner))
        _locks.add(self)

    def close(self) -> None:
        """Release the lock. Closing again does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def _lock(descriptor: int) -> None:
    """Lock an open file, or raise ``OSError`` at once.

    The traceback of a Ctrl-C may still have the lock of the call that it interrupted.
    """
    try:
        _lock_once(descriptor)
    except (BlockingIOError, PermissionError):
        gc.collect()
        _lock_once(descriptor)


def _lock_once(descriptor: int) -> None:
    if sys.platform == "win32":
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Every lock of this process, so that a forked child can close its copies.
_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _release_in_forked_child() -> None:
    for lock in list(_locks):
        lock.close()  # closes the child's copy; the parent's keeps the lock


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_release_in_forked_child)
