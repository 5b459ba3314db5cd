"""Folders as a stranger may send them: something else in place of a file, and an outside that must stay as it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from framestow.errors import FramestowError
from framestow.storage.files.file_system import finished_name
from oracles.patience import PATIENCE_S
from oracles.watched_disk import Operation, Result, WatchedDisk, as_the_disk

NO_FILES = ["link", "dangling link", "link to a device", "pipe", "folder"] if os.name == "posix" else ["folder"]
"""What stands in place of a file and is none; on Windows links need rights that a test does not have."""
KINDS = [*NO_FILES, "second name"]
SECRET = b"ssh-ed25519 AAAA " * 40
SPARE_BYTES = 2 * 2**30  # of address space, for an operation on a folder of some kilobytes
Operations = Mapping[str, Callable[[Path], object]]


class Outside:
    """A folder beside the hostile one, with a file that links and second names lead to."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.file = folder, folder / "authorized_keys"
        self.file.write_bytes(SECRET)
        self._as_it_was = self._look()

    def plant(self, kind: str, path: Path, content: bytes | None = None) -> None:
        """Put something of ``kind`` in place of the file ``path``, if there is one.

        A second name is one of a file outside with the ``content``, so that it is whole: that of ``path`` by default.
        """
        if content is None and path.is_file() and not path.is_symlink():
            content = path.read_bytes()
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        elif os.path.lexists(path):
            path.unlink()
        put: dict[str, Callable[[], object]] = {
            "link": lambda: path.symlink_to(os.path.relpath(self.file, path.parent)),
            "dangling link": lambda: path.symlink_to(self.folder / "made_by_framestow"),
            "link to a device": lambda: path.symlink_to("/dev/zero"),
            "pipe": lambda: os.mkfifo(path),
            "folder": path.mkdir,
            "second name": lambda: os.link(self.file, path),
        }
        if kind == "second name" and content is not None:
            self.file.write_bytes(content)
            self._as_it_was = self._look()
        put[kind]()

    def check(self) -> None:
        """Fail if anything outside was changed, made or removed."""
        now = self._look()
        assert now == self._as_it_was, f"outside there was {self._as_it_was}, and is {now}"

    def _look(self) -> dict[str, tuple[bytes, int]]:
        """Return the content of each file outside, and when it was changed."""
        return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(self.folder.iterdir())}


class NotedDisk(WatchedDisk):
    """The real disk, and the names of all files that were made, changed, renamed or removed on it."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()

    def perform(self, operation: Operation, act: Callable[[Operation], Result]) -> Result:
        if operation.name not in ("make folder", "sync folder"):
            self.paths |= {operation.path} | ({operation.new_path} if operation.new_path else set())
        return act(operation)


def names_in_use(folder: Path, operations: Operations) -> list[str]:
    """Run ``operations`` on ``folder``; return the names of the files that it had, and of those that they touched.

    Nobody can plant something under the name of a temporary file, so these are left out.
    """
    disk, names = NotedDisk(), {path.name for path in folder.iterdir()}
    with as_the_disk(disk):
        for operation in operations.values():
            operation(folder)
    touched = {path.name for path in disk.paths if path.parent == folder}
    return sorted(name for name in names | touched if finished_name(name) is None)


class Hang(BaseException):
    """Not an ``Exception``, so that no code handles it as an error of the disk."""


@contextmanager
def bounded() -> Iterator[None]:
    """Fail instead of waiting for a pipe for ever, or of filling all RAM with what a device gives."""
    if os.name != "posix":
        yield
        return
    import resource  # noqa: PLC0415  (Windows has none)

    def stop(*_: object) -> None:
        raise Hang

    usual = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, stop)
    statm = Path("/proc/self/statm")
    used = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 2**36
    signal.alarm(int(PATIENCE_S))
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES, usual[0][1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, usual[0])
        signal.alarm(0)
        signal.signal(signal.SIGALRM, usual[1])


def outcomes(folder: Path, operations: Operations) -> dict[str, Exception | None]:
    """Run ``operations`` on a hostile folder; return the error that each of them raised.

    Other errors than framestow's, and ``FileNotFoundError`` of a folder without a memory, pass through.
    """
    found: dict[str, Exception | None] = {}
    with bounded():
        for name, operation in operations.items():
            try:
                operation(folder)
                found[name] = None
            except (FramestowError, FileNotFoundError) as error:
                found[name] = error
    return found
