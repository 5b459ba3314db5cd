"""Folders as a stranger may send them: something else in place of a file, and an outside that must stay as it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

NO_FILES = ["link", "dangling link", "link to a device", "pipe", "folder"] if os.name == "posix" else ["folder"]
"""What stands in place of a file and is none; on Windows links need rights that a test does not have."""
KINDS = [*NO_FILES, "second name"]
SECRET = b"ssh-ed25519 AAAA " * 40


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
