"""The storage itself: TorchRL's calls, answered from a memory for pixels and from tensors for all else."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from tensordict import TensorDictBase
from torch.utils._pytree import tree_map
from torchrl.data import LazyTensorStorage, RoundRobinWriter, TensorStorage
from torchrl.data.replay_buffers.checkpointers import TensorStorageCheckpointer

from framestow.errors import (
    DamagedDataError,
    IncompatibleError,
    InvalidSettingsError,
    InvalidStepError,
    NothingToSampleError,
)
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.paired_steps import memory_from_bytes, memory_to_bytes
from framestow.integrations.torchrl.pixel_steps import PixelSteps
from framestow.integrations.torchrl.steps import NONE, Indices, Key, PixelKeys, possible_layouts, num_streams_for
from framestow.replay.memory import ReplayMemory

Read: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Gives the pixels of steps, ``(*steps.shape, *shape)``, by their indices."""


class PackedPixels(torch.Tensor):
    """Pixels ``(*steps.shape, *shape)`` of the steps with these indices, packed.

    Indexing it gives plain tensors of what was asked for; a slice of the first dimension stays packed. Whatever else is
    done with it unpacks all of it into a plain tensor first. Writing into it raises ``InvalidStepError``.

    It is what a storage's ``storage[:]`` has for pixels: samplers look at the other keys of that, and nobody waits for
    pictures that nobody looks at.
    """

    _read: Read
    _steps: torch.Tensor
    _nothing: torch.Tensor

    @staticmethod
    def __new__(cls, read: Read, steps: torch.Tensor, nothing: torch.Tensor) -> PackedPixels:
        """``steps``: int64 indices, on the device that the pixels are wanted on; ``nothing``: the pixels of no step."""
        size = (*steps.shape, *nothing.shape[1:])
        made: PackedPixels = torch.Tensor._make_wrapper_subclass(cls, size, dtype=nothing.dtype, device=steps.device)
        made._read, made._steps, made._nothing = read, steps, nothing
        return made

    def unpacked(self) -> torch.Tensor:
        """Give all of it as a plain tensor."""
        return self._read(self._steps)

    def __getitem__(self, index: Any) -> torch.Tensor:
        is_deeper = isinstance(index, tuple) and len(index) > self._steps.ndim
        if is_deeper or index is None or index is Ellipsis:
            return self.unpacked()[index]
        steps = self._steps[index]
        if isinstance(index, slice):
            return PackedPixels(self._read, steps, self._nothing)
        return self._read(steps)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # torch names no types
        return f"PackedPixels(shape={tuple(self.shape)}, dtype={self.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's own names no types
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0]
        if func._schema.is_mutable and isinstance(args[0], cls):
            raise InvalidStepError(
                f"{func} would write into packed pixels: they stay as they came; copy them with clone() first"
            )
        plain = tree_map(lambda each: each.unpacked() if isinstance(each, cls) else each, (args, kwargs or {}))
        return func(*plain[0], **plain[1])


class StoredPixels:
    """Which keys are pixels, and the steps of them that are held, by the indices that they got."""

    def __init__(self, keys: PixelKeys, steps: PixelSteps) -> None:
        self.keys, self.steps = keys, steps

    def read(self, numbers: torch.Tensor) -> dict[Key, torch.Tensor]:
        """Give the pixels of steps by their indices, ``(*numbers.shape, *shape)`` of each key, to be written to.

        Raises ``NothingToSampleError`` for one that is not held.
        """
        before, after = self.steps.transitions(numbers.reshape(-1).cpu().numpy())
        tensors = [torch.from_numpy(np.array(part)) for part in (*before, *after)]  # a memory's own share frames
        whole = [part.reshape(*numbers.shape, *part.shape[1:]).to(numbers.device) for part in tensors]
        return dict(zip(self.keys.all_keys, whole, strict=True))

    def packed(self, numbers: torch.Tensor) -> dict[Key, torch.Tensor]:
        """Give the same, none of it unpacked before it is looked at."""
        nothing = [torch.from_numpy(part) for part in self.steps.no_pixels()]
        return {
            key: PackedPixels(partial(self._read_key, key), numbers, part)
            for key, part in zip(self.keys.all_keys, 2 * nothing, strict=True)
        }

    def equal_stored(self, data: TensorDictBase, numbers: torch.Tensor) -> bool:
        """Whether the pixels in ``data``, if it has any, are those of the steps with these indices."""
        given = {key: data.get(key, None) for key in self.keys.all_keys}
        if all(pixels is None for pixels in given.values()):
            return True
        held = self.read(numbers)
        return all(pixels is None or torch.equal(pixels.to(numbers.device), held[key]) for key, pixels in given.items())

    def state(self) -> dict[str, Any]:
        """What is saved beside the memory, as JSON has it."""
        return {"keys": self.keys.state(), "num_steps": self.steps.num_steps, "steps": self.steps.state()}

    def _read_key(self, key: Key, numbers: torch.Tensor) -> torch.Tensor:
        return self.read(numbers)[key]


