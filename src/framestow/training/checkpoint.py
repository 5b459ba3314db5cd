"""A whole run in one folder: written beside the last one, renamed when it is on the disk.

::

    checkpoints/
        step-000000020000/          the last good checkpoint; two only between a rename and the removal after it
            MANIFEST                a checksum of the rest of the file, then JSON: size and checksum of each file
            agent.pt                tensors, for torch.load(..., weights_only=True)
            state.npz               environments, counters, generators (state_file.py); no pickle
            memory/                 what ReplayMemory.save wrote, with checksums of its own
        step-000000030000.partial/  one being written; whatever is left of it is removed at the next start
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import torch

from framestow.errors import CheckpointError, DamagedDataError, IncompatibleError
from framestow.replay.memory import ReplayMemory
from framestow.training.state_file import pack_state, unpack_state

VERSION = 1
MANIFEST, AGENT, STATE, MEMORY = "MANIFEST", "agent.pt", "state.npz", "memory"
_PARTIAL = ".partial"
_NAME = re.compile(r"step-(\d{12})")


@dataclasses.dataclass(frozen=True)
class RunState:
    """Everything that the rest of a run depends on."""

    agent_steps: int
    agent: dict[str, Any]  # tensors, numbers and strings
    memory: ReplayMemory
    rest: dict[str, Any]  # what state_file.py packs


def write_checkpoint(folder: Path, state: RunState) -> Path:
    """Write ``state`` into ``folder`` and remove what it replaces; return its path.

    After a crash or an error at any moment the last good checkpoint is there. Raises
    :class:`~framestow.errors.CheckpointError`, naming it, when the new one could not be written; nothing of the new
    one is left then. Returns at once when that very step is there already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{state.agent_steps:012d}"
    if path.is_dir():
        return path
    partial = path.with_name(path.name + _PARTIAL)
    try:
        _write_parts(partial, state)
        partial.rename(path)
        _sync_folder(folder)
    except OSError as error:
        last_good = newest_checkpoint(folder)
        raise CheckpointError(
            f"the checkpoint of step {state.agent_steps:,} could not be written ({error.strerror or error}): "
            + (f"{last_good} is still whole; " if last_good else "there is none before it; ")
            + "make room or allow writing there"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # is there only after an error or a second Ctrl-C
    for other in _checkpoints(folder):
        if other != path:
            shutil.rmtree(other, ignore_errors=True)
    return path


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint of the latest step, or None while there is none."""
    return max(_checkpoints(folder), default=None)


def remove_unfinished(folder: Path) -> list[Path]:
    """Remove what a killed process left of a checkpoint, or did not get to remove; return what there was.

    The caller must be the only one who writes to ``folder``.
    """
    newest = newest_checkpoint(folder)
    left_over = list(folder.glob(f"step-*{_PARTIAL}")) + [p for p in _checkpoints(folder) if p != newest]
    for path in left_over:
        shutil.rmtree(path, ignore_errors=True)
    return left_over


def read_agent(checkpoint: Path, device: str) -> dict[str, Any]:
    """Return the agent's state with its tensors on ``device``; nothing but tensors and plain values is unpickled."""
    stored = _read_checked(checkpoint, AGENT)
    state: dict[str, Any] = torch.load(io.BytesIO(stored), map_location=device, weights_only=True)
    return state


def read_checkpoint(checkpoint: Path, device: str) -> RunState:
    """Return everything that was saved.

    Raises :class:`~framestow.errors.DamagedDataError` naming the file that is not as it was written.
    """
    manifest = _read_manifest(checkpoint)
    return RunState(
        agent_steps=int(manifest["agent_steps"]),
        agent=read_agent(checkpoint, device),
        memory=ReplayMemory.load(checkpoint / MEMORY),
        rest=unpack_state(_read_checked(checkpoint, STATE)),
    )


def saved_agent_steps(checkpoint: Path) -> int:
    """Return how many agent steps the run had made."""
    return int(_read_manifest(checkpoint)["agent_steps"])


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)] if folder.is_dir() else []


def _write_parts(partial: Path, state: RunState) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    # torch.save writes to memory first: on a full disk its own file writer gives an error that hides the reason.
    agent = io.BytesIO()
    torch.save(state.agent, agent)
    payloads = {AGENT: agent.getvalue(), STATE: pack_state(state.rest)}
    for name, payload in payloads.items():
        _write_synced(partial / name, payload)
    state.memory.save(partial / MEMORY)
    files = {name: {"bytes": len(payload), "crc32": zlib.crc32(payload)} for name, payload in payloads.items()}
    body = json.dumps({"version": VERSION, "agent_steps": state.agent_steps, "files": files}, indent=2).encode()
    _write_synced(partial / MANIFEST, b"%08x\n" % zlib.crc32(body) + body)
    _sync_folder(partial)


def _write_synced(path: Path, payload: bytes) -> None:
    with path.open("wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_manifest(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / MANIFEST
    checksum, _, body = path.read_bytes().partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(body):
        raise DamagedDataError(f"{path}: its checksum is not the one that was written; the checkpoint cannot be read")
    manifest: dict[str, Any] = json.loads(body)
    if manifest["version"] != VERSION:
        raise IncompatibleError(
            f"{path} is of version {manifest['version']}: this framestow reads version {VERSION}; "
            "use the framestow that wrote it"
        )
    return manifest


def _read_checked(checkpoint: Path, name: str) -> bytes:
    written = _read_manifest(checkpoint)["files"][name]
    stored = (checkpoint / name).read_bytes()
    if (len(stored), zlib.crc32(stored)) != (written["bytes"], written["crc32"]):
        raise DamagedDataError(
            f"{checkpoint / name}: its checksum is not the one that was written; the checkpoint cannot be read"
        )
    return stored
