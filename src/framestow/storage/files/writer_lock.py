"""The lock of a folder's one writer. The lock of a dead process is released.

A lock belongs to a file, and everything else is written by path. So ``LockedFiles`` and ``check_lock`` compare the two
before each change: a folder that was moved, removed or replaced meanwhile is not written to.
"""

from __future__ import annotations

import errno
import gc
import os
import socket
import sys
import weakref
from contextlib import ExitStack, suppress
from pathlib import Path

from framestow.errors import IncompatibleError
from framestow.interface import Closing
from framestow.storage.files.file_system import (
    AppendFile,
    FileSystem,
    ReadFile,
    open_file,
    read_only_error,
    status_of_name,
)

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = "LOCK"  # usual name of the file that the one writer of a folder locks
_LOCKED_BYTE = 2**30  # Windows makes locked bytes unreadable, so lock one after the content
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK}  # of some network file systems and FUSE


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
                file has several names; nothing is written to it. Or the file system is read-only, or has no locks.
            DamagedDataError: something else than a file has its name.
        """
        self.path, self._what = path, what
        try:
            self._descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if error.errno == errno.EROFS:
                raise read_only_error(path) from error
            raise
        with ExitStack() as on_error:
            on_error.callback(self.close)
            self._locked = os.fstat(self._descriptor)
            try:
                _lock(self._descriptor)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    raise IncompatibleError(
                        f"{path}: its file system has no locks (flock: {os.strerror(error.errno)}), so two processes "
                        "could write there at once; write to a folder on a local disk and copy that folder here, where "
                        "it can be read"
                    ) from error
                if not isinstance(error, (BlockingIOError, PermissionError)):
                    raise
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

    @property
    def is_held(self) -> bool:
        """Whether it was not closed."""
        return self._descriptor is not None

    def check(self) -> None:
        """Raise ``IncompatibleError`` unless the locked file still has its name: so the folder is the locked one."""
        try:
            is_there = os.path.samestat(status_of_name(self.path), self._locked)
            fate = "replaced by another one"
        except (FileNotFoundError, NotADirectoryError):
            is_there, fate = False, "moved or removed"
        if not is_there:
            raise IncompatibleError(
                f"{self._what}: its folder was {fate} while this process had it locked, so nothing is written or "
                "removed at its path; put the locked folder back, or write to another one"
            )

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


class LockedFiles(FileSystem):
    """The files of a locked folder: the lock is checked before each change of a name there.

    Bytes that are appended to an open file go into the folder that was locked, wherever it is now.
    """

    def __init__(self, files: FileSystem, lock: WriterLock) -> None:
        self._files, self._lock = files, lock

    def create(self, path: Path) -> AppendFile:
        """Check the lock, then as ``FileSystem.create``."""
        self._lock.check()
        return self._files.create(path)

    def open_at(self, path: Path, size: int) -> AppendFile:
        """Check the lock, then as ``FileSystem.open_at``."""
        self._lock.check()
        return self._files.open_at(path, size)

    def replace(self, old: Path, new: Path) -> None:
        """Check the lock, then as ``FileSystem.replace``."""
        self._lock.check()
        self._files.replace(old, new)

    def remove(self, path: Path) -> bool:
        """Check the lock, then as ``FileSystem.remove``."""
        self._lock.check()
        return self._files.remove(path)

    def make_folder(self, path: Path) -> None:
        """Check the lock, then as ``FileSystem.make_folder``."""
        self._lock.check()
        self._files.make_folder(path)

    def open_to_read(self, path: Path) -> ReadFile:
        """As ``FileSystem.open_to_read``; if there is no such file, check whether the folder is the locked one."""
        try:
            return self._files.open_to_read(path)
        except FileNotFoundError:
            self._lock.check()
            raise

    def sync_folder(self, folder: Path) -> None:
        """As ``FileSystem.sync_folder``."""
        self._files.sync_folder(folder)

    def names(self, folder: Path) -> list[str]:
        """As ``FileSystem.names``."""
        return self._files.names(folder)

    def status(self, path: Path) -> os.stat_result:
        """As ``FileSystem.status``."""
        return self._files.status(path)


def check_lock(path: Path) -> None:
    """Call ``check`` of the lock that this process has on the file ``path``, if it has one."""
    for lock in list(_locks):
        if lock.path == path and lock.is_held:
            lock.check()


# Every lock of this process, so that a forked child can close its copies.
_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _release_in_forked_child() -> None:
    for lock in list(_locks):
        lock.close()  # closes the child's copy; the parent's keeps the lock


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_release_in_forked_child)
