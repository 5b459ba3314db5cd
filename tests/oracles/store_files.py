"""Files of a store that its newest manifest does not account for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from framestow.replay.store import open_store
from framestow.replay.store.format import FRAMES, STEPS, read_checked_manifest
from framestow.storage.files.block_format import INDEX, LOG, file_name
from framestow.storage.files.manifest import generations, manifest_path
from framestow.storage.files.writer_lock import LOCK


def unaccounted(folder: Path) -> set[str]:
    """Return the names of files, and of overlong files, that no kept generation needs."""
    newest = read_checked_manifest(folder, generations(folder)[-1])
    ends = {LOCK: None}
    for generation in (*newest.kept, newest.generation):
        manifest = read_checked_manifest(folder, generation)
        ends[manifest_path(folder, generation).name] = None
        ends[manifest.state["name"]] = manifest.state["bytes"]
        for name, log in ((FRAMES, manifest.frames), (STEPS, manifest.steps)):
            for file in log["files"]:
                ends[file_name(name, file["number"], LOG)] = file["bytes"]
                ends[file_name(name, file["number"], INDEX)] = 32 + 32 * file["blocks"]
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    too_long = {
        f"{name}, {size - ends[name]} bytes" for name, size in sizes.items() if ends.get(name) not in (None, size)
    }
    return (sizes.keys() - ends.keys()) | too_long


@contextmanager
def log_files_of(num_bytes: int) -> Iterator[None]:
    """Limit log files to ``num_bytes``, so that small stores have several files, removals and compaction."""
    usual, open_store.FILE_BYTES = open_store.FILE_BYTES, num_bytes
    try:
        yield
    finally:
        open_store.FILE_BYTES = usual
