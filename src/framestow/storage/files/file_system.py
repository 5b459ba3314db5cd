"""All operations on the disk, in one place, so that tests can replace it with a disk that fails.

Every writer of a store takes ``files: FileSystem = DISK``. After a loss of power only two things are guaranteed, as by
POSIX: the content of a file after ``sync``, and the names in a folder after ``sync_folder``. An ``OSError`` always
names its file.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

from framestow.closing import Closing

if sys.platform == "darwin":
    import fcntl

Result = TypeVar("Result")


class AppendFile(Closing):
    """A file that grows at its end, for one thread at a time.

    A failing ``append`` leaves ``size`` unchanged; its bytes are cut off or overwritten.
    """

    def __init__(self, path: Path, size: int, mode: str) -> None:
        self.path = path
        self.size = size
        """Size of the file in bytes, with everything appended, synced or not."""
        self._raw = FileIO(path, mode)

    def append(self, content: bytes) -> None:
        """Write ``content`` at the end: to the page cache, not yet to the disk."""
        view = memoryview(content)
        written = 0
        try:
            while written < len(view):
                written += _naming(self.path, self._write, view[written:], self.size + written)
        except OSError:
            with suppress(OSError):  # frees a full disk; otherwise the next append overwrites these bytes
                self._cut(self.size)
            raise
        self.size += len(view)

    def sync(self) -> None:
        """Return once everything appended is on the disk.

        After an error the content on the disk is unknown: Linux drops pages that it could not write, and the next sync
        does not report them. So the caller must write everything since the last sync again, to another file.
        """
        _naming(self.path, self._sync)

    def cut(self, size: int) -> None:
        """Truncate the file to ``size`` bytes."""
        _naming(self.path, self._cut, size)
        self.size = size

    def close(self) -> None:
        """Close the file without a sync. Closing again does nothing."""
        self._raw.close()

    def _write(self, content: memoryview, offset: int) -> int:
        """Write a part of ``content`` by one system call; return its size."""
        self._raw.seek(offset)
        return self._raw.write(content)

    def _cut(self, size: int) -> None:
        self._raw.truncate(size)

    def _sync(self) -> None:
        if sys.platform == "darwin":  # there fsync may leave the bytes in the cache of the drive
            with suppress(OSError):  # network file systems lack F_FULLFSYNC
                fcntl.fcntl(self._raw.fileno(), fcntl.F_FULLFSYNC)
                return
        os.fsync(self._raw.fileno())


class ReadFile(Closing):
    """A file that any number of threads can read, at any offset."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw = FileIO(path, "rb")
        self._seeking = threading.Lock()  # on Windows, held between a seek and its read

    @property
    def size(self) -> int:
        """Current size of the file in bytes."""
        return os.fstat(self._raw.fileno()).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``; fewer at the end of the file."""
        return _naming(self.path, self._read_at, offset, size)

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        self._raw.close()

    def _read_at(self, offset: int, size: int) -> bytes:
        if sys.platform != "win32":
            return os.pread(self._raw.fileno(), size, offset)
        with self._seeking:
            self._raw.seek(offset)
            return self._raw.read(size)


class FileSystem:
    """The disk as stores see it. Tests derive disks that fail, kill the process or lose power."""

    def create(self, path: Path) -> AppendFile:
        """Create an empty file or replace an existing one. Its name is durable after ``sync_folder``."""
        return AppendFile(path, 0, "wb")

    def open_at(self, path: Path, size: int) -> AppendFile:
        """Open an existing file to append after its first ``size`` bytes; the rest is cut off."""
        file = AppendFile(path, size, "rb+")
        try:
            file.cut(size)
        except OSError:
            file.close()
            raise
        return file

    def open_to_read(self, path: Path) -> ReadFile:
        """Open a file to read; raise ``FileNotFoundError`` if it does not exist."""
        return ReadFile(path)

    def read(self, path: Path) -> bytes:
        """Return the whole content of a file."""
        return path.read_bytes()

    def replace(self, old: Path, new: Path) -> None:
        """Rename ``old`` to ``new`` atomically, replacing an existing file."""
        os.replace(old, new)

    def remove(self, path: Path) -> bool:
        """Remove a file if it exists; return False if it is in use, which only Windows refuses."""
        try:
            path.unlink(missing_ok=True)
        except PermissionError:
            if sys.platform == "win32":
                return False
            raise
        return True

    def make_folder(self, path: Path) -> None:
        """Create a folder and its missing parents, and sync their names."""
        missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
        for folder in reversed(missing):
            self._make_folder(folder)
            self.sync_folder(folder.parent)

    def sync_folder(self, folder: Path) -> None:
        """Return once the names of the files in ``folder`` are on the disk."""
        if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open folders; NTFS journals names
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _naming(folder, os.fsync, descriptor)
        finally:
            os.close(descriptor)

    def names(self, folder: Path) -> list[str]:
        """Return the sorted names in ``folder``; empty if it does not exist."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes; raise ``FileNotFoundError`` if it does not exist."""
        return path.stat().st_size

    def _make_folder(self, path: Path) -> None:
        path.mkdir(exist_ok=True)


DISK = FileSystem()  # the file system of the operating system; tests give others, which fail
"""The real disk."""


def write_durably(path: Path, content: bytes, files: FileSystem = DISK) -> None:
    """Create a file whose content is on the disk on return; after an error the file is removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_durably(Path(folder) / "new", b"frames")
    ...     (Path(folder) / "new").read_bytes()
    b'frames'
    """
    file = files.create(path)
    try:
        try:
            file.append(content)
            file.sync()
        finally:
            file.close()
    except BaseException:
        remove_if_possible(path, files)
        raise


def remove_if_possible(path: Path, files: FileSystem) -> None:
    """Remove a file if it exists and the disk allows it."""
    with suppress(OSError):
        files.remove(path)


def _naming(path: Path, operation: Callable[..., Result], *arguments: Any) -> Result:
    """Return ``operation(*arguments)``; its ``OSError`` names the file, which ``write`` and ``fsync`` do not know."""
    try:
        return operation(*arguments)
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
