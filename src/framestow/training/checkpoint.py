"""A whole run on the disk: a folder for what is small, written beside the last one and renamed, and the memory's store.

::

    memory/                         a store (docs/saving.md): each checkpoint adds what is new, as a generation
    checkpoints/
        step-000000020000/          the last good checkpoint; two only between a rename and the removal after it
            MANIFEST                a checksum of the rest of the file, then JSON: size and checksum of each file, and
                                    which generation of the memory belongs to it
            agent.pt                tensors, for torch.load(..., weights_only=True)
            state.npz               environments, counters, generators (state_file.py); no pickle
        step-000000030000.partial/  one being written; whatever is left of it is removed at the next start

The generation is on the disk before the folder that names it gets its name, and the one before is given up after that:
at any moment the newest checkpoint's is there.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from framestow.errors import CheckpointError, InvalidSettingsError
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.session import keep_only
from framestow.replay.store.snapshot import pack_arrays
from framestow.storage.files.file_system import DISK
from framestow.storage.files.manifest import read_checked, read_manifest, write_checked, write_manifest

_TREE = "tree"  # the name of the JSON text among the arrays


def pack_state(state: dict[str, Any]) -> bytes:
    """Return ``state`` as the bytes of an .npz file: a JSON tree, and beside it every array and bytes object.

    Takes dicts with string keys, lists, tuples, None, bool, int of any size, float, str, bytes, NumPy scalars and
    arrays without Python objects. Raises :class:`~framestow.errors.InvalidSettingsError` naming the place of anything
    else.

    >>> unpack_state(pack_state({"seed": 2**100, "left": (b"x", [None, 0.5])}))
    {'seed': 1267650600228229401496703205376, 'left': (b'x', [None, 0.5])}
    """
    leaves: list[np.ndarray[Any, Any]] = []
    tree = json.dumps(_describe(state, "state", leaves)).encode()
    arrays: dict[str, Any] = {str(number): leaf for number, leaf in enumerate(leaves)}
    arrays[_TREE] = np.frombuffer(tree, np.uint8)
    return pack_arrays(arrays)


def unpack_state(stored: bytes) -> dict[str, Any]:
    """Return the state that :func:`pack_state` packed; raises ``ValueError`` if it is no such thing."""
    try:
        with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
            tree = json.loads(arrays[_TREE].tobytes())
            leaves = [arrays[str(number)] for number in range(len(arrays.files) - 1)]
    except (KeyError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"not a packed state: {error}") from error
    state: dict[str, Any] = _rebuild(tree, leaves)
    return state


def _describe(value: Any, place: str, leaves: list[np.ndarray[Any, Any]]) -> list[Any]:
    """Describe ``value`` as [kind, content], which no user's key or string can be mistaken for."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise InvalidSettingsError(f"{place} has keys {list(value)!r}: keys must be strings; rename them")
        return ["dict", {key: _describe(child, f"{place}.{key}", leaves) for key, child in value.items()}]
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, [_describe(child, f"{place}[{i}]", leaves) for i, child in enumerate(value)]]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return ["value", value]
    if isinstance(value, (bytes, bytearray)):
        leaves.append(np.frombuffer(bytes(value), np.uint8))
        return ["bytes", len(leaves) - 1]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        leaves.append(value)
        return ["array", len(leaves) - 1]
    raise InvalidSettingsError(
        f"{place} is a {type(value).__name__}: a state holds numbers, strings, bytes and plain arrays; convert it"
    )


def _rebuild(described: list[Any], leaves: list[np.ndarray[Any, Any]]) -> Any:
    kind, content = described
    if kind == "dict":
        return {key: _rebuild(child, leaves) for key, child in content.items()}
    if kind in ("list", "tuple"):
        children = [_rebuild(child, leaves) for child in content]
        return children if kind == "list" else tuple(children)
    if kind == "bytes":
        return leaves[content].tobytes()
    return leaves[content] if kind == "array" else content


KIND, VERSION = "framestow checkpoint", 1
AGENT, STATE, MEMORY = "agent.pt", "state.npz", "memory"
_PARTIAL = ".partial"
_NAME = re.compile(r"step-(\d{12})")


@dataclasses.dataclass(frozen=True)
class RunState:
    """Everything that the rest of a run depends on."""

    agent_steps: int
    agent: dict[str, Any]  # tensors, numbers and strings
    memory: ReplayMemory
    rest: dict[str, Any]  # what state_file.py packs


