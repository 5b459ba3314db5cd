"""Find the replay memory, or its shards, in the folder of a memory, of a run or of a checkpoint."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from framestow.distributed.replay import is_sharded, memory_folders, read_generation
from framestow.errors import InvalidSettingsError
from framestow.replay.store.format import COMMIT_FILE, id_of
from framestow.storage.files.file_system import DISK
from framestow.storage.files.manifest import MOST_MANIFEST_BYTES

MEMORY, CHECKPOINTS, RUN_SETTINGS = "memory", "checkpoints", "settings.json"  # in a run folder
AGENT = "agent.safetensors"  # in a checkpoint
PICKLES = {".pkl", ".pickle"}  # files of drop-in buffers, saved by the calls of their libraries
NAME_IT = "give that folder itself, or --follow-links where the command has it"  # the way out where a run has a link
_CHECKPOINT = re.compile(r"step-\d{12}")


class SavedMemory(NamedTuple):
    """Folder of a memory, and the generation to read; None for the newest."""

    folder: Path
    generation: int | None = None


def find_memory(path: Path, *, follow_links: bool = False) -> SavedMemory:
    """Return the memory that ``path`` contains, as ``find_memories`` does; raise if it has several shards."""
    found = find_memories(path, follow_links=follow_links)
    if len(found) > 1:
        raise InvalidSettingsError(
            f"{path} has a memory of {len(found)} shards: this command takes one memory; give one of "
            + ", ".join(str(one.folder) for one in found)
        )
    return found[0]


def find_memories(path: Path, *, follow_links: bool = False) -> list[SavedMemory]:
    """Return the memory that ``path`` contains, or all shards of it; raise ``InvalidSettingsError`` if there is none.

    ============  ==========================================================================
    ``path``      memory
    ============  ==========================================================================
    memory        this folder, its newest generation
    run           ``memory/`` in it, its newest generation
    checkpoint    the memory of its run, the generation that the checkpoint's manifest names
    ============  ==========================================================================

    The search reads file names and the manifest of a checkpoint only, so a damaged memory is found too.

    Raises:
        DamagedDataError: the memory of a run is a link to a folder elsewhere, and ``follow_links`` is off.
    """
    folder, generation = _find(path, follow_links)
    folders = memory_folders(folder)
    if generation is None or folders == [folder]:
        return [SavedMemory(one, generation) for one in folders]
    of_shards, _ = read_generation(folder, generation)
    return [SavedMemory(*one) for one in of_shards]


def _find(path: Path, follow_links: bool) -> SavedMemory:
    if path.is_file() and path.suffix in PICKLES:
        raise InvalidSettingsError(
            f"{path} is a pickled buffer: framestow opens folders only; load the buffer with its library and save its "
            f"memory, in Stable-Baselines3 model.load_replay_buffer({path.name!r}) and "
            f"model.replay_buffer.memory.save({f'{path.stem}.memory'!r}), then give that folder"
        )
    if not path.is_dir():
        raise InvalidSettingsError(f"{path} is not a folder: a saved memory is a folder; check the path")
    for folder in (path, path / MEMORY):
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            raise InvalidSettingsError(f"{folder} cannot be read: its permissions forbid it; take the right to read it")
    if _CHECKPOINT.match(path.name) or (path / AGENT).is_file():
        return _memory_of_checkpoint(path, follow_links)
    if _has_memory(path):
        return SavedMemory(path)
    if DISK.is_folder(path / MEMORY, follow_links=follow_links, way_out=NAME_IT) and _has_memory(path / MEMORY):
        return SavedMemory(path / MEMORY)
    DISK.is_folder(path / CHECKPOINTS, follow_links=follow_links, way_out=NAME_IT)
    checkpoints = [folder for folder in (path / CHECKPOINTS).glob("step-*") if _CHECKPOINT.fullmatch(folder.name)]
    if checkpoints:
        DISK.is_folder(newest := max(checkpoints), follow_links=follow_links, way_out=NAME_IT)
        return _memory_of_checkpoint(newest, follow_links)
    is_run = (path / RUN_SETTINGS).is_file()
    if is_run:
        raise InvalidSettingsError(f"{path} has no memory: the run has not saved a checkpoint yet; train it first")
    raise InvalidSettingsError(
        f"{path} has no memory: it contains no COMMIT file; give the folder of a memory, a run or a checkpoint"
    )


def _memory_of_checkpoint(checkpoint: Path, follow_links: bool) -> SavedMemory:
    generation = _read_unchecked(checkpoint / "MANIFEST").get("memory_generation")
    folder = checkpoint.resolve().parent.parent / MEMORY
    if not isinstance(generation, int) or not (
        DISK.is_folder(folder, follow_links=follow_links, way_out=NAME_IT) and _has_memory(folder)
    ):
        raise InvalidSettingsError(
            f"{checkpoint} has no memory: its MANIFEST cannot be read, or {folder} is missing; "
            "give the folder of the memory"
        )
    return SavedMemory(folder, generation)


def _has_memory(folder: Path) -> bool:
    return folder.is_dir() and (
        is_sharded(folder) or any(COMMIT_FILE.fullmatch(file.name) or id_of(file.name) for file in folder.iterdir())
    )


def _read_unchecked(manifest: Path) -> dict[str, Any]:
    """Return the content of a manifest without checking it; an empty dict if it cannot be read."""
    try:
        content = json.loads(DISK.read(manifest, MOST_MANIFEST_BYTES).partition(b"\n")[2])
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
