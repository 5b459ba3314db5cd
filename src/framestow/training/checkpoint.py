"""Write and read the checkpoints of a run.

::

    memory/                         the memory's store (docs/saving.md); a checkpoint adds its new steps as a generation
    checkpoints/
        step-000000020000/          the newest checkpoint
            MANIFEST                a checksum of the file, then JSON: the size and checksum of each file, and the
                                    generation of the memory
            agent.pt                tensors, for torch.load(..., weights_only=True)
            state.npz               environments, counters and random generators (``pack_state``); no pickle
        step-000000030000.partial/  a checkpoint being written; the next start removes it

A checkpoint is written in this order: its files and the generation of the memory, the rename to the final name, the
removal of the previous checkpoint and its generation. A crash at any moment leaves a complete newest checkpoint. Of a
checkpoint only the files above are removed, and of a memory only what a store removes: other files stay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from framestow.distributed import saved_shards
from framestow.errors import CheckpointError, DivergedError, InvalidSettingsError
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.format import pack_arrays
from framestow.replay.store.open_store import keep_only, start_over
from framestow.storage.files.file_system import DISK, finished_name
from framestow.storage.files.manifest import (
    MANIFEST,
    read_checked,
    read_manifest,
    write_checked,
    write_manifest,
)
from framestow.training.training_run import RunMemory

KIND, VERSION = "framestow checkpoint", 1  # of the manifest; others are refused
AGENT, STATE, MEMORY = "agent.pt", "state.npz", "memory"  # names in the folder of a checkpoint
_PARTIAL = ".partial"  # ending of a folder that is being written
_NAME = re.compile(r"step-(\d{12})")
_TREE = "tree"  # name of the JSON text among the arrays of a packed state


Memory = TypeVar("Memory", bound=RunMemory)
Memory_co = TypeVar("Memory_co", bound=RunMemory, covariant=True)


@dataclasses.dataclass(frozen=True)
class RunState(Generic[Memory_co]):
    """The complete state of a run."""

    agent_steps: int
    agent: dict[str, Any]  # tensors, numbers and strings
    memory: Memory_co
    rest: dict[str, Any]  # everything else, for pack_state


def memory_store(checkpoints: Path) -> Path:
    """Return the folder of the memory beside the folder ``checkpoints``."""
    return checkpoints.parent / MEMORY


def write_checkpoint(folder: Path, state: RunState[RunMemory]) -> Path:
    """Write ``state`` into ``folder``, remove the previous checkpoint, and return the path of the new one.

    Of the memory only new steps are written. If a checkpoint of this agent step exists, nothing is written. After a
    crash or an error at any moment the previous checkpoint is complete.

    Raises:
        CheckpointError: the checkpoint could not be written; the message names the previous one.
        DivergedError: a weight or another number of the agent is not finite; nothing is written.
    """
    _check_finite(folder, state)
    DISK.make_folder(folder)
    path = folder / f"step-{state.agent_steps:012d}"
    if path.is_dir():
        return path
    partial, previous = path.with_name(path.name + _PARTIAL), newest_checkpoint(folder)
    try:
        generation = _write_parts(partial, state, memory_store(folder))
        partial.rename(path)
        DISK.sync_folder(folder)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint of step {state.agent_steps:,} could not be written ({error.strerror or error}): "
            + (f"the last one, {previous}, is whole; " if previous else "the run has no other checkpoint; ")
            + "free disk space or allow writing there"
        ) from error
    finally:
        _remove(partial)  # exists only after an error or a second Ctrl-C
    for other in _checkpoints(folder):
        if other != path:
            _remove(other)
    state.memory.prune(memory_store(folder), generation)
    return path


def check_loss(loss: float, agent_steps: int, folder: Path) -> None:
    """Raise ``DivergedError`` if ``loss`` is not finite; ``folder`` has the checkpoints."""
    if not math.isfinite(loss):
        raise _make_diverged_error(f"the loss is {loss}", agent_steps, folder)


def _check_finite(folder: Path, state: RunState[RunMemory]) -> None:
    for name, tensor in _tensors(state.agent):
        if not bool(torch.isfinite(tensor).all()):
            raise _make_diverged_error(f"{name} is not finite", state.agent_steps, folder)


def _tensors(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in nested dicts and lists, each with its name."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (dict, list, tuple)):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _tensors(child, f"{name}.{key}" if name else str(key))


def _make_diverged_error(what: str, agent_steps: int, folder: Path) -> DivergedError:
    newest = newest_checkpoint(folder)
    return DivergedError(
        f"{what} at step {agent_steps:,}: the training diverged and this state is not saved; "
        + (
            f"the last good checkpoint is {newest}; resume from it with a lower --learning-rate: "
            f"framestow train --resume {folder.parent} --learning-rate …"
            if newest
            else "the run has no checkpoint; start it again with a lower --learning-rate"
        )
    )


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint of the latest agent step, or ``None`` if there is none."""
    return max(_checkpoints(folder), default=None)


