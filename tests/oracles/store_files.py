"""Which files of a store belong to what its newest manifest names, and which nobody accounts for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from framestow.replay.store import writer as store_writer
from framestow.replay.store.format import FRAMES, LOCK, STEPS, checked_manifest
from framestow.storage.files.block_format import INDEX, LOG, file_name
from framestow.storage.files.manifest import generations, manifest_path


def unaccounted(folder: Path) -> set[str]:
    """Names of files, and ends of files, that no generation which stays needs."""
    newest = checked_manifest(folder, generations(folder)[-1])
    ends = {LOCK: None}
    for generation in (*newest.kept, newest.generation):
        manifest = checked_manifest(folder, generation)
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
    """Let the logs of stores roll at ``num_bytes``, so that small ones roll, reclaim and compact."""
    usual, store_writer.FILE_BYTES = store_writer.FILE_BYTES, num_bytes
    try:
        yield
    finally:
        store_writer.FILE_BYTES = usual
