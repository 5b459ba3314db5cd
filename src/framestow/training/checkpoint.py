"""Write and read the checkpoints of a run.

::

    memory/                         the memory's store (docs/saving.md); a checkpoint adds its new steps as a commit
    checkpoints/
        step-000000020000/          the newest checkpoint
            MANIFEST                a checksum of the file, then JSON: the size and checksum of each file, and the
                                    generation of the memory
            agent.safetensors       weights and optimiser (``pack_agent``)
            state.safetensors       environments, counters and random generators (``pack_state``)
        step-….….partial/           a checkpoint being written, whose name nobody can guess; the next start removes it

A checkpoint is written in this order: its files and the generation of the memory, the rename to the final name, the
removal of the previous checkpoint and its generation. A crash at any moment leaves a complete newest checkpoint. Of a
checkpoint only the files above are removed, and of a memory only what a store removes: other files stay.

Anyone may have made a checkpoint. Nothing in it is code. Reading takes at most three times the bytes
that its files have by the agent that the settings describe. Any other content raises ``CheckpointError``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import secrets
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

from framestow.agents.dqn import DQN
from framestow.distributed.replay import keep_only, start_over
from framestow.errors import CheckpointError, DivergedError, IncompatibleError, InvalidSettingsError
from framestow.replay.memory import ReplayMemory
from framestow.storage.files.file_system import DISK, finished_name
from framestow.storage.files.manifest import MANIFEST, read_checked, read_manifest, write_checked, write_manifest
from framestow.storage.files.writer_lock import check_lock
from framestow.training.training_run import MOST_COUNT, RunMemory

KIND, VERSION = "framestow checkpoint", 3  # of the manifest; others are refused
RUN_LOCK = ".lock"  # in the folder of a run, locked by the process that trains
AGENT, STATE, MEMORY = "agent.safetensors", "state.safetensors", "memory"  # names in the folder of a checkpoint
MOST_STATE_BYTES = 2**28  # of the state; an Atari environment takes 30 KB
TREE = "tree"  # name of a JSON tree in the metadata of a .safetensors file
MOST_HEADER_BYTES = 4 * 2**20  # of such a file; parsed JSON takes some 30 times as much
_LENGTH_BYTES = 8  # of the length of the header, at the beginning of a .safetensors file
_NAME, _PARTIAL = re.compile(r"step-\d{12}"), re.compile(r"step-\d{12}\.[0-9a-f]{16}\.partial")

Memory_co = TypeVar("Memory_co", bound=RunMemory, covariant=True)


@dataclasses.dataclass(frozen=True)
class RunState(Generic[Memory_co]):
    """The complete state of a run."""

    agent_steps: int
    agent: dict[str, Any]  # tensors, numbers and strings
    memory: Memory_co
    rest: dict[str, Any]  # everything else, for ``pack_state``


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
        IncompatibleError: this process has locked the folder of the run, and another one is in its place now; nothing
            is written or removed there.
    """
    _check_finite(folder, state)
    check_lock(folder.parent / RUN_LOCK)
    DISK.make_folder(folder)
    path = folder / f"step-{state.agent_steps:012d}"
    if DISK.is_folder(path):
        return path
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    previous = newest_checkpoint(folder)
    try:
        generation = _write_parts(partial, state, memory_store(folder))
        check_lock(folder.parent / RUN_LOCK)
        partial.rename(path)
        DISK.sync_folder(folder)
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint of step {state.agent_steps:,} could not be written ({error.strerror or error}): "
            + (f"the last one, {previous}, is whole; " if previous else "the run has no other checkpoint; ")
            + "free disk space or allow writing there"
        ) from error
    finally:
        _remove(partial)  # exists only after an error or a second Ctrl-C
    check_lock(folder.parent / RUN_LOCK)
    for other in set(_named(folder, _NAME)) - {path}:
        _remove(other)
    with contextlib.suppress(OSError):  # the checkpoint is complete; the next one prunes again
        state.memory.prune(memory_store(folder), generation)
    return path


def check_loss(loss: float, agent_steps: int, folder: Path) -> None:
    """Raise ``DivergedError`` if ``loss`` is not finite; ``folder`` has the checkpoints."""
    if not math.isfinite(loss):
        raise _make_diverged_error(f"the loss is {loss}", agent_steps, folder)


def _check_finite(folder: Path, state: RunState[RunMemory]) -> None:
    for name, tensor in tensors_of(state.agent):
        if not bool(torch.isfinite(tensor).all()):
            raise _make_diverged_error(f"{name} is not finite", state.agent_steps, folder)


