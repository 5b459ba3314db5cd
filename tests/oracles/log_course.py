"""A short life of a log of blocks and its manifests, with everything that a store does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from framestow.storage.files.block_format import BlockKey, LogState
from framestow.storage.files.block_log import BlockLogWriter
from framestow.storage.files.block_log_reader import BlockLogReader
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import (
    generations,
    next_generation,
    read_newest_manifest,
    remove_manifest,
    remove_unfinished,
    write_manifest,
)

KIND, VERSION = "framestow log course", 1
FILE_BYTES = 700
Blocks = dict[BlockKey, bytes]


@cache
def payload_of(key: BlockKey) -> bytes:
    return np.random.default_rng(list(key)).bytes(60 + 40 * (key.number % 3))


@cache
def held_at(commit: int) -> Blocks:
    """What the log holds at commit number ``commit``: the newest blocks, and a few old ones for compaction."""
    newest = 6 * commit
    keys = [BlockKey(n % 2, n) for n in range(newest) if n >= newest - 8 or n % 7 == 0]
    return {key: payload_of(key) for key in keys}


def go_on(folder: Path, files: FileSystem, num_commits: int, committed: Callable[[int], object]) -> None:
    """Open what the folder holds, or begin; then make ``num_commits`` commits, each told to ``committed``."""
    files.make_folder(folder)
    remove_unfinished(folder, files)
    if generations(folder, files):
        manifest = read_newest_manifest(folder, KIND, VERSION, files)
        for older in generations(folder, files)[:-1]:
            remove_manifest(folder, older, files)
        first = manifest["commit"] + 1
        writer = BlockLogWriter.open(folder, "frames", manifest["log"], file_bytes=FILE_BYTES, files=files)
    else:
        first = 1
        writer = BlockLogWriter.create(folder, "frames", file_bytes=FILE_BYTES, files=files)
        writer.remove_unneeded([])
    with writer:
        for commit in range(first, first + num_commits):
            make_commit(folder, writer, commit, files)
            committed(commit)


def make_commit(folder: Path, writer: BlockLogWriter, commit: int, files: FileSystem) -> None:
    held = held_at(commit)
    writer.retain(held)
    for key, payload in held.items():
        if key not in writer:
            writer.append(key, payload)
    writer.compact()
    state = writer.sync()
    generation = next_generation(folder, files)
    write_manifest(folder, KIND, VERSION, {"commit": commit, "log": state}, generation=generation, files=files)
    for older in generations(folder, files)[:-1]:
        remove_manifest(folder, older, files)
    files.sync_folder(folder)
    writer.remove_unneeded([state])


def found(folder: Path) -> tuple[int, Blocks]:
    """Number of the commit that is in ``folder``, and its blocks, every byte of them verified; 0 if there is none."""
    if not generations(folder):
        return 0, {}
    manifest = read_newest_manifest(folder, KIND, VERSION)
    log: LogState = manifest["log"]
    with BlockLogReader.open(folder, "frames", log) as reader:
        assert reader.verify() == []
        held = held_at(manifest["commit"])
        return manifest["commit"], {key: reader.read(key) for key in held}


def left_over(folder: Path) -> Iterator[str]:
    """Names of the files that the newest manifest does not account for, after a writer has opened and committed."""
    manifest = read_newest_manifest(folder, KIND, VERSION)
    named = {f"MANIFEST.{manifest['generation']:06d}"}
    for file in manifest["log"]["files"]:
        named |= {f"frames.{file['number']:06d}.{ending}" for ending in ("log", "index")}
        size = DISK.size(folder / f"frames.{file['number']:06d}.log")
        if size != file["bytes"]:
            yield f"{size - file['bytes']} bytes of frames.{file['number']:06d}.log"
    yield from set(DISK.names(folder)) - named
