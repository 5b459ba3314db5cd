"""A memory as bytes, for libraries that pickle their buffers."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from framestow.replay.memory import ReplayMemory


def memory_to_bytes(memory: ReplayMemory) -> dict[str, bytes]:
    """Give what ``memory.save`` writes, by file name: about what the memory takes packed, and on disk for a moment."""
    with TemporaryDirectory(prefix="framestow-") as folder:
        memory.save(folder)
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }


def memory_from_bytes(files: dict[str, bytes], threads: int = 1) -> ReplayMemory:
    """Give the memory back, generator and open episodes included; every byte is checked.

    ``threads``: as for a new memory, since they are not saved. Raises ``DamagedDataError`` for bytes that are not what
    was saved.
    """
    with TemporaryDirectory(prefix="framestow-") as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return ReplayMemory.load(folder, threads=threads)