def _make_diverged_error(what: str, agent_steps: int, folder: Path) -> DivergedError:
    newest = newest_checkpoint(folder)
    return DivergedError(
        f"{what} at step {agent_steps:,}: the training diverged and this state is not saved; "
        + (
            f"the last good checkpoint is {newest}; resume from it with a lower --learning-rate: "
            f"framestow train --resume {shlex.quote(str(folder.parent))} --learning-rate …"
            if newest
            else "the run has no checkpoint; start it again with a lower --learning-rate"
        )
    )


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint of the latest agent step, or ``None`` if there is none.

    Raises:
        DamagedDataError: it is no folder but a link, say.
    """
    newest = max(_named(folder, _NAME), default=None)
    return newest if newest and DISK.is_folder(newest) else None


def remove_unfinished(folder: Path) -> list[Path]:
    """Remove unfinished and previous checkpoints that a killed process left; return their paths.

    Of the memory only the generation of the newest checkpoint stays. The caller must be the only writer of ``folder``
    and of the memory beside it.

    Raises:
        DamagedDataError: the newest checkpoint or the memory is damaged, so nothing is removed.
        IncompatibleError: the run has no checkpoint, and its memory was saved with one. Or another folder is in the
            place of the one that this process has locked.
    """
    check_lock(folder.parent / RUN_LOCK)
    newest, unfinished = newest_checkpoint(folder), _named(folder, _PARTIAL)
    previous = [path for path in _named(folder, _NAME) if path != newest]
    if newest and previous:
        for name in (AGENT, STATE):
            _read_checked(newest, name)
    store = memory_store(folder)
    if newest:
        keep_only(store, saved_memory(newest)[1])
    elif store.is_dir():
        start_over(store, keeps_pinned=not unfinished)
    for path in (*unfinished, *previous):
        _remove(path)
    return [*unfinished, *previous]


def _remove(checkpoint: Path) -> None:
    """Remove the files of a checkpoint, and its folder unless it has others. A link to a folder is no checkpoint."""
    with contextlib.suppress(OSError):  # the next call tries again
        if DISK.is_folder(checkpoint):
            for name in reversed(DISK.names(checkpoint)):  # the manifest last
                if (finished_name(name) or name) in (AGENT, STATE, MANIFEST):
                    DISK.remove(checkpoint / name)
            checkpoint.rmdir()


def restore_agent(checkpoint: Path, agent: DQN) -> None:
    """Give ``agent`` the state of a checkpoint.

    Raises:
        CheckpointError: the state is not of such an agent, or not finite.
        DamagedDataError: the file is damaged.
        IncompatibleError: the state has a network of another shape; the agent is unchanged.
    """
    state = read_agent(checkpoint, agent.most_state_bytes)
    with reading(checkpoint / AGENT):
        for name, tensor in tensors_of(state):
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{name} is not finite")
        agent.load_state_dict(state)


def read_agent(checkpoint: Path, most_bytes: int = MOST_COUNT) -> dict[str, Any]:
    """Return the agent's state, with its tensors on the CPU, from a file of at most ``most_bytes``.

    Raises:
        CheckpointError: the file is larger, or not an agent's.
        DamagedDataError: the file is damaged.
    """
    stored = _read_checked(checkpoint, AGENT, most_bytes)
    with reading(checkpoint / AGENT):
        return unpack_agent(stored)


def read_rest(checkpoint: Path) -> dict[str, Any]:
    """Return what ``RunState.rest`` was; raises like ``read_agent``."""
    stored = _read_checked(checkpoint, STATE, MOST_STATE_BYTES)
    with reading(checkpoint / STATE):
        return unpack_state(stored)


def load_memory(checkpoint: Path, memory_on_disk: bool = False) -> ReplayMemory:
    """Return the memory of a checkpoint of a run in one process.

    ``memory_on_disk`` opens it in its files, as its only writer, instead of reading it into RAM.
    """
    store, generation = saved_memory(checkpoint)
    try:
        if memory_on_disk:
            return ReplayMemory.open(store, read_only=False, generation=generation, flush_every=None)
        return ReplayMemory.load(store, generation=generation)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{checkpoint / MANIFEST}: its memory is missing ({error}); use a whole copy of the run"
        ) from error


def saved_memory(checkpoint: Path) -> tuple[Path, int]:
    """Return the store of the memory of a checkpoint, and its generation there."""
    return memory_store(checkpoint.parent), _read_manifest(checkpoint).memory_generation


def read_agent_steps(checkpoint: Path) -> int:
    """Return the agent steps of the run at the checkpoint."""
    return _read_manifest(checkpoint).agent_steps


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise ``CheckpointError`` with the file ``path`` for whatever its content raises in the ``with`` block.

    Errors that name their file and reason pass: of the disk, of checksums, and of another version or network.
    """
    try:
        yield
    except (OSError, MemoryError):
        raise
    except IncompatibleError as error:
        raise error if str(path) in str(error) else IncompatibleError(f"{path}: {error}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}" if isinstance(error, (LookupError, TypeError)) else str(error)
        shown = reason.splitlines()[0][:200] if reason else type(error).__name__
        raise CheckpointError(
            f"{path}: the file does not have what framestow writes there ({shown}); use a whole copy of the run"
        ) from error


def _named(folder: Path, name: re.Pattern[str]) -> list[Path]:
    return [folder / one for one in DISK.names(folder) if name.fullmatch(one)]


def _write_parts(partial: Path, state: RunState[RunMemory], store: Path) -> int:
    """Write the files of a checkpoint into ``partial`` and the memory into ``store``; return its generation.

    The agent is written before the memory: a full disk then fails before a generation is written in vain.
    """
    partial.mkdir()
    try:
        payloads = {AGENT: pack_agent(state.agent), STATE: pack_state(state.rest)}
    except ValueError as error:
        raise CheckpointError(f"the checkpoint of step {state.agent_steps:,} is not written: {error}") from error
    if len(payloads[STATE]) > MOST_STATE_BYTES:
        raise CheckpointError(
            f"the checkpoint of step {state.agent_steps:,} is not written: the states of the environments have "
            f"{len(payloads[STATE]):,} bytes, and a checkpoint takes at most {MOST_STATE_BYTES:,}; use fewer --num-envs"
        )
    files = {name: write_checked(partial / name, payload) for name, payload in payloads.items()}
    check_lock(store.parent / RUN_LOCK)
    generation = state.memory.save(store, keep_previous=True)
    content = {"agent_steps": state.agent_steps, "files": files, "memory_generation": generation}
    write_manifest(partial, KIND, VERSION, content)
    return generation


class _Manifest(NamedTuple):
    agent_steps: int
    memory_generation: int
    files: dict[str, dict[str, Any]]  # by name: the entry of ``write_checked``


def _read_checked(checkpoint: Path, name: str, most_bytes: int = MOST_COUNT) -> bytes:
    entry = _read_manifest(checkpoint).files[name]
    if entry["bytes"] > most_bytes:
        raise CheckpointError(
            f"{checkpoint / name}: it has {entry['bytes']:,} bytes: by the settings of the run it should have at most "
            f"{most_bytes:,}; use a whole copy of the run"
        )
    return read_checked(checkpoint, entry)


def _read_manifest(checkpoint: Path) -> _Manifest:
    with reading(checkpoint / MANIFEST):
        content = read_manifest(checkpoint, KIND, VERSION)
        agent_steps, generation = _count(content, "agent_steps"), _count(content, "memory_generation")
        files = {name: content["files"][name] for name in (AGENT, STATE)}
        for name, entry in files.items():
            _count(entry, "bytes")
            if entry["name"] != name:
                raise ValueError(f"it names {entry['name']!r} in place of {name}")
        return _Manifest(agent_steps, generation, files)


def _count(fields: dict[str, Any], name: str) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value <= MOST_COUNT:
        raise ValueError(f"{name} is {str(value)[:60]}: it must be an integer from 0 to {MOST_COUNT:,}")
    return value


def pack_agent(state: dict[str, Any]) -> bytes:
    """Return the state of an agent as the bytes of a .safetensors file, which names tensors by their path.

    Values may be tensors, and what ``pack_state`` packs except bytes and arrays.

    >>> file = pack_agent({"online": {"bias": torch.ones(2)}, "num_updates": 7})
    >>> safetensors.torch.load(file)
    {'online.bias': tensor([1., 1.])}
    >>> unpack_agent(file)
    {'online': {'bias': tensor([1., 1.])}, 'num_updates': 7}
    """
    tensors: dict[str, torch.Tensor] = {}
    described = _describe(state, "", [], tensors)
    return _pack(described, {name: one.contiguous() for name, one in tensors.items()}, safetensors.torch.save)


def unpack_agent(stored: bytes) -> dict[str, Any]:
    """Return the state that ``pack_agent`` packed, with tensors on the CPU; raises ``ValueError`` for other bytes."""
    return _unpack(stored, safetensors.torch.load)


def tensors_of(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in nested dicts and lists, each with its path."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (dict, list, tuple)):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from tensors_of(child, f"{name}.{key}" if name else str(key))


def pack_state(state: dict[str, Any]) -> bytes:
    """Return ``state`` as the bytes of a .safetensors file, which numbers arrays and bytes objects.

    Values may be dicts with string keys, lists, tuples, None, bool, int of any size, float, str, bytes, NumPy scalars
    and arrays of numbers.

    Raises:
        InvalidSettingsError: another kind of value, with its path; or more than ``unpack_state`` takes.

    >>> unpack_state(pack_state({"seed": 2**100, "left": (b"x", [None, 0.5])}))
    {'seed': 1267650600228229401496703205376, 'left': (b'x', [None, 0.5])}
    """
    arrays: list[npt.NDArray[Any]] = []
    described = _describe(state, "state", arrays)
    return _pack(described, {str(number): array for number, array in enumerate(arrays)}, safetensors.numpy.save)


def unpack_state(stored: bytes) -> dict[str, Any]:
    """Return the state that ``pack_state`` packed; raises ``ValueError`` for other bytes."""
    return _unpack(stored, safetensors.numpy.load)


def _pack(
    described: list[Any], named: dict[str, Any], save: Callable[[dict[str, Any], dict[str, str]], bytes]
) -> bytes:
    stored = save(named, {TREE: json.dumps(described)})
    if (end := _header_end(stored)) > MOST_HEADER_BYTES:
        raise InvalidSettingsError(
            f"the state has {end:,} bytes beside its arrays: a checkpoint takes at most {MOST_HEADER_BYTES:,}; "
            "keep long lists as arrays"
        )
    return stored


def _unpack(stored: bytes, load: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
    """Return the state of a file. Its tree has each tensor once: repeated, a small file would become large."""
    end = _header_end(stored)
    if not _LENGTH_BYTES < end <= min(len(stored), MOST_HEADER_BYTES):
        raise ValueError(f"its header ends at byte {end:,}: the file has {len(stored):,}, and a header some thousand")
    try:
        named = load(stored)
    except safetensors.SafetensorError as error:
        raise ValueError(f"not a file of tensors: {error}") from error
    state = _rebuild(json.loads(json.loads(stored[_LENGTH_BYTES:end])["__metadata__"][TREE]), named)
    if named or not isinstance(state, dict):
        raise ValueError(f"its tree is no dictionary, or lacks {sorted(named)[:3]}")
    return state


def _header_end(stored: bytes) -> int:
    return _LENGTH_BYTES + int.from_bytes(stored[:_LENGTH_BYTES], "little")


def _describe(
    value: Any, path: str, arrays: list[npt.NDArray[Any]], tensors: dict[str, torch.Tensor] | None = None
) -> list[Any]:
    """Return ``value`` as [kind, content]. The kind keeps strings of a state apart from our markers."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise InvalidSettingsError(f"{path} has keys {list(value)!r}: keys must be strings; rename them")
        start = f"{path}." if path else ""
        return ["dict", {key: _describe(child, f"{start}{key}", arrays, tensors) for key, child in value.items()}]
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, [_describe(child, f"{path}[{i}]", arrays, tensors) for i, child in enumerate(value)]]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return ["value", value]
    if tensors is not None and isinstance(value, torch.Tensor):
        tensors[path] = value
        return ["tensor", path]
    if isinstance(value, (bytes, bytearray)):
        arrays.append(np.frombuffer(bytes(value), np.uint8))
        return ["bytes", len(arrays) - 1]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.itemsize <= 8:
        arrays.append(np.asarray(value, order="C"))  # another order would be saved as if it were this one
        return ["array", len(arrays) - 1]
    raise InvalidSettingsError(
        f"{path} is a {type(value).__name__}: a state has numbers, strings, bytes and arrays of numbers; convert it"
    )


def _rebuild(described: list[Any], named: dict[str, Any]) -> Any:
    kind, content = described
    if kind == "dict":
        return {key: _rebuild(child, named) for key, child in content.items()}
    if kind in ("list", "tuple"):
        children = [_rebuild(child, named) for child in content]
        return children if kind == "list" else tuple(children)
    if kind == "value" and not isinstance(content, (dict, list)):
        return content
    if kind not in ("bytes", "array", "tensor"):
        raise ValueError(f"its tree has a value of kind {str(kind)[:60]!r}")
    array = named.pop(str(content))
    return array.tobytes() if kind == "bytes" else array
