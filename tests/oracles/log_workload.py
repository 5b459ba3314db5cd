"""Commits to a block log with manifests: appends, drops, compaction, new files and removals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from framestow.storage.files.block_format import BlockKey, LogState, unpack_keys
from framestow.storage.files.block_log import BlockLogWriter
from framestow.storage.files.block_log_reader import BlockLogReader
from framestow.storage.files.file_system import DISK, FileSystem, remove_unfinished
from framestow.storage.files.manifest import (
    Begun,
    ManifestNames,
    begin_generation,
    end_generation,
    generations,
    manifest_path,
    read_manifest,
    remove_superseded,
    supersede_manifest,
    write_manifest,
)

KIND, VERSION = "framestow log sequence", 1
FILE_BYTES = 700
Blocks = dict[BlockKey, bytes]


@cache
def payload_of(key: BlockKey) -> bytes:
    return np.random.default_rng(list(key)).bytes(60 + 40 * (key.number % 3))


@cache
def blocks_at(commit: int) -> Blocks:
    """Return the blocks of commit number ``commit``: the newest ones, and a few old ones for compaction."""
    newest = 6 * commit
    keys = [BlockKey(n % 2, n) for n in range(newest) if n >= newest - 8 or n % 7 == 0]
    return {key: payload_of(key) for key in keys}


def make_commits(folder: Path, files: FileSystem, num_commits: int, committed: Callable[[int], object]) -> None:
    """Open or create the log in ``folder``, make ``num_commits`` commits, and call ``committed`` after each."""
    files.make_folder(folder)
    manifests = [
        read_manifest(folder, KIND, VERSION, generation=number, files=files) for number in generations(folder, files)
    ]
    old = [
        read_manifest(folder, KIND, VERSION, generation=number, is_superseded=True, files=files)
        for number in ManifestNames.read(folder, files).superseded
    ]
    for begun in ManifestNames.read(folder, files).begun:
        states = [one["log"] for one in manifests]
        for name in leftover_files(files.names(folder), *begun.first_files, states):
            files.remove(folder / name)
        remove_unfinished(manifest_path(folder, begun.generation), files)
    if manifests:
        state, *others = [one["log"] for one in (*manifests[::-1], *old)]
        first = manifests[-1]["commit"] + 1
        writer = BlockLogWriter.open(folder, "frames", state, others, file_bytes=FILE_BYTES, files=files)
    else:
        first = 1
        writer = BlockLogWriter.open(folder, "frames", None, file_bytes=FILE_BYTES, files=files)
    with writer:
        for commit in range(first, first + num_commits):
            make_commit(folder, writer, commit, files)
            committed(commit)


def make_commit(folder: Path, writer: BlockLogWriter, commit: int, files: FileSystem) -> None:
    generation = ManifestNames.read(folder, files).next_generation
    begin_generation(folder, Begun(generation, (writer.next_file,)), files)
    blocks = blocks_at(commit)
    writer.drop(set(unpack_keys(writer.table.rows().keys)) - set(blocks))
    for key, payload in blocks.items():
        if key not in writer.table:
            writer.append(key, payload)
    writer.compact()
    state = writer.sync()
    write_manifest(folder, KIND, VERSION, {"commit": commit, "log": state}, generation=generation, files=files)
    for older in generations(folder, files)[:-1]:
        supersede_manifest(folder, older, files)
    files.sync_folder(folder)
    writer.remove_unneeded([state])
    files.sync_folder(folder)
    for older in ManifestNames.read(folder, files).superseded:
        remove_superseded(folder, older, files)
    for begun in ManifestNames.read(folder, files).begun:
        end_generation(folder, begun, files)


def leftover_files(names: list[str], first_file: int, states: list[LogState]) -> list[str]:
    """Return the files with the announced number and above that no state names."""
    named = {f"frames.{file['number']:06d}" for state in states for file in state["files"]}
    logs = [name for name in names if name.startswith("frames.") and name[:13] not in named]
    return [name for name in logs if int(name[7:13]) >= first_file]


def newest_manifest(folder: Path, kind: str = KIND, version: int = VERSION) -> dict[str, Any]:
    """Read the manifest of the newest generation, or the one without a number."""
    return read_manifest(folder, kind, version, generation=max(generations(folder), default=None))


def found(folder: Path) -> tuple[int, Blocks]:
    """Return the number of the commit in ``folder`` and its verified blocks; 0 without a commit."""
    if not generations(folder):
        return 0, {}
    manifest = newest_manifest(folder)
    log: LogState = manifest["log"]
    with BlockLogReader.open(folder, "frames", log) as reader:
        assert list(reader.damages()) == []
        blocks = blocks_at(manifest["commit"])
        return manifest["commit"], {key: reader.read(key) for key in blocks}


def unneeded_files(folder: Path) -> Iterator[str]:
    """Yield the files that the newest manifest does not name, after a writer has opened and committed."""
    manifest = newest_manifest(folder)
    named = {f"MANIFEST.{manifest['generation']:06d}"}
    for file in manifest["log"]["files"]:
        named |= {f"frames.{file['number']:06d}.{ending}" for ending in ("log", "index")}
        size = DISK.size(folder / f"frames.{file['number']:06d}.log")
        if size != file["bytes"]:
            yield f"{size - file['bytes']} bytes of frames.{file['number']:06d}.log"
    yield from set(DISK.names(folder)) - named
