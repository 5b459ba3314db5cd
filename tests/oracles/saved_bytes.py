"""The content of a saved memory, to compare two of them."""

from __future__ import annotations

from pathlib import Path

from framestow.replay.store.format import FRAMES, STEPS
from framestow.storage.files.block_log_reader import BlockLogReader
from oracles.store_files import read_commit

COMPARED = "memory", "frames_per_segment", "num_transitions", "is_pinned", "is_closed"


def saved_bytes(folder: Path) -> dict[str, object]:
    """Return all blocks and arrays of the newest generation, and the fields that are not random."""
    commit, arrays = read_commit(folder)
    found: dict[str, object] = {name: getattr(commit, name) for name in COMPARED}
    found |= {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}
    for name in (FRAMES, STEPS):
        with BlockLogReader.open(commit.place(folder, name), getattr(commit, name)) as log:
            found[f"blocks of {name}"] = {key: log.read(key) for key in log}
    return found