MEMORY = "memory"
STATE = "framestow.json"
BYTES_AT_ONCE = 1 << 20


class PixelStorage(Protocol):
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

    def dumps(self, storage: PixelStorage, path: str | Path) -> None:
        """Write the storage into the folder ``path``, which takes what the memory takes and the other keys whole."""
        folder = Path(path)
        super().dumps(storage, folder)
        storage.memory.save(folder / MEMORY)
        state = {"storage": storage.saved_state(), "checksums": _checksums(folder)}
        (folder / STATE).write_text(json.dumps(state))

    def loads(self, storage: PixelStorage, path: str | Path) -> None:
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


def state_of(storage: PixelStorage) -> dict[str, Any]:
    """Give the pixels for a ``state_dict``: text and tensors."""
    files = memory_to_bytes(storage.memory)
    tensors = {name: torch.from_numpy(np.frombuffer(content, np.uint8).copy()) for name, content in files.items()}
    return {"state": json.dumps(storage.saved_state()), MEMORY: tensors}


def restore_state(storage: PixelStorage, state: dict[str, Any]) -> None:
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


Index: TypeAlias = Any
"""What TensorDicts are indexed with: a number, a slice, a sequence or tensor of numbers, a mask, a tuple of these."""

STEP = "_framestow_step"
"""Key beside the others, in what the storage keeps only: the memory's index of each step."""

PADDINGS: dict[str, StackPadding] = {"same": "first_frame", "constant": "zeros"}


