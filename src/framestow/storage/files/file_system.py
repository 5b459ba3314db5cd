"""The one door to the files of stores and runs, which anyone may have made. Tests may replace the disk behind it.

The folder that a caller names is found as the system finds it. What it contains is never followed elsewhere: a file is
opened only if it is a regular one, and a subfolder entered only if it is a folder (``is_folder``). A link, pipe, device
or folder in place of a file raises ``DamagedDataError`` before a byte of it is read or written. A file with several
names is read, but never changed: who replaces or removes it changes one of its names only.

Every writer of a store takes ``files: FileSystem = DISK``. After a loss of power only two things are guaranteed, as by
POSIX: the content of a file after ``sync``, and the names in a folder after ``sync_folder``. An ``OSError`` always
names its file.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.interface import Closing

if sys.platform == "darwin":
    import fcntl

Result = TypeVar("Result")
MOST_BYTES = 64 * 2**20  # of a file that is read whole, and whose size nothing announces

# Windows has neither: there, a link is found before and after the file is opened.
_NOT_FOLLOWED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FLAGS = {"xb": os.O_CREAT | os.O_EXCL | os.O_WRONLY, "rb+": os.O_RDWR}  # by the mode of an ``AppendFile``
# What fsync of a folder gives on file systems that cannot sync one (SMB, some FUSE): they write names by themselves.
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
_TEMPORARY = re.compile(r"(.+)\.[0-9a-f]{16}\.new", re.DOTALL)  # its group is the name that the file gets


class AppendFile(Closing):
    """A file that grows at its end, for one thread at a time.

    The mode ``xb`` creates it, and ``rb+`` opens an existing one with a single name. A failing ``append`` leaves
    ``size`` unchanged; its bytes are cut off or overwritten.
    """

    def __init__(self, path: Path, size: int, mode: str) -> None:
        self.path = path
        self.size = size
        """Size of the file in bytes, with everything appended, synced or not."""
        self._raw = FileIO(open_file(path, _FLAGS[mode]), mode)

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
        self._raw = FileIO(open_file(path, os.O_RDONLY), "rb")
        self._seeking = threading.Lock()  # on Windows, held between a seek and its read

    @property
    def size(self) -> int:
        """Current size of the file in bytes."""
        return os.fstat(self._raw.fileno()).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``; fewer at the end of the file, whatever ``size`` is."""
        stop, parts = min(offset + size, self.size), []
        while offset < stop and (part := _naming(self.path, self._read_at, offset, stop - offset)):
            parts.append(part)  # one system call reads at most 2 GiB
            offset += len(part)
        return b"".join(parts)

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
        """Create an empty file exclusively. The name is durable after ``sync_folder``.

        Raises:
            FileExistsError: a file has that name.
            DamagedDataError: a link, a folder or anything else than a file has it.
        """
        return self._open(path, 0, "xb")

    def open_at(self, path: Path, size: int) -> AppendFile:
        """Open an existing file to append after its first ``size`` bytes; the rest is cut off.

        Raises:
            DamagedDataError: it is no file.
            IncompatibleError: the file has several names (``has_one_name``).
        """
        file = self._open(path, size, "rb+")
        try:
            file.cut(size)
        except BaseException:
            file.close()
            raise
        return file

    def open_to_read(self, path: Path) -> ReadFile:
        """Open a file to read; raise ``FileNotFoundError`` if it does not exist, ``DamagedDataError`` if it is none."""
        return ReadFile(path)

    def read(self, path: Path, most: int = MOST_BYTES) -> bytes:
        """Return the whole content of a file; raise ``DamagedDataError`` if it has more than ``most`` bytes."""
        with self.open_to_read(path) as file:
            if (size := file.size) > most:
                raise DamagedDataError(
                    f"{path}: it has {size:,} bytes: at most {most:,} belong there; use a whole copy"
                )
            return file.read_at(0, size)

    def replace(self, old: Path, new: Path) -> None:
        """Rename ``old`` to ``new`` atomically, replacing an existing file; a link is renamed or replaced itself."""
        try:
            os.replace(old, new)
        except (IsADirectoryError, PermissionError):
            _check_is_no_folder(new)
            raise

    def remove(self, path: Path) -> bool:
        """Remove a file or link if it exists; return False if it is in use, which only Windows refuses.

        Raises:
            DamagedDataError: it is a folder.
        """
        try:
            path.unlink(missing_ok=True)
        except (IsADirectoryError, PermissionError):
            _check_is_no_folder(path)
            if sys.platform == "win32":
                return False
            raise
        return True

    def make_folder(self, path: Path) -> None:
        """Create a folder and its missing parents, and sync their names.

        Raises:
            IncompatibleError: the file system is read-only.
        """
        missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
        for folder in reversed(missing):
            try:
                self._make_folder(folder)
            except OSError as error:
                if error.errno == errno.EROFS:
                    raise read_only_error(folder) from error
                raise
            self.sync_folder(folder.parent)

    def sync_folder(self, folder: Path) -> None:
        """Return once the names of the files in ``folder`` are on the disk, as far as its file system can say so."""
        if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open folders; NTFS journals names
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _naming(folder, os.fsync, descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(descriptor)

    def names(self, folder: Path) -> list[str]:
        """Return the sorted names in ``folder``; empty if it does not exist."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def status(self, path: Path) -> os.stat_result:
        """Return size, time and number of names of a file.

        Raises:
            FileNotFoundError: it does not exist.
            DamagedDataError: it is no file.
        """
        found = os.lstat(path)
        _check_is_file(path, found)
        return found

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes; raises as ``status``."""
        return self.status(path).st_size

    def has_one_name(self, path: Path) -> bool:
        """Return whether a file may be changed: a backup by ``cp -al``, say, has each file under another name too."""
        return self.status(path).st_nlink == 1

    def is_folder(
        self, path: Path, *, follow_links: bool = False, way_out: str = "put the folder itself there"
    ) -> bool:
        """Return whether a subfolder exists. ``follow_links`` allows a link to a folder.

        Raises:
            DamagedDataError: something else has that name; the message has the target of a link, and ``way_out``.
        """
        try:
            found = path.stat() if follow_links and path.is_dir() else os.lstat(path)
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(found.st_mode):
            raise DamagedDataError(
                f"{path}: it is {_kind(path, found)}, where a folder belongs: no link is followed there; {way_out}"
            )
        return True

    def _open(self, path: Path, size: int, mode: str) -> AppendFile:
        return AppendFile(path, size, mode)

    def _make_folder(self, path: Path) -> None:
        path.mkdir(exist_ok=True)


DISK = FileSystem()  # the file system of the operating system; tests give others, which fail
"""The real disk."""


def open_file(path: Path, flags: int) -> int:
    """Return the descriptor of a regular file, as ``os.open``; the last component of its path is never followed.

    Raises:
        DamagedDataError: it is a link, a folder, a pipe, a device or a socket.
        IncompatibleError: it has several names, and ``flags`` open it to write.
    """
    try:
        before = os.lstat(path)
        _check_is_file(path, before)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
        before = None
    descriptor = os.open(path, flags | _NOT_FOLLOWED | getattr(os, "O_BINARY", 0), 0o666)
    try:
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode) or (not _NOT_FOLLOWED and before and not os.path.samestat(before, opened)):
            raise DamagedDataError(f"{path}: another file was put in its place while it was opened; open it again")
        if flags & (os.O_WRONLY | os.O_RDWR) and opened.st_nlink > 1:
            raise IncompatibleError(
                f"{path}: the file has {opened.st_nlink} names, such as a backup by `cp -al` gives it: a change would "
                "change them all; replace this one by a copy"
            )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def status_of_name(path: Path) -> os.stat_result:
    """Return what has this name, without following it: a file, a link, or anything else."""
    return os.lstat(path)


