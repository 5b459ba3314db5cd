"""A limit to the RAM of a process, including the page cache of the files that it reads, on systems that have one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryLimit:
    """A memory control group for one process and its children; Linux only."""

    folder: Path
    is_version_2: bool

    @classmethod
    def make(cls, name: str, num_bytes: int) -> MemoryLimit | None:
        """Make a group of at most ``num_bytes``; None if this user or this system cannot."""
        is_version_2 = (CGROUPS / "cgroup.controllers").exists()
        folder = (CGROUPS if is_version_2 else CGROUPS / "memory") / name
        limit = cls(folder, is_version_2)
        try:
            folder.mkdir()
            limit._file("memory.max", "memory.limit_in_bytes").write_text(str(num_bytes))
        except OSError:
            return None
        return limit

    def enter(self) -> None:
        """Put this process and its later children under the limit."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        """Remove the group; its processes must have ended."""
        self.folder.rmdir()

    def figures(self) -> dict[str, int]:
        """Return the bytes under the limit: of processes, of the page cache, and the peak of both together."""
        stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        process, cache = ("anon", "file") if self.is_version_2 else ("rss", "cache")
        return {
            "limit": int(self._file("memory.max", "memory.limit_in_bytes").read_text()),
            "of_processes": int(stat[process]),
            "page_cache": int(stat[cache]),
            "most": int(self._file("memory.peak", "memory.max_usage_in_bytes").read_text()),
        }

    def _file(self, version_2: str, version_1: str) -> Path:
        return self.folder / (version_2 if self.is_version_2 else version_1)