def remove_unfinished(folder: Path) -> list[Path]:
    """Remove unfinished and previous checkpoints that a killed process left; return their paths.

    Of the memory only the generation of the newest checkpoint stays. The caller must be the only writer of ``folder``
    and of the memory beside it.

    Raises:
        DamagedDataError: the newest checkpoint or the memory is damaged, so nothing is removed.
        IncompatibleError: the run has no checkpoint, and its memory was saved with one.
    """
    newest, unfinished = newest_checkpoint(folder), list(folder.glob(f"step-*{_PARTIAL}"))
    previous = [path for path in _checkpoints(folder) if path != newest]
    if newest and previous:
        for name in (AGENT, STATE):
            _read_checked(newest, name)
    store = memory_store(folder)
    if newest:
        (saved_shards.keep_only if saved_shards.is_sharded(store) else keep_only)(store, _generation(newest))
    elif store.is_dir():
        (saved_shards.start_over if saved_shards.is_sharded(store) else start_over)(store, keeps_pinned=not unfinished)
    for path in (*unfinished, *previous):
        _remove(path)
    return [*unfinished, *previous]


def _remove(checkpoint: Path) -> None:
    """Remove the files of a checkpoint, and its folder unless it has others."""
    with contextlib.suppress(OSError):  # the next call tries again
        for name in reversed(DISK.names(checkpoint)):  # the manifest last
            if (finished_name(name) or name) in (AGENT, STATE, MANIFEST):
                DISK.remove(checkpoint / name)
        checkpoint.rmdir()


def read_agent(checkpoint: Path, device: str) -> dict[str, Any]:
    """Return the agent's state with its tensors on ``device``. Only tensors and plain values are unpickled."""
    stored = _read_checked(checkpoint, AGENT)
    state: dict[str, Any] = torch.load(io.BytesIO(stored), map_location=device, weights_only=True)
    return state


def read_checkpoint(checkpoint: Path, device: str, memory_on_disk: bool = False) -> RunState[ReplayMemory]:
    """Return the state of a checkpoint of a run in one process.

    Arguments:
        checkpoint: The folder of the checkpoint.
        device: Where the agent's tensors go.
        memory_on_disk: Open the memory in its files, as its only writer, instead of reading it into RAM.

    Raises:
        DamagedDataError: a file is damaged; the message names it.
    """
    return read_run_state(checkpoint, device, _open_in_files if memory_on_disk else _load_into_ram)


def read_run_state(checkpoint: Path, device: str, open_memory: Callable[[Path, int], Memory]) -> RunState[Memory]:
    """Return the state of a checkpoint, with the memory that ``open_memory`` returns for a folder and generation.

    Raises:
        DamagedDataError: a file is damaged; the message names it.
    """
    manifest = _read_manifest(checkpoint)
    return RunState(
        agent_steps=int(manifest["agent_steps"]),
        agent=read_agent(checkpoint, device),
        memory=open_memory(memory_store(checkpoint.parent), _generation(checkpoint)),
        rest=unpack_state(_read_checked(checkpoint, STATE)),
    )


