"""Which files a saved memory takes: those that its generations name, and what is left over beside them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from framestow.replay.saving.store_format import FRAMES, KIND, STEPS, VERSION, Manifest, checked_manifest
from framestow.storage.files.block_format import ENTRY_BYTES, FILE_HEADER_BYTES, INDEX, LOG, file_name
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import MANIFEST, generations, manifest_path, read_manifest

PARTS = {FRAMES: "frames", STEPS: "steps", "state": "state", MANIFEST: "manifests"}
"""What people call the files whose names begin so."""


@dataclass(frozen=True)
class StoredFiles:
    """The files of a saved memory.

    ``bytes_by_part`` counts what belongs to the generation and to those kept beside it. ``left_over`` gives the
    bytes of each file, or at the end of one, that belong to none: what a crash left, or what a writer is just adding.
    """

    version: int
    generation: int
    manifest: Path
    kept_generations: list[int]
    bytes_by_part: dict[str, int]
    left_over: dict[str, int]


def stored_files(folder: Path, generation: int | None = None, files: FileSystem = DISK) -> StoredFiles:
    """Look at what lies in ``folder``: of its generations the newest unless one is given; also beside a writer.

    Raises ``FileNotFoundError`` where nothing was saved, ``DamagedDataError`` for a manifest that is not as it was
    written and ``IncompatibleError`` for one of another version.
    """
    while True:
        there = generations(folder, files)
        try:
            if not there:
                read_manifest(folder, KIND, VERSION, files=files)  # raises: there is none, or it is of another kind
            return _of_generations(folder, there, generation, files)
        except FileNotFoundError:  # a writer removed one between the listing and the reading
            if generations(folder, files) == there:
                raise


def _of_generations(folder: Path, there: list[int], generation: int | None, files: FileSystem) -> StoredFiles:
    newest = checked_manifest(folder, there[-1], files)
    kept = [checked_manifest(folder, number, files) for number in newest.kept if number in there]
    sizes = _sizes(folder, files)
    ends: dict[str, int] = {}
    for manifest in [*kept, newest]:
        own = manifest_path(folder, manifest.generation).name
        for name, end in {**_ends(manifest), own: sizes.get(own, 0)}.items():
            ends[name] = max(end, ends.get(name, 0))
    number = newest.generation if generation is None else generation
    numbers = [manifest.generation for manifest in [*kept, newest]]
    return StoredFiles(VERSION, number, manifest_path(folder, number), numbers, _by_part(ends), _beyond(ends, sizes))


def _ends(manifest: Manifest) -> dict[str, int]:
    """How much of which files a manifest names."""
    ends: dict[str, int] = {manifest.state["name"]: manifest.state["bytes"]}
    for log, state in ((FRAMES, manifest.frames), (STEPS, manifest.steps)):
        for file in state["files"]:
            ends[file_name(log, file["number"], LOG)] = file["bytes"]
            ends[file_name(log, file["number"], INDEX)] = FILE_HEADER_BYTES + file["blocks"] * ENTRY_BYTES
    return ends


def _by_part(ends: dict[str, int]) -> dict[str, int]:
    parts: dict[str, int] = {}
    for name, end in ends.items():
        part = "indices" if name.endswith(f".{INDEX}") else PARTS[name.partition(".")[0]]
        parts[part] = parts.get(part, 0) + end
    return {part: parts[part] for part in (*PARTS.values(), "indices") if part in parts}


def _beyond(ends: dict[str, int], sizes: dict[str, int]) -> dict[str, int]:
    return {name: size - ends.get(name, 0) for name, size in sizes.items() if size > ends.get(name, 0)}


def _sizes(folder: Path, files: FileSystem) -> dict[str, int]:
    """Bytes of each file of a memory that lies in ``folder``."""
    sizes = {}
    for name in files.names(folder):
        if name.partition(".")[0] in PARTS and (folder / name).is_file():
            with suppress(FileNotFoundError):  # a writer may take one away meanwhile
                sizes[name] = files.size(folder / name)
    return sizes
