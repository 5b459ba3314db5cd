"""Memory without a name that a process shares with its workers."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import uuid
from multiprocessing import reduction
from typing import Any


class SharedBlock:
    """Memory that nothing can leave behind, whoever dies: no directory ever lists it.

    On Linux it is a ``memfd``, elsewhere on POSIX a temporary file that was deleted as it was made, on Windows a named
    mapping that ends with its last holder. It travels to a worker among the arguments of its process, under any start
    method, and may be given its size later: the spaces that decide the size are known only once a worker has made its
    environments.
    """

    def __init__(self) -> None:
        self._name = f"framestow-{uuid.uuid4().hex}"
        self._file = -1 if sys.platform == "win32" else _unnamed_file(self._name)

    def grow(self, nbytes: int) -> None:
        """Give it its size; done once, by the process that made it, before anyone maps it."""
        if self._file >= 0:
            os.ftruncate(self._file, nbytes)

    def mapped(self, nbytes: int) -> mmap.mmap:
        """Map all of it; the mapping lives as long as an array over it does."""
        if sys.platform == "win32":
            return mmap.mmap(-1, nbytes, tagname=self._name)
        return mmap.mmap(self._file, nbytes)

    def close(self) -> None:
        """Let go of the file; what is mapped stays."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self._name, "file": reduction.DupFd(self._file) if self._file >= 0 else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._name = state["name"]
        self._file = -1 if state["file"] is None else state["file"].detach()


def _unnamed_file(name: str) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
