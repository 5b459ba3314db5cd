"""Saving and loading a storage: TorchRL's files for the keys beside, a memory's own for the pixels."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torchrl.data.replay_buffers.checkpointers import TensorStorageCheckpointer

from framestow.errors import DamagedDataError, IncompatibleError, InvalidSettingsError
from framestow.integrations.drop_in.memory_bytes import memory_from_bytes, memory_to_bytes
from framestow.replay.memory import ReplayMemory

MEMORY = "memory"
STATE = "framestow.json"
BYTES_AT_ONCE = 1 << 20


class PackedStorage(Protocol):
    """A storage whose pixels are in a memory."""

    threads: int

    @property
    def memory(self) -> ReplayMemory:
        """What holds the pixels."""

    def saved_state(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the memory and the other keys, as JSON has it."""

    def restore_state(self, state: dict[str, Any], memory: ReplayMemory) -> None:
        """Take over what ``saved_state`` gave, with its memory; ``IncompatibleError`` where settings differ."""


class FramestowCheckpointer(TensorStorageCheckpointer):  # type: ignore[misc]  # TorchRL is typed as Any
    """Saves the pixels packed, in a folder ``memory`` beside TorchRL's own files, and checks every byte of both."""

    def dumps(self, storage: PackedStorage, path: str | Path) -> None:
        """Write the storage into the folder ``path``, which takes what the memory takes and the other keys whole."""
        folder = Path(path)
        super().dumps(storage, folder)
        storage.memory.save(folder / MEMORY)
        state = {"storage": storage.saved_state(), "checksums": _checksums(folder)}
        (folder / STATE).write_text(json.dumps(state))

    def loads(self, storage: PackedStorage, path: str | Path) -> None:
        """Read what ``dumps`` wrote.

        Raises ``DamagedDataError`` for bytes that are not what was written, ``IncompatibleError`` for a storage of
        other settings, before anything is changed.
        """
        folder = Path(path)
        state = json.loads((folder / STATE).read_text())
        for name, checksum in state["checksums"].items():
            if not (folder / name).is_file() or _checksum(folder / name) != checksum:
                raise DamagedDataError(f"{folder / name} is not what was saved: load another checkpoint")
        storage.restore_state(state["storage"], ReplayMemory.load(folder / MEMORY, threads=storage.threads))
        super().loads(storage, folder)

    def register_save_hook(self, hook: Any) -> None:
        """Refuse: hooks change tensors, and the pixels are none."""
        raise InvalidSettingsError(f"{hook} would change what is saved: pixels are saved packed; leave the hook out")

    def register_load_hook(self, hook: Any) -> None:
        """Refuse, as for those that save."""
        raise InvalidSettingsError(f"{hook} would change what is loaded: pixels are saved packed; leave the hook out")


def state_of(storage: PackedStorage) -> dict[str, Any]:
    """Give the pixels for a ``state_dict``: text and tensors."""
    files = memory_to_bytes(storage.memory)
    tensors = {name: torch.from_numpy(np.frombuffer(content, np.uint8).copy()) for name, content in files.items()}
    return {"state": json.dumps(storage.saved_state()), MEMORY: tensors}


def restore_state(storage: PackedStorage, state: dict[str, Any]) -> None:
    """Put back what ``state_of`` gave."""
    files = {name: tensor.cpu().numpy().tobytes() for name, tensor in state[MEMORY].items()}
    storage.restore_state(json.loads(state["state"]), memory_from_bytes(files, storage.threads))


def check_same(ours: dict[str, Any], saved: dict[str, Any]) -> None:
    """Raise ``IncompatibleError`` for a storage that was saved with other settings."""
    for name, value in ours.items():
        if saved.get(name) != value:
            raise IncompatibleError(
                f"{name} is {value!r}, it was {saved.get(name)!r} in what is loaded: a storage loads what one of the "
                "same settings saved; make it with those"
            )


def _checksums(folder: Path) -> dict[str, int]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    beside = [path for path in files if path.relative_to(folder).parts[0] not in (MEMORY, STATE)]
    return {path.relative_to(folder).as_posix(): _checksum(path) for path in beside}


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(BYTES_AT_ONCE):
            checksum = zlib.crc32(piece, checksum)
    return checksum
