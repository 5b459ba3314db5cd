"""Which generations the files of a folder belong to, also when a manifest is missing.

A manifest is *lost* if the state file of its generation is there. A generation is *begun* while its writer creates
files that no manifest names yet.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.frames.codec import checksum
from framestow.replay.store.format import FRAMES, STEPS, Manifest, manifest_of, read_checked_manifest
from framestow.replay.store.snapshot import MANIFEST_ARRAY, STATE_FILE, state_name, unpack_arrays
from framestow.storage.files.block_format import INDEX, LOG, repair_hint
from framestow.storage.files.block_log import leftover_files
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import (
    Begun,
    generations,
    list_begun_generations,
    list_superseded_generations,
    manifest_path,
    next_generation,
)

STORE_FILE = re.compile(rf"({FRAMES}|{STEPS})\.\d+\.({LOG}|{INDEX})|state\.\d+(\.repaired)?\.npz")
"""Logs, their indices, and state files."""


def generations_by_state(folder: Path, files: FileSystem = DISK) -> list[int]:
    """Return the generations that have a state file in ``folder``, ascending, except one that is being written."""
    begun = {one.generation for one in list_begun_generations(folder, files)}
    numbers = {int(name[1]) for name in map(STATE_FILE.fullmatch, files.names(folder)) if name}
    return sorted(numbers - begun)


def free_generation(folder: Path, files: FileSystem = DISK) -> int:
    """Return a number above every generation and every state file in ``folder``."""
    states = filter(None, map(STATE_FILE.fullmatch, files.names(folder)))
    return max(next_generation(folder, files), 1 + max((int(name[1]) for name in states), default=0))


def newest_generation(folder: Path, files: FileSystem = DISK) -> int | None:
    """Return the newest generation in ``folder``, or ``None`` if no memory was saved there.

    Another process may write meanwhile.

    Raises:
        DamagedDataError: files of a memory are there and the manifest that names them is missing.
    """
    while True:
        names, numbers = files.names(folder), generations(folder, files)
        lost = _find_lost_manifest(folder, numbers, files)
        if lost is None:
            return numbers[-1] if numbers else None
        if names == files.names(folder):  # otherwise a writer may have added the manifest between two looks
            raise lost


def _find_lost_manifest(folder: Path, numbers: list[int], files: FileSystem) -> DamagedDataError | None:
    """Return an error if the manifest of the newest generation is missing, otherwise ``None``."""
    if not numbers:
        unnamed = list_unnamed_files(folder, files)
        if unnamed:
            return DamagedDataError(
                f"{folder}: {unnamed[0]} is there, and no MANIFEST: a manifest names the files of a memory; "
                f"{repair_hint(folder)}, or give another folder"
            )
        return None
    lost = [number for number in list_lost_generations(folder, files) if number > numbers[-1]]
    if not lost:
        return None
    path = manifest_path(folder, lost[-1])
    return DamagedDataError(
        f"{path}: the file is missing: it names the newest generation of the memory; {repair_hint(folder)}"
    )


def list_unnamed_files(folder: Path, files: FileSystem) -> list[str]:
    """Return the names of logs and states in a folder without a manifest, except those of an unfinished first save."""
    names = set(filter(STORE_FILE.fullmatch, files.names(folder)))
    for begun in list_begun_generations(folder, files):
        names -= {path.name for path in files_of_begun(folder, begun, (), files)}
    return sorted(names)


def files_of_begun(folder: Path, begun: Begun, manifests: Iterable[Manifest], files: FileSystem = DISK) -> list[Path]:
    """Return the files in ``folder`` that the writer of a begun generation created and none of ``manifests`` names."""
    manifests = list(manifests)
    own = {begun.unfinished_manifest, state_name(begun.generation)} - {one.state["name"] for one in manifests}
    found = [folder / name for name in files.names(folder) if name in own]
    for first_file, log in zip(begun.first_files, (FRAMES, STEPS), strict=False):
        found += leftover_files(folder, log, first_file, [getattr(one, log) for one in manifests], files)
    return found


def list_lost_generations(folder: Path, files: FileSystem = DISK) -> list[int]:
    """Return the generations without a manifest whose state file is whole, ascending.

    Beside manifests, a state file counts only if its memory was saved after or beside one of theirs: files of another
    memory, of an unfinished save, and of a superseded generation are none.
    """
    numbers = generations(folder, files)
    candidates = (
        set(generations_by_state(folder, files)) - set(numbers) - set(list_superseded_generations(folder, files))
    )
    known: list[Manifest] = []
    for number in numbers if candidates else ():
        with suppress(DamagedDataError, IncompatibleError, FileNotFoundError):
            known.append(read_checked_manifest(folder, number, files))
    lost = []
    for number in sorted(candidates):
        manifest = manifest_in_state(folder, number, files)
        if manifest is not None and (not numbers or any(_are_of_one_memory(manifest, other) for other in known)):
            lost.append(number)
    return lost


def _are_of_one_memory(manifest: Manifest, other: Manifest) -> bool:
    return other.commit in manifest.follows or manifest.generation in other.kept


def manifest_in_state(folder: Path, generation: int, files: FileSystem = DISK) -> Manifest | None:
    """Rebuild a generation's manifest from its state file, under a new commit name.

    Returns ``None`` if the state file is damaged or missing.
    """
    for is_repaired in (False, True):
        name = state_name(generation, is_repaired=is_repaired)
        path = str(folder / name)
        try:
            content = files.read(folder / name)
            fields = json.loads(unpack_arrays(content, path)[MANIFEST_ARRAY].tobytes())
            entry = {"name": name, "bytes": len(content), "checksum": checksum(content)}
            if fields["generation"] == generation:
                return manifest_of(fields | {"state": entry, "commit": secrets.token_hex(16)}, path, generation)
        except (OSError, LookupError, TypeError, ValueError):
            continue
    return None
