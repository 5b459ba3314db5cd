"""Generations of a saved ``ShardedReplay``: which generation of each shard belongs together.

::

    memory/
        shard-0/, shard-1/, …   the stores of the shards (docs/saving.md)
        MANIFEST.000007         generation 7: the generation of each shard, the counts and the random generator

A manifest is written after all shards have saved, and older generations are deleted after that. So a crash at any
moment leaves a generation whose shards are all complete.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.interface import plural
from framestow.replay.store.format import COUNTS, check_fields
from framestow.replay.store.open_store import keep_only as keep_only_generation
from framestow.replay.store.open_store import start_over as start_over_in_store
from framestow.storage.files.file_system import DISK
from framestow.storage.files.manifest import (
    ManifestNames,
    generations,
    manifest_path,
    read_manifest,
    write_manifest,
)

KIND, VERSION = "framestow sharded replay", 1


def shard_folder(folder: Path, number: int) -> Path:
    """Return the folder of a shard's memory; raise ``DamagedDataError`` if a link or a file has its name."""
    path = folder / f"shard-{number}"
    DISK.is_folder(path)
    return path


@dataclass(frozen=True)
class SavedReplay:
    """A generation: that of each shard, and the state of the replay as values for JSON."""

    generations: tuple[int, ...]  # by shard
    state: dict[str, Any]

    def of_shard(self, folder: Path, number: int) -> tuple[Path, int]:
        """Return the folder and generation of a shard."""
        return shard_folder(folder, number), self.generations[number]


def write_generation(folder: Path, of_shards: list[int], state: dict[str, Any]) -> int:
    """Write the next generation and return its number."""
    DISK.make_folder(folder)
    number = ManifestNames.read(folder).next_generation
    write_manifest(folder, KIND, VERSION, {"shards": of_shards, "state": state}, generation=number)
    return number


def read_generation(folder: Path, generation: int, num_shards: int | None = None) -> SavedReplay:
    """Return a generation; raises ``FileNotFoundError`` if it is not there.

    Raises:
        IncompatibleError: it has another number of shards than ``num_shards``.
        DamagedDataError: a shard is missing, or its folder is a link.
    """
    content = read_manifest(folder, KIND, VERSION, generation=generation)
    check_fields(content, {"shards": COUNTS, "state": {}}, str(manifest_path(folder, generation)))
    for number in range(len(content["shards"])):
        if not DISK.is_folder(shard := shard_folder(folder, number)):
            raise DamagedDataError(f"{shard}: the folder of a shard is missing; load an older save")
    saved = SavedReplay(tuple(content["shards"]), content["state"])
    if num_shards not in (None, len(saved.generations)):
        raise IncompatibleError(
            f"{folder} has the save of a replay with {plural(len(saved.generations), 'shard')}: this one has "
            f"{num_shards}; give "
            "the same number"
        )
    return saved


def prune_before(folder: Path, generation: int) -> None:
    """Delete the manifests of the generations before ``generation``."""
    _remove_manifests(folder, [number for number in generations(folder) if number < generation])


def is_sharded(folder: Path) -> bool:
    """Return whether ``folder`` has the memory of a ``ShardedReplay``."""
    return DISK.is_folder(shard_folder(folder, 0))


def memory_folders(folder: Path) -> list[Path]:
    """Return the folders of all shards if ``folder`` has the memory of a ``ShardedReplay``, otherwise ``folder``."""
    shards = (shard_folder(folder, number) for number in itertools.count())
    return list(itertools.takewhile(DISK.is_folder, shards)) or [folder]


def keep_only(folder: Path, generation: int) -> None:
    """Delete all generations but ``generation``, of the replay and of its shards."""
    saved = read_generation(folder, generation)
    for number in range(len(saved.generations)):
        keep_only_generation(*saved.of_shard(folder, number))
    _remove_manifests(folder, [number for number in generations(folder) if number != generation])


def start_over(folder: Path, *, keeps_pinned: bool) -> None:
    """Delete all generations, of the replay and of its shards; raises as ``start_over`` of a store."""
    for shard in memory_folders(folder):
        start_over_in_store(shard, keeps_pinned=keeps_pinned)
    _remove_manifests(folder, generations(folder))


def _remove_manifests(folder: Path, numbers: list[int]) -> None:
    """Delete these manifests, except those that framestow did not write or that are damaged."""
    for number in numbers:
        with suppress(DamagedDataError, IncompatibleError):
            read_manifest(folder, KIND, VERSION, generation=number)
            DISK.remove(manifest_path(folder, number))