def memory_store(checkpoints: Path) -> Path:
    """Return the folder of the memory that belongs to the folder ``checkpoints``."""
    return checkpoints.parent / MEMORY


def write_checkpoint(folder: Path, state: RunState) -> Path:
    """Write ``state`` into ``folder`` and remove what it replaces; return its path.

    Of the memory only what is new since the last checkpoint is written. After a crash or an error at any moment the
    last good checkpoint is there. Raises :class:`~framestow.errors.CheckpointError`, naming it, when the new one could
    not be written. Returns at once when that very step is there already.
    """
    DISK.make_folder(folder)
    path = folder / f"step-{state.agent_steps:012d}"
    if path.is_dir():
        return path
    partial, last_good = path.with_name(path.name + _PARTIAL), newest_checkpoint(folder)
    try:
        generation = _write_parts(partial, state, memory_store(folder))
        partial.rename(path)
        DISK.sync_folder(folder)
    except OSError as error:
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
    state.memory.prune(memory_store(folder), generation)
    return path


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint of the latest step, or None while there is none."""
    return max(_checkpoints(folder), default=None)


def remove_unfinished(folder: Path) -> list[Path]:
    """Remove what a killed process left of a checkpoint, or did not get to remove; return what there was.

    The caller must be the only one who writes to ``folder`` and to the memory beside it.
    """
    newest = newest_checkpoint(folder)
    left_over = list(folder.glob(f"step-*{_PARTIAL}")) + [p for p in _checkpoints(folder) if p != newest]
    for path in left_over:
        shutil.rmtree(path, ignore_errors=True)
    store = memory_store(folder)
    generation = _generation(newest) if newest else None
    if generation is not None:
        keep_only(store, generation)
    elif store.is_dir():
        shutil.rmtree(store)
        left_over.append(store)
    return left_over


def read_agent(checkpoint: Path, device: str) -> dict[str, Any]:
    """Return the agent's state with its tensors on ``device``; nothing but tensors and plain values is unpickled."""
    stored = _read_checked(checkpoint, AGENT)
    state: dict[str, Any] = torch.load(io.BytesIO(stored), map_location=device, weights_only=True)
    return state


def read_checkpoint(checkpoint: Path, device: str, memory_on_disk: bool = False) -> RunState:
    """Return everything that was saved.

    The memory is read into RAM, or, with ``memory_on_disk``, opened to go on in its files: for the one writer. Raises
    :class:`~framestow.errors.DamagedDataError` naming the file that is not as it was written.
    """
    manifest = _read_manifest(checkpoint)
    return RunState(
        agent_steps=int(manifest["agent_steps"]),
        agent=read_agent(checkpoint, device),
        memory=_opened_memory(checkpoint, memory_on_disk),
        rest=unpack_state(_read_checked(checkpoint, STATE)),
    )


def saved_agent_steps(checkpoint: Path) -> int:
    """Return how many agent steps the run had made."""
    return int(_read_manifest(checkpoint)["agent_steps"])


def _opened_memory(checkpoint: Path, on_disk: bool) -> ReplayMemory:
    generation = _generation(checkpoint)
    store = memory_store(checkpoint.parent)
    if on_disk:
        return ReplayMemory.open(store, read_only=False, generation=generation, flush_every=None)
    return ReplayMemory.load(store, generation=generation)


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)] if folder.is_dir() else []


def _write_parts(partial: Path, state: RunState, store: Path) -> int:
    """Write all that a checkpoint is into ``partial`` and ``store``; return the generation of the memory.

    What is large and not in the store comes first: a full disk refuses it before a generation is made in vain.
    """
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    # torch.save writes to memory first: on a full disk its own file writer gives an error that hides the reason.
    agent = io.BytesIO()
    torch.save(state.agent, agent)
    payloads = {AGENT: agent.getvalue(), STATE: pack_state(state.rest)}
    files = {name: write_checked(partial / name, payload) for name, payload in payloads.items()}
    generation = state.memory.save(store, keep_previous=True)
    content = {"agent_steps": state.agent_steps, "files": files, "memory_generation": generation}
    write_manifest(partial, KIND, VERSION, content)
    return generation


def _read_checked(checkpoint: Path, name: str) -> bytes:
    return read_checked(checkpoint, _read_manifest(checkpoint)["files"][name])


def _generation(checkpoint: Path) -> int:
    """Return which generation of the store belongs to a checkpoint."""
    return int(_read_manifest(checkpoint)["memory_generation"])


def _read_manifest(checkpoint: Path) -> dict[str, Any]:
    return read_manifest(checkpoint, KIND, VERSION)
