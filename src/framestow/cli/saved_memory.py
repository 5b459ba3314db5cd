"""Finds the memory that a folder holds, be it a memory's own, a checkpoint's or a run's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from framestow.errors import InvalidSettingsError

MEMORY, CHECKPOINTS, RUN_SETTINGS = "memory", "checkpoints", "settings.json"  # in the folder of a run
_OF_A_MEMORY = re.compile(r"MANIFEST\.\d{6,}|state\.\d{6,}(\.repaired)?\.npz")  # either tells what the other did
_CHECKPOINT = re.compile(r"step-\d{12}")


class SavedMemory(NamedTuple):
    """Where a memory lies, and which generation of it is meant; None for the newest."""

    folder: Path
    generation: int | None = None


def find_memory(path: Path) -> SavedMemory:
    """Find the memory that ``path`` holds; raise ``InvalidSettingsError`` where there is none.

    ============  ==================================================================================
    folder        its memory
    ============  ==================================================================================
    of a memory   itself, its newest generation
    of a run      ``memory/``, its newest generation; before there was one, the newest checkpoint's
    a checkpoint  the generation of the run's memory that it names
    ============  ==================================================================================

    Looks at names only and, in a checkpoint, at what its manifest names: so damage does not hide a memory.
    """
    if not path.is_dir():
        raise InvalidSettingsError(f"{path} is no folder: a memory lies in a folder; check the path")
    if _CHECKPOINT.match(path.name) or (path / "agent.pt").is_file():
        return _memory_of_checkpoint(path)
    if _has_manifest(path):
        return SavedMemory(path)
    if _has_manifest(path / MEMORY):
        return SavedMemory(path / MEMORY)
    checkpoints = [folder for folder in (path / CHECKPOINTS).glob("step-*") if _CHECKPOINT.fullmatch(folder.name)]
    if checkpoints:
        return _memory_of_checkpoint(max(checkpoints))
    is_run = (path / RUN_SETTINGS).is_file()
    told = "the run has saved none yet; train first" if is_run else "give the folder of a memory, a run or a checkpoint"
    raise InvalidSettingsError(f"{path} holds no memory: there is no MANIFEST in it; {told}")


def _memory_of_checkpoint(checkpoint: Path) -> SavedMemory:
    generation = _content_of(checkpoint / "MANIFEST").get("memory_generation")
    folder = checkpoint.resolve().parent.parent / MEMORY
    if not isinstance(generation, int) or not _has_manifest(folder):
        raise InvalidSettingsError(
            f"{checkpoint} names no memory: its MANIFEST cannot be read, or {folder} is gone; give the memory's folder"
        )
    return SavedMemory(folder, generation)


def _has_manifest(folder: Path) -> bool:
    return folder.is_dir() and any(_OF_A_MEMORY.fullmatch(file.name) for file in folder.iterdir())


def _content_of(manifest: Path) -> dict[str, Any]:
    """What a manifest says, unchecked; nothing if it cannot be read."""
    try:
        content = json.loads(manifest.read_bytes().partition(b"\n")[2])
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
