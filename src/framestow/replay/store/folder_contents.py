"""Which generations the files of a folder belong to, also when a manifest is missing.

A manifest is *lost* if the state file of its generation is there. A generation is *begun* while its writer creates
files that no manifest names yet.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.frames.codec import checksum
from framestow.replay.store.format import FRAMES, STEPS, Manifest, file_names, manifest_of, read_checked_manifest
from framestow.replay.store.snapshot import MANIFEST_ARRAY, STATE_FILE, state_name, unpack_arrays
from framestow.storage.files.block_format import INDEX, LOG, repair_hint
from framestow.storage.files.block_log import leftover_files
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import Begun, ManifestNames, manifest_path

STORE_FILE = re.compile(rf"({FRAMES}|{STEPS})\.\d+\.({LOG}|{INDEX})|{STATE_FILE.pattern}")
"""Logs, their indices, and state files."""

Read = TypeVar("Read")


class FolderContents:
    """The files in the folder of a store, by their generations, from one listing."""

    def __init__(self, folder: Path, files: FileSystem = DISK) -> None:
        self._folder, self._disk = folder, files
        self.names = files.names(folder)
        self.manifests = ManifestNames.of(self.names, folder, files)
        self._states = sorted(int(match[1]) for match in map(STATE_FILE.fullmatch, self.names) if match)

    @property
    def free_generation(self) -> int:
        """A number above every generation and every state file."""
        return max(self.manifests.next_generation, 1 + max(self._states, default=0))

    def list_states(self) -> list[int]:
        """Return the generations that have a state file, ascending, except one that is being written."""
        return sorted(set(self._states) - {one.generation for one in self.manifests.begun})

    @property
    def newest_generation(self) -> int | None:
        """The newest generation, or ``None`` if no memory was saved here.

        Raises:
            DamagedDataError: files of a memory are there and the manifest that names them is missing.
        """
        folder, newest = self._folder, max(self.manifests.generations, default=None)
        if newest is None:
            unnamed = self.list_unnamed()
            if unnamed:
                raise DamagedDataError(
                    f"{folder}: {unnamed[0]} is there, and no MANIFEST: a manifest names the files of a memory; "
                    f"{repair_hint(folder)}, or give another folder"
                )
            return None
        lost = max(self.list_lost(), default=0)
        if lost > newest:
            raise DamagedDataError(
                f"{manifest_path(folder, lost)}: the file is missing: it names the newest generation of the memory; "
                f"{repair_hint(folder)}"
            )
        return newest

    def list_unnamed(self) -> list[str]:
        """Return the logs and states of a folder without a manifest.

        Files of an unfinished first save are left out. So are those that superseded manifests name: a writer was killed
        while it removed every generation.
        """
        names = set(filter(STORE_FILE.fullmatch, self.names))
        for begun in self.manifests.begun:
            names -= {path.name for path in self.files_of(begun, ())}
        for number in self.manifests.superseded:
            with suppress(DamagedDataError, IncompatibleError):
                names -= file_names(read_checked_manifest(self._folder, number, self._disk, is_superseded=True))
        return sorted(names)

    def files_of(self, begun: Begun, manifests: Iterable[Manifest]) -> list[Path]:
        """Return the files that the writer of a begun generation created and none of ``manifests`` names."""
        manifests = list(manifests)
        own = {begun.unfinished_manifest, state_name(begun.generation)} - {one.state["name"] for one in manifests}
        found = [name for name in self.names if name in own]
        for first_file, log in zip(begun.first_files, (FRAMES, STEPS), strict=False):
            found += leftover_files(self.names, log, first_file, [getattr(one, log) for one in manifests])
        return [self._folder / name for name in found]

    def list_lost(self) -> list[int]:
        """Return the generations without a manifest whose state file is whole, ascending.

        Beside manifests, a state file counts only if its memory was saved after or beside one of theirs: files of
        another memory, of an unfinished save, and of a superseded generation are none.
        """
        numbers = self.manifests.generations
        candidates = set(self.list_states()) - set(numbers) - set(self.manifests.superseded)
        known: list[Manifest] = []
        for number in numbers if candidates else ():
            with suppress(DamagedDataError, IncompatibleError, FileNotFoundError):
                known.append(read_checked_manifest(self._folder, number, self._disk))
        lost = []
        for number in sorted(candidates):
            manifest = manifest_in_state(self._folder, number, self._disk)
            if manifest is not None and (not numbers or any(_are_of_one_memory(manifest, other) for other in known)):
                lost.append(number)
        return lost


def read_while_written(folder: Path, read: Callable[[FolderContents], Read], files: FileSystem = DISK) -> Read:
    """Return ``read(contents)``; call it again if it failed because a writer changed the folder meanwhile."""
    while True:
        contents = FolderContents(folder, files)
        try:
            return read(contents)
        except (FileNotFoundError, DamagedDataError):
            if contents.names == files.names(folder):
                raise


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