def write_durably(path: Path, content: bytes, files: FileSystem = DISK) -> None:
    """Create a file whose content is on the disk on return; after an error the file is removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_durably(Path(folder) / "new", b"frames")
    ...     (Path(folder) / "new").read_bytes()
    b'frames'
    """
    file = files.create(path)  # not below: what refuses to be replaced is not removed
    try:
        with file:
            file.append(content)
            file.sync()
    except BaseException:
        remove_if_possible(path, files)
        raise


def write_atomically(
    path: Path, content: bytes, files: FileSystem = DISK, *, is_durable: bool = True, new: Path | None = None
) -> None:
    """Write the file ``path``, which a reader sees whole: the former content or this one.

    ``new`` is its name while it is written. If it is durable, the other names in the folder are so before it. If
    only the last sync of the folder fails, the
    file exists, but a loss of power may remove it.
    """
    new = new or temporary_path(path)
    try:
        with files.create(new) as file:
            file.append(content)
            if is_durable:
                file.sync()
        if is_durable:
            files.sync_folder(path.parent)
        files.replace(new, path)
    except BaseException as error:
        remove_if_possible(new, files)
        if isinstance(error, OSError) and str(error.filename) == str(new):
            error.filename = str(path)  # a caller does not know the temporary file
            del error.filename2  # set to None, the message ends in " -> None"
        raise
    if is_durable:
        files.sync_folder(path.parent)


