"""The few operations that touch a disk, so that everything above them can be tried with a disk that fails.

Whatever writes a store takes ``files: FileSystem = DISK``. What lasts through a loss of power is what POSIX promises
and no more: a file's content after :meth:`AppendFile.sync`; which files a folder has, and under which names, after
:meth:`FileSystem.sync_folder`. An error always names its file.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from types import TracebackType

if sys.platform == "darwin":
    import fcntl


class AppendFile:
    """A file that grows at its end.

    An :meth:`append` that fails leaves :attr:`size` as it was, and what it wrote is cut off or written over. For one
    thread at a time.
    """

    def __init__(self, path: Path, size: int, mode: str) -> None:
        self.path = path
        self.size = size
        """Bytes that the file has by what was appended, synced or not."""
        with _naming(path):
            self._raw = FileIO(path, mode)

    def append(self, content: bytes) -> None:
        """Write ``content`` behind what is there: to the page cache, not yet to the disk."""
        view = memoryview(content)
        written = 0
        with _naming(self.path):
            try:
                while written < len(view):
                    written += self._write(view[written:], self.size + written)
            except OSError:
                with suppress(OSError):  # a full disk gets its room back; where this fails too, it is written over
                    self._cut(self.size)
                raise
        self.size += len(view)

    def sync(self) -> None:
        """Return when everything that was appended is on the disk.

        After an error nobody knows what is: Linux forgets the pages that it could not write, and the next sync says
        nothing of them. So what was appended since the last sync has to be written anew, into another file.
        """
        with _naming(self.path):
            self._sync()

    def cut(self, size: int) -> None:
        """Let the file end at ``size``."""
        with _naming(self.path):
            self._cut(size)
        self.size = size

    def close(self) -> None:
        """Close the file, which syncs nothing. Closing it again does nothing."""
        self._raw.close()

    def __enter__(self) -> AppendFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _write(self, content: memoryview, offset: int) -> int:
        """Write some of ``content`` by one system call; return how much."""
        self._raw.seek(offset)
        return self._raw.write(content)

    def _cut(self, size: int) -> None:
        self._raw.truncate(size)

    def _sync(self) -> None:
        if sys.platform == "darwin":  # there fsync only hands the bytes to the drive, which may keep them in its cache
            with suppress(OSError):  # network file systems know no F_FULLFSYNC
                fcntl.fcntl(self._raw.fileno(), fcntl.F_FULLFSYNC)
                return
        os.fsync(self._raw.fileno())


class ReadFile:
    """A file that is read at any place, by any number of threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _naming(path):
            self._raw = FileIO(path, "rb")
        self._seeking = threading.Lock()

    @property
    def size(self) -> int:
        """Bytes that the file has now."""
        return os.fstat(self._raw.fileno()).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on; fewer where the file ends before."""
        with _naming(self.path):
            if sys.platform != "win32":
                return os.pread(self._raw.fileno(), size, offset)
            with self._seeking:
                self._raw.seek(offset)
                return self._raw.read(size)

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        self._raw.close()

    def __enter__(self) -> ReadFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class FileSystem:
    """The disk as a store sees it; the tests have others, which fail, kill and lose power."""

    def create(self, path: Path) -> AppendFile:
        """Make an empty file, in the place of one that is there. Its name lasts from :meth:`sync_folder` on."""
        return AppendFile(path, 0, "wb")

    def open_at(self, path: Path, size: int) -> AppendFile:
        """Open a file that exists to go on behind its first ``size`` bytes; what lies there is cut off."""
        file = AppendFile(path, size, "rb+")
        try:
            file.cut(size)
        except OSError:
            file.close()
            raise
        return file

    def open_to_read(self, path: Path) -> ReadFile:
        """Open a file to read it; ``FileNotFoundError`` if it is not there."""
        return ReadFile(path)

    def read(self, path: Path) -> bytes:
        """Return the whole content of a file."""
        return path.read_bytes()

    def replace(self, old: Path, new: Path) -> None:
        """Give ``old`` the name ``new``, in the place of what had it, in one step."""
        os.replace(old, new)

    def remove(self, path: Path) -> bool:
        """Remove a file, one that is not there too; return False if it is in use, as only Windows minds."""
        try:
            path.unlink(missing_ok=True)
        except PermissionError:
            if sys.platform == "win32":
                return False
            raise
        return True

    def make_folder(self, path: Path) -> None:
        """Make a folder, those above it that are missing too, and let them last."""
        missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
        for folder in reversed(missing):
            self._make_folder(folder)
            self.sync_folder(folder.parent)

    def sync_folder(self, folder: Path) -> None:
        """Return when it is on the disk which files ``folder`` has, and under which names."""
        if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folders; NTFS logs names by itself
            return
        with _naming(folder):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def names(self, folder: Path) -> list[str]:
        """Return the names of what lies in ``folder``, sorted; none where there is no such folder."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def size(self, path: Path) -> int:
        """Return the bytes of a file; ``FileNotFoundError`` if it is not there."""
        return path.stat().st_size

    def _make_folder(self, path: Path) -> None:
        path.mkdir(exist_ok=True)


DISK = FileSystem()
"""The real one."""


@contextmanager
def durable_file(path: Path, files: FileSystem = DISK) -> Iterator[AppendFile]:
    """Make a new file whose content is on the disk when the block ends; after an error it is removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with durable_file(Path(folder) / "new") as file:
    ...         file.append(b"frames")
    ...     (Path(folder) / "new").read_bytes()
    b'frames'
    """
    file = files.create(path)
    try:
        with file:
            yield file
            file.sync()
    except BaseException:
        with suppress(OSError):
            files.remove(path)
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the file's name into an ``OSError`` that has none: a write knows a number only."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