def read_agent_steps(checkpoint: Path) -> int:
    """Return the agent steps of the run at the checkpoint."""
    return int(_read_manifest(checkpoint)["agent_steps"])


def _open_in_files(store: Path, generation: int) -> ReplayMemory:
    return ReplayMemory.open(store, read_only=False, generation=generation, flush_every=None)


def _load_into_ram(store: Path, generation: int) -> ReplayMemory:
    return ReplayMemory.load(store, generation=generation)


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)] if folder.is_dir() else []


def _write_parts(partial: Path, state: RunState[RunMemory], store: Path) -> int:
    """Write the files of a checkpoint into ``partial`` and the memory into ``store``; return its generation.

    The agent is written before the memory: a full disk then fails before a generation is written in vain.
    """
    _remove(partial)
    partial.mkdir(exist_ok=True)
    # torch.save writes to RAM: on a full disk its file writer raises an error that hides the reason.
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
    """Return the memory's generation of a checkpoint."""
    return int(_read_manifest(checkpoint)["memory_generation"])


def _read_manifest(checkpoint: Path) -> dict[str, Any]:
    return read_manifest(checkpoint, KIND, VERSION)


def pack_state(state: dict[str, Any]) -> bytes:
    """Return ``state`` as the bytes of an .npz file: a JSON tree, and every array and bytes object as an array.

    Values may be dicts with string keys, lists, tuples, None, bool, int of any size, float, str, bytes, NumPy scalars
    and arrays without Python objects.

    Raises:
        InvalidSettingsError: another kind of value; the message names its path.

    >>> unpack_state(pack_state({"seed": 2**100, "left": (b"x", [None, 0.5])}))
    {'seed': 1267650600228229401496703205376, 'left': (b'x', [None, 0.5])}
    """
    arrays: list[np.ndarray[Any, Any]] = []
    tree = json.dumps(_describe(state, "state", arrays)).encode()
    named = {str(number): array for number, array in enumerate(arrays)}
    return pack_arrays({**named, _TREE: np.frombuffer(tree, np.uint8)})


def unpack_state(stored: bytes) -> dict[str, Any]:
    """Return the state that ``pack_state`` packed; raises ``ValueError`` for other bytes."""
    try:
        with np.load(io.BytesIO(stored), allow_pickle=False) as file:
            tree = json.loads(file[_TREE].tobytes())
            arrays = [file[str(number)] for number in range(len(file.files) - 1)]
    except (KeyError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"not a packed state: {error}") from error
    state: dict[str, Any] = _rebuild(tree, arrays)
    return state


def _describe(value: Any, path: str, arrays: list[np.ndarray[Any, Any]]) -> list[Any]:
    """Return ``value`` as [kind, content]. The kind keeps strings of a state apart from our markers."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise InvalidSettingsError(f"{path} has keys {list(value)!r}: keys must be strings; rename them")
        return ["dict", {key: _describe(child, f"{path}.{key}", arrays) for key, child in value.items()}]
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, [_describe(child, f"{path}[{i}]", arrays) for i, child in enumerate(value)]]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return ["value", value]
    if isinstance(value, (bytes, bytearray)):
        arrays.append(np.frombuffer(bytes(value), np.uint8))
        return ["bytes", len(arrays) - 1]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        arrays.append(value)
        return ["array", len(arrays) - 1]
    raise InvalidSettingsError(
        f"{path} is a {type(value).__name__}: a state has numbers, strings, bytes and plain arrays; convert it"
    )


def _rebuild(described: list[Any], arrays: list[np.ndarray[Any, Any]]) -> Any:
    kind, content = described
    if kind == "dict":
        return {key: _rebuild(child, arrays) for key, child in content.items()}
    if kind in ("list", "tuple"):
        children = [_rebuild(child, arrays) for child in content]
        return children if kind == "list" else tuple(children)
    if kind == "bytes":
        return arrays[content].tobytes()
    return arrays[content] if kind == "array" else content