def check_can_write(path: Path, files: FileSystem = DISK) -> None:
    """Raise ``OSError`` unless ``write_atomically`` can write the file ``path`` now."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    new = temporary_path(path)
    try:
        files.create(new).close()
    except OSError as error:
        error.filename = str(path)
        raise
    files.remove(new)


def temporary_path(path: Path) -> Path:
    """Return a path beside ``path`` for its new version while it is written: a name that nobody can guess."""
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")


def finished_name(name: str) -> str | None:
    """Return the name that a temporary file would have got; ``None`` for other names.

    >>> finished_name("settings.json.0123456789abcdef.new")
    'settings.json'
    """
    match = _TEMPORARY.fullmatch(name)
    return match[1] if match else None


def remove_unfinished(path: Path, files: FileSystem = DISK) -> None:
    """Remove the temporary files of ``path`` that a killed process left; only its one writer may call it."""
    for name in files.names(path.parent):
        if finished_name(name) == path.name:
            files.remove(path.with_name(name))


def remove_if_possible(path: Path, files: FileSystem) -> None:
    """Remove a file if it exists and the disk allows it."""
    with suppress(OSError):
        files.remove(path)


def _check_is_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise DamagedDataError(
            f"{path}: it is {_kind(path, found)}, where a file belongs: nothing else is read or written there; put the "
            "file itself there"
        )


def _check_is_no_folder(path: Path) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISDIR((found := os.lstat(path)).st_mode):
            _check_is_file(path, found)


def read_only_error(path: Path) -> IncompatibleError:
    """Return the error of a file or folder that a read-only file system does not let anyone write."""
    return IncompatibleError(
        f"{path}: its file system is read-only, so nothing can be written there; give another folder, or read what is "
        "there, which writes nothing (`ReplayMemory.open` and `load`)"
    )


def _kind(path: Path, found: os.stat_result) -> str:
    """Return what a path is, in words; the target of a link may have any characters, so it is escaped."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFREG: "a file"}
    if stat.S_ISLNK(found.st_mode):
        return f"a link to {os.readlink(path)!r}"
    return kinds.get(stat.S_IFMT(found.st_mode), "a device")


def _naming(path: Path, operation: Callable[..., Result], *arguments: Any) -> Result:
    """Return ``operation(*arguments)``; its ``OSError`` names the file, which ``write`` and ``fsync`` do not know."""
    try:
        return operation(*arguments)
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