class FramestowStorage(LazyTensorStorage):  # type: ignore[misc]  # TorchRL is typed as Any where it is not followed
    """A ``LazyTensorStorage`` whose pixels lie in a framestow memory; all other keys lie as they would there.

    What comes are TensorDicts of single steps as collectors make them: with pixels, with what they led to under
    ``("next", ...)``, true last frames included, and with ``("next", "done")``. What ``sample`` gives is what it would
    give from a ``LazyTensorStorage``, bit for bit; with ``frame_stack`` what it would give had the environment stacked
    the frames (``CatFrames``). Samplers that draw storage positions work as they do there.

    Arguments:
        max_size: steps to keep, as in ``LazyTensorStorage``.
        device: where batches are made, and where the other keys lie.
        ndim: dimensions of the storage; with 2 the first is time, the second the environment.
        frame_stack: ``None`` where what comes is given back: stacks are recognised as such, and each of their frames
            kept once. A number where single frames come: so many of them are stacked along ``dim``.
        dim: the axis of the frames' channels, -3 or -1, as ``CatFrames`` has it.
        padding: what stands before an episode's first frame: ``"same"``, that frame, or ``"constant"``, zeros.
        pixels: keys that are pixels; by default all that are called ``"pixels"``, or have two axes or more and 256
            bytes or more a step, and are under ``"next"`` too.
        threads: how many threads unpack one batch.
        storage: ``"packed"`` or ``"raw"``.

    ``memory`` is the memory behind it, ``memory.report()`` says what it takes. It knows rewards and ends of episodes;
    actions lie beside, with all other keys. Its transitions are those of the storage, but their indices are its own; of
    stacks it has room for some hundreds more, for what comes from the midst of an episode.

    Streams: a step goes on with the one before of its environment. The order of a batch, ``("collector", "traj_ids")``
    and ``"is_init"`` say which one that is, and the pixels have to agree. Any number of environments may take turns.

    Raises ``InvalidStepError`` for steps without pixels or ``("next", ...)`` pixels, and for what would write
    anything but the newest steps: pixels are packed with their neighbours. So writers that choose places
    (``TensorDictMaxValueWriter``), and samplers that consume, do not work with it. ``InvalidSettingsError`` for
    ``compilable``, ``consolidated`` and ``shared_init``: only this process can write, any thread of it can sample.
    """

    _default_checkpointer = FramestowCheckpointer

    def __init__(
        self,
        max_size: int,
        *,
        device: torch.device | str = "cpu",
        ndim: int = 1,
        compilable: bool = False,
        consolidated: bool = False,
        shared_init: bool = False,
        cleanup_memmap: bool = True,
        frame_stack: int | None = None,
        dim: int = -3,
        padding: str = "same",
        pixels: str | Key | Sequence[str | Key] | None = None,
        threads: int = 1,
        storage: str = "packed",
    ) -> None:
        for name, value in (("compilable", compilable), ("consolidated", consolidated), ("shared_init", shared_init)):
            if value:
                raise InvalidSettingsError(
                    f"{name} is {value!r}: the pixels are in a memory of this process, not in one tensor; leave it out"
                )
        if padding not in PADDINGS:
            raise InvalidSettingsError(f"padding is {padding!r}: it is 'same' or 'constant', as in CatFrames")
        super().__init__(max_size, device=device, ndim=ndim, cleanup_memmap=cleanup_memmap)
        self._frame_stack, self._dim, self._padding = frame_stack, dim, PADDINGS[padding]
        self._asked_keys = _as_keys(pixels)
        self.threads = threads
        self._asked_size, self._storage_kind = max_size, storage
        self._pixels: StoredPixels | None = None
        self._next_cell = 0

    @property
    def memory(self) -> ReplayMemory:
        """What holds the pixels; another one after ``empty``, and where more environments turn up than it has streams.

        Raises ``NothingToSampleError`` before the first step.
        """
        return self._stored_pixels().steps.memory

    def set(self, cursor: Index, data: Any, *, set_cursor: bool = True) -> None:
        """Write ``data`` at ``cursor``, the place that comes next; with ``set_cursor=False`` all but the pixels."""
        steps = torch.stack(data, 0) if isinstance(data, list) else data
        if not isinstance(steps, TensorDictBase):
            raise InvalidStepError(f"a step is a {type(data).__name__}: it has to be a TensorDict; give one")
        if not set_cursor:
            self._write_other_keys(cursor, steps)
            return
        is_one = isinstance(cursor, int | np.integer) or (isinstance(cursor, torch.Tensor) and not cursor.ndim)
        batch = steps.unsqueeze(0) if is_one else steps
        size, length = self._max_size_along_dim0(batched_data=batch), len(self)
        cells = self._checked_cells(cursor, len(batch), size)
        try:
            self._set_next(cursor, steps, batch, size)
        except BaseException:
            self._len = length
            self._rewind_writers(len(batch))
            raise
        self._next_cell = (int(cells[-1]) + 1) % size

    def _set_next(self, cursor: Index, steps: TensorDictBase, batch: TensorDictBase, size: int) -> None:
        keys = PixelKeys.found_in(batch, self._asked_keys) if self._pixels is None else self._pixels.keys
        step_batch = keys.steps_of(batch, self.ndim > 1)
        if self._pixels is None:
            self._pixels = self._make_pixels(keys, size * batch.batch_size[1:].numel(), num_streams_for(step_batch))
        continues = self._pixels.steps.checked(step_batch)

        beside = steps.exclude(*keys.all_keys).set(STEP, torch.full(steps.batch_size, NONE, dtype=torch.int64))
        super().set(cursor, beside)
        indices = self._pixels.steps.add(step_batch, continues)
        self._storage[STEP][cursor] = torch.from_numpy(indices).reshape(steps.batch_size).to(self.device)

    def _rewind_writers(self, num_cells: int) -> None:
        """Let the writers, which move before they write, write steps that were refused anew at the same place."""
        for buffer in self._attached_entities:
            writer = getattr(buffer, "_writer", None)
            if isinstance(writer, RoundRobinWriter):
                writer._cursor = self._next_cell
                writer._write_count -= num_cells

    def get(self, index: Index) -> TensorDictBase:
        """Give the steps at ``index``; where it is a slice, with pixels that are unpacked when they are looked at."""
        steps = super().get(index)
        if steps is self._storage:  # a TensorDict gives itself where all of it is asked for
            steps = steps.copy()
        numbers, pixels = steps.pop(STEP), self._stored_pixels()
        is_range = isinstance(index, slice) or (isinstance(index, tuple) and all(isinstance(i, slice) for i in index))
        for key, part in (pixels.packed(numbers) if is_range else pixels.read(numbers)).items():
            steps.set(key, part)
        return steps

    def state_dict(self) -> dict[str, Any]:
        """Give all that is held, the memory as packed bytes."""
        state: dict[str, Any] = super().state_dict()
        return state if self._pixels is None else {**state, "framestow": state_of(self)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Hold what a storage of the same settings held; every byte of the memory is checked before."""
        if "framestow" in state_dict:
            restore_state(self, state_dict["framestow"])
        super().load_state_dict({name: part for name, part in state_dict.items() if name != "framestow"})

    def saved_state(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the memory and the other keys, as JSON has it."""
        return {
            "settings": self._settings(),
            "next_cell": self._next_cell,
            "pixels": self._stored_pixels().state(),
        }

    def restore_state(self, state: dict[str, Any], memory: ReplayMemory) -> None:
        """Take over what ``saved_state`` gave, with its memory; ``IncompatibleError`` where settings differ."""
        check_same(self._settings(), state["settings"])
        saved = state["pixels"]
        pixels = self._make_pixels(PixelKeys.from_state(saved["keys"]), saved["num_steps"], memory.num_envs)
        pixels.steps.restore(saved["steps"], memory)
        self._pixels, self._next_cell = pixels, state["next_cell"]

    def flatten(self) -> TensorStorage:
        """Give a ``TensorStorage`` of one dimension with all that is held, unpacked."""
        return TensorStorage(self.get(slice(None)).flatten(0, self.ndim - 1)) if self.ndim > 1 else self

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:
            raise InvalidSettingsError(
                "a FramestowStorage goes to another process: its memory belongs to the one that writes; collect there "
                "and extend the buffer here"
            )
        state: dict[str, Any] = super().__getstate__()
        return state

    def _settings(self) -> dict[str, Any]:
        return {
            "max_size": self._asked_size,
            "ndim": self.ndim,
            "frame_stack": self._frame_stack,
            "dim": self._dim,
            "padding": self._padding,
            "storage": self._storage_kind,
        }

    def _init(self, data: Any) -> None:
        super()._init(data)
        self._storage[STEP].fill_(NONE)

    def _empty(self) -> None:
        super()._empty()
        self._next_cell = 0
        if self._pixels is not None:
            self._pixels.steps.clear()
            self._storage[STEP].fill_(NONE)

    def _stored_pixels(self) -> StoredPixels:
        if self._pixels is None:
            raise NothingToSampleError("no step came yet: a memory is made for the first; extend the buffer first")
        return self._pixels

    def _make_pixels(self, keys: PixelKeys, num_steps: int, num_envs: int) -> StoredPixels:
        layouts = possible_layouts(keys.space, self._frame_stack, self._padding, self._dim)
        return StoredPixels(keys, PixelSteps(layouts, num_steps, num_envs, self._make_memory, self._renumber))

    def _make_memory(self, capacity: int, space: Any, stack: int, padding: StackPadding, num_envs: int) -> ReplayMemory:
        return ReplayMemory(
            capacity,
            space,
            1,
            stack=stack,
            stack_padding=padding,
            num_envs=num_envs,
            threads=self.threads,
            storage=self._storage_kind,
        )

    def _renumber(self, held: Indices, moved: Indices) -> None:
        """Follow a memory that was made anew: its steps ``held`` are ``moved`` now, others are gone."""
        column = self._storage[STEP]
        numbers = column.cpu().numpy()
        places = np.searchsorted(held, numbers).clip(max=max(len(held) - 1, 0))
        is_held = held[places] == numbers if len(held) else np.zeros(numbers.shape, bool)
        column.copy_(torch.from_numpy(np.where(is_held, moved[places] if len(held) else numbers, NONE)))

    def _checked_cells(self, cursor: Index, num_cells: int, size: int) -> Indices:
        """Give the places along the first dimension that ``cursor`` means; they have to be the next ones."""
        cells = np.arange(size)[cursor] if isinstance(cursor, slice) else np.asarray(cursor)
        cells = cells.reshape(-1).astype(np.int64)
        if not np.array_equal(cells, (self._next_cell + np.arange(num_cells)) % size):
            raise InvalidStepError(
                f"steps come for the places {cells[:4].tolist()}...: the next place is {self._next_cell}, and pixels "
                "are packed in the order in which they come; take a RoundRobinWriter, and one buffer a storage"
            )
        return cells

    def _write_other_keys(self, cursor: Index, steps: TensorDictBase) -> None:
        """Write the keys that are no pixels; pixels have to be those that are there."""
        pixels = self._stored_pixels()
        try:
            numbers = super().get(cursor)[STEP]
        except IndexError:  # nothing is there yet
            numbers = None
        if numbers is None or not pixels.equal_stored(steps, numbers):
            raise InvalidStepError(
                f"other pixels come for the places {cursor}: pixels are packed with their neighbours and stay as they "
                "came; write the other keys alone, or extend the buffer"
            )
        super().set(cursor, steps.exclude(*pixels.keys.all_keys).set(STEP, numbers), set_cursor=False)


def _as_keys(pixels: str | Key | Sequence[str | Key] | None) -> list[Key] | None:
    """Give the keys that were asked for, each as a tuple: a tuple of names is one nested key, a list has several."""
    if pixels is None:
        return None
    asked = [pixels] if isinstance(pixels, str | tuple) else list(pixels)
    return [(key,) if isinstance(key, str) else tuple(key) for key in asked]
