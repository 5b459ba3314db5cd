"""``FramestowStorage``: a TorchRL storage with pixels in a packed memory and all other keys in tensors.

``FramestowCheckpointer`` saves and loads a storage.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any, Literal, TypeAlias, Unpack

import numpy as np
import torch
from tensordict import TensorDictBase
from torchrl.data import LazyTensorStorage, RoundRobinWriter, TensorStorage
from torchrl.data.replay_buffers.checkpointers import TensorStorageCheckpointer

from framestow.checks import one_of, truth_value, whole_number
from framestow.errors import (
    DamagedDataError,
    IncompatibleError,
    InvalidSettingsError,
    InvalidStepError,
    NothingToSampleError,
)
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.memory_options import MemoryOptions, take_options
from framestow.integrations.drop_in.paired_steps import check_frame_stack
from framestow.integrations.drop_in.pickled_memory import MemoryInFolder, memory_from_arrays, memory_to_arrays
from framestow.integrations.torchrl.pixel_steps import MIN_ENVS, PixelSteps, stacks_along
from framestow.integrations.torchrl.steps import NONE, Key, PixelKeys, name_of
from framestow.interface import one_line, shapes
from framestow.replay.memory import ReplayMemory
from framestow.replay.reports.memory_report import MemoryReport
from framestow.torch.tensor_batch import parse_device

MEMORY = "memory"  # names in a saved storage: the folder of the memory, and the file of the rest
STATE = "framestow.json"
BYTES_AT_ONCE = 1 << 20  # of a file that is hashed
BY_ANOTHER_STORAGE = "another storage saved this; load it there, and extend this buffer with its steps"
CELL_OF_EACH_STEP = "TorchRL draws cells of a full storage; give a smaller max_size, or a directory"


class FramestowCheckpointer(TensorStorageCheckpointer):  # type: ignore[misc]  # TorchRL is typed as Any
    """Save and load a storage: packed pixels in a folder ``memory`` beside TorchRL's files, with checksums of all."""

    def dumps(self, storage: FramestowStorage, path: str | Path) -> None:
        """Write the storage to the folder ``path``."""
        folder = Path(path)
        super().dumps(storage, folder)
        if storage.memory.directory is None:
            storage.memory.save(folder / MEMORY)
        state: dict[str, Any] = {"storage": storage._make_state(), "checksums": _checksums(folder)}
        state["checksum"] = zlib.crc32(json.dumps(state).encode())
        (folder / STATE).write_text(json.dumps(state))

    def loads(self, storage: FramestowStorage, path: str | Path) -> None:
        """Load a storage that ``dumps`` has written.

        Raises:
            DamagedDataError: damaged files.
            IncompatibleError: the settings differ, or another storage was saved, before anything is changed.
        """
        folder = Path(path)
        state = _read_state(folder / STATE)
        for name, checksum in state["checksums"].items():
            if not (folder / name).is_file() or _checksum(folder / name) != checksum:
                raise _damaged(folder / name)
        storage._restore_state(state["storage"], lambda: ReplayMemory.load(folder / MEMORY, threads=storage.threads))
        super().loads(storage, folder)

    def register_save_hook(self, hook: Any) -> None:
        """Raise ``InvalidSettingsError``: hooks change tensors, and packed pixels are not tensors."""
        raise InvalidSettingsError(f"{hook} is a save hook: pixels are saved packed, without hooks; remove the hook")

    def register_load_hook(self, hook: Any) -> None:
        """Raise ``InvalidSettingsError``, as ``register_save_hook`` does."""
        raise InvalidSettingsError(f"{hook} is a load hook: pixels are saved packed, without hooks; remove the hook")


def _read_state(path: Path) -> dict[str, Any]:
    if not path.exists() and not (path.parent / MEMORY).exists():
        raise IncompatibleError(f"{path} is missing: {BY_ANOTHER_STORAGE}")
    with suppress(FileNotFoundError, ValueError):  # ValueError: the JSON is cut
        state: dict[str, Any] = json.loads(path.read_bytes())
        if state.pop("checksum", None) in (None, zlib.crc32(json.dumps(state).encode())):  # older files have none
            return state
    raise _damaged(path)


def _damaged(path: Path) -> DamagedDataError:
    return DamagedDataError(f"{path} is damaged or missing: a checkpoint needs every file; load another checkpoint")


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
"""An index of a TensorDict: a number, a slice, a sequence or tensor of numbers, a mask, or a tuple of these."""

MAX_AXES = 64  # of a tensor

STEP = "_framestow_step"
"""Internal key of the storage: the memory's index of each step."""

Padding = Literal["same", "constant"]  # the names of CatFrames
PADDINGS: dict[Padding, StackPadding] = {"same": "first_frame", "constant": "zeros"}


class FramestowStorage(LazyTensorStorage):  # type: ignore[misc]  # TorchRL is typed as Any where it is not followed
    """A ``LazyTensorStorage`` with pixels in a packed memory; all other keys are stored as tensors.

    Same as ``LazyTensorStorage``: the samples, bit for bit, and all samplers that draw storage positions. With
    ``frame_stack``, samples are stacked as if the environment had used ``CatFrames``.

    Different: ``extend`` needs TensorDicts of single steps, as collectors return them: with pixels, the pixels after
    the step under ``("next", ...)``, including true last frames, and ``("next", "done")``.

    Arguments:
        max_size: maximum number of steps, as in ``LazyTensorStorage``.
        device: device of batches and of the other keys.
        ndim: number of dimensions; with 2 the first is time and the second the environment.
        frame_stack: number of single frames to stack along ``dim``. ``None`` returns pixels as they were added. Those
            with the shape of stacks share their frames.
        dim: channel axis of the frames, -3 or -1, as in ``CatFrames``.
        padding: padding of an episode's first stacks: ``"same"`` repeats the first frame, ``"constant"`` uses zeros.
        pixels: pixel keys. Default: keys named ``"pixels"``, and keys with at least two axes and 256 bytes per step.
            All must also be under ``"next"``.
        memory: options of the memory, by keyword: ``threads``, ``storage``, ``frames_per_segment``, ``directory``,
            ``flush_every`` (``MemoryOptions``). In the ``directory`` are the pixels; all else stays in RAM. It must be
            empty: a ``state_dict`` or a checkpoint has all else and names the folder, and loading goes on there.

    ``report()`` shows the memory use. The memory stores episode ends, but neither actions nor rewards. Its
    indices differ from storage positions. If Ctrl-C interrupts a batch, its first steps are stored, up to the
    interrupt.

    Any number of environments may take turns. A step continues the previous step of its environment if the pixels
    match. The order of a batch, ``("collector", "traj_ids")`` and ``"is_init"`` identify the environment.

    Not supported, because pixels are packed with their neighbours: writers that choose positions
    (``TensorDictMaxValueWriter``) and consuming samplers. Only the process that created the storage may write to it;
    any of its threads may sample.

    Raises:
        InvalidStepError: steps without pixels or ``("next", ...)`` pixels, or a write to other than the next positions.
        InvalidSettingsError: ``compilable``, ``consolidated`` or ``shared_init`` is set.
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
        padding: Padding = "same",
        pixels: str | Key | Sequence[str | Key] | None = None,
        **memory: Unpack[MemoryOptions],
    ) -> None:
        reasons = {"max_bytes": f"not possible here: {CELL_OF_EACH_STEP}"}
        options = take_options(type(self), MemoryOptions, memory, reasons)
        max_size = whole_number("max_size", max_size, 1, rule="a storage has at least 1 step")
        ndim = whole_number("ndim", ndim, 1, rule="a storage has at least 1 dimension; 2 are time and environment")
        check_frame_stack(frame_stack)
        dim = whole_number("dim", dim, -MAX_AXES, -1, rule="it must be the axis of the channels; give -3 or -1")
        directory = options.get("directory")
        self._directory = None if directory is None else directory.resolve()
        truth_value("cleanup_memmap", cleanup_memmap)
        one_of("padding", padding, tuple(PADDINGS), "as in CatFrames")
        if not isinstance(device, str) or device != "auto":
            parse_device(device)
        for name, value in (("compilable", compilable), ("consolidated", consolidated), ("shared_init", shared_init)):
            if truth_value(name, value):
                raise InvalidSettingsError(
                    f"{name} is {value!r}: not supported, because pixels are not in one tensor; leave it out"
                )
        super().__init__(max_size, device=device, ndim=ndim, cleanup_memmap=cleanup_memmap)
        self._frame_stack, self._dim, self._padding = frame_stack, dim, padding
        self._asked_keys = _as_keys(pixels)  # None: every key of pixels that the first step has
        self.threads: int = options.get("threads", 1)
        self._asked_size, self._options = max_size, {**options, "directory": self._directory}
        self._pixels: PixelSteps | None = None  # created with the first step, whose keys it has
        self._next_cell = 0  # cell that the next ``set`` must begin at

    @property
    def memory(self) -> ReplayMemory:
        """The memory with the pixels. ``empty`` replaces it, and so do more open episodes than it has environments.

        Raises:
            NothingToSampleError: before the first step.
        """
        return self._require_pixels().memory

    def report(self) -> MemoryReport:
        """Return the report of ``memory`` for the steps of this storage: the memory has room for some more.

        Raises:
            NothingToSampleError: before the first step.
        """
        report = self.memory.report()
        return replace(report, transitions=min(report.transitions, len(self)), capacity=self.max_size)

    def __repr__(self) -> str:
        def details() -> Iterator[str]:
            yield f"{len(self):,} of {self.max_size:,} steps"
            if self._pixels is not None:
                yield self.report().describe_bytes()
                for key, spec in zip(self._pixels.keys.keys, self._pixels.sampled_specs, strict=True):
                    yield f"{name_of(key)} {shapes(spec)}"
            if self._frame_stack is not None:
                yield f"frame_stack {self._frame_stack}"

        return one_line(self, details)

    def set(self, cursor: Index, data: Any, *, set_cursor: bool = True) -> None:
        """Write ``data`` at ``cursor``, the next positions; with ``set_cursor=False`` write only the other keys."""
        steps = torch.stack(data, 0) if isinstance(data, list) else data
        if not isinstance(steps, TensorDictBase):
            raise InvalidStepError(f"a step is a {type(data).__name__}: it must be a TensorDict; convert it")
        if not set_cursor:
            self._write_other_keys(cursor, steps)
            return
        is_one = isinstance(cursor, int | np.integer) or (isinstance(cursor, torch.Tensor) and not cursor.ndim)
        batch = steps.unsqueeze(0) if is_one else steps
        if not batch.batch_size.numel():
            self._rewind_writers(len(batch))
            return
        size, start, width = (
            self._max_size_along_dim0(batched_data=batch),
            self._next_cell,
            batch.batch_size[1:].numel(),
        )
        self._check_cells(cursor, len(batch), size)
        first = self._next_number
        try:
            self._add_pixels(batch, size * width, width)
        finally:  # a refused batch is not stored; after Ctrl-C, its first steps are
            num_rows = (self._next_number - first) // width
            if num_rows:
                numbers = torch.arange(first, first + num_rows * width, device=self.device)
                numbers = numbers.reshape(num_rows, *batch.batch_size[1:])
                others = self._other_keys(batch if num_rows == len(batch) else batch[:num_rows], numbers)
                super().set(_cells_from(start, num_rows, size), others)
                self._next_cell = (start + num_rows) % size
            if num_rows < len(batch):
                self._rewind_writers(len(batch) - num_rows)

    def _add_pixels(self, batch: TensorDictBase, num_steps: int, width: int) -> None:
        keys = PixelKeys.find_in(batch, self._asked_keys) if self._pixels is None else self._pixels.keys
        steps = keys.steps_of(batch, self.ndim > 1)
        if self._pixels is None:
            num_envs = 2 * max(len(np.unique(steps.rows)), len(np.unique(steps.trajectories)))
            self._pixels = self._make_pixels(keys, num_steps, max(num_envs, MIN_ENVS))
        self._pixels.add(steps, width)

    def _other_keys(self, steps: TensorDictBase, numbers: torch.Tensor) -> TensorDictBase:
        others = steps.exclude(*self._require_pixels().keys.all_keys).set(STEP, numbers)
        return others if others.device is not None else others.auto_device_()  # otherwise TorchRL copies all keys

    @property
    def _next_number(self) -> int:
        """Number of the next step."""
        return 0 if self._pixels is None else self._pixels.next_number

    def _rewind_writers(self, num_cells: int) -> None:
        """Move the writers back by cells that were not written; they advance before they write."""
        for buffer in self._attached_entities:
            writer = getattr(buffer, "writer", None)
            if isinstance(writer, RoundRobinWriter):
                state = writer.state_dict()
                state |= {"_cursor": self._next_cell, "_write_count": state["_write_count"] - num_cells}
                writer.load_state_dict(state)

    def get(self, index: Index) -> TensorDictBase:
        """Return the steps at ``index``; for slices, pixels are ``PackedPixels``."""
        steps = super().get(index)
        if steps is self._storage:  # a TensorDict returns itself for a full slice
            steps = steps.copy()
        numbers, pixels = steps.pop(STEP), self._require_pixels()
        is_range = isinstance(index, slice) or (isinstance(index, tuple) and all(isinstance(i, slice) for i in index))
        for key, part in (pixels.read_packed(numbers) if is_range else pixels.read(numbers)).items():
            steps.set(key, part)
        return steps

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state, with the memory as packed bytes."""
        state: dict[str, Any] = super().state_dict()
        if self._pixels is None:
            return state
        in_ram = memory_to_arrays(self.memory) if self.memory.directory is None else {}
        tensors = {name: torch.from_numpy(content) for name, content in in_ram.items()}
        state["_storage"] = self._storage.clone().state_dict()  # of the same time as the pixels
        return {**state, "framestow": {"state": json.dumps(self._make_state()), MEMORY: tensors}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of a storage with the same settings; damaged bytes are detected before any change.

        Raises:
            IncompatibleError: the settings differ, or another storage returned the state. Nothing is changed.
        """
        if "framestow" in state_dict:
            saved = state_dict["framestow"]
            files = {name: tensor.numpy(force=True) for name, tensor in saved[MEMORY].items()}
            self._restore_state(json.loads(saved["state"]), lambda: memory_from_arrays(files, self.threads))
        elif state_dict["initialized"]:
            raise IncompatibleError(f"the state has no key 'framestow': {BY_ANOTHER_STORAGE}")
        else:
            self._empty()
        super().load_state_dict({name: part for name, part in state_dict.items() if name != "framestow"})

    def _make_state(self) -> dict[str, Any]:
        """Return the state without the other keys, as JSON. Of the memory it has only the name of its directory."""
        memory = self._require_pixels().memory
        return {
            "folder": None if memory.directory is None else MemoryInFolder.flushed(memory),
            "settings": self._settings(),
            "next_cell": self._next_cell,
            "pixels": self._require_pixels().state(),
        }

    def _restore_state(self, state: dict[str, Any], load: Callable[[], ReplayMemory]) -> None:
        """Restore the result of ``_make_state``; ``load`` returns its memory, if it has no directory.

        Raises:
            IncompatibleError: the settings differ.
        """
        for name, value in self._settings().items():
            if state["settings"].get(name) != value:
                raise IncompatibleError(
                    f"{name} is {value!r}, but {state['settings'].get(name)!r} in the saved storage: settings must be "
                    "equal; create the storage with the saved settings"
                )
        saved, folder = state["pixels"], state.get("folder")  # of saves without this key, too
        memory = load() if folder is None else MemoryInFolder(*folder).load()
        pixels = self._make_pixels(PixelKeys.from_state(saved["keys"]), saved["num_steps"], memory.num_envs, memory)
        pixels.restore(saved)
        self._pixels, self._next_cell = pixels, state["next_cell"]

    def flatten(self) -> TensorStorage:
        """Return a one-dimensional ``TensorStorage`` with all steps, unpacked."""
        return TensorStorage(self.get(slice(None)).flatten(0, self.ndim - 1)) if self.ndim > 1 else self

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:
            raise InvalidSettingsError(
                "a FramestowStorage cannot be sent to another process: its memory belongs to the process that writes; "
                "collect in the other process and extend the buffer here"
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
            "storage": self._options.get("storage", "packed"),
            "directory": None if self._directory is None else str(self._directory),
        }

    def _init(self, data: Any) -> None:
        super()._init(data)
        self._storage[STEP].fill_(NONE)

    def _empty(self) -> None:
        super()._empty()
        self._next_cell = 0
        if self._pixels is not None:
            self._pixels.clear()
            self._storage[STEP].fill_(NONE)

    def _require_pixels(self) -> PixelSteps:
        if self._pixels is None:
            raise NothingToSampleError(
                "the storage is empty: the first step creates its memory; extend the buffer first"
            )
        return self._pixels

    def _make_pixels(
        self, keys: PixelKeys, num_steps: int, num_envs: int, memory: ReplayMemory | None = None
    ) -> PixelSteps:
        stacks = None
        if self._frame_stack is not None:
            stacks = [stacks_along(spec.shape, self._frame_stack, self._dim) for spec in keys.specs]
        settings = {"stack_padding": PADDINGS[self._padding], **self._options}
        return PixelSteps(keys, stacks, num_steps, num_envs, settings, memory)

    def _check_cells(self, cursor: Index, num_cells: int, size: int) -> None:
        """Raise unless ``cursor`` has the next positions along the first dimension."""
        cells = list(range(size)[cursor]) if isinstance(cursor, slice) else np.asarray(cursor).reshape(-1).tolist()
        if cells != [cell % size for cell in range(self._next_cell, self._next_cell + num_cells)]:
            raise InvalidStepError(
                f"steps are written to the positions {cells[:4]}...: the next position is {self._next_cell}, "
                "and pixels must be added in order; use a RoundRobinWriter and one buffer per storage"
            )

    def _write_other_keys(self, cursor: Index, steps: TensorDictBase) -> None:
        """Write the other keys; raise ``InvalidStepError`` if ``steps`` has other pixels than the stored ones."""
        pixels = self._require_pixels()
        try:
            numbers = super().get(cursor)[STEP]
        except IndexError:  # the storage is empty
            numbers = None
        if numbers is None or not pixels.equal_stored(steps, numbers):
            raise InvalidStepError(
                f"new pixels are written to the positions {cursor}: stored pixels cannot be changed; write only the "
                "other keys, or extend the buffer"
            )
        super().set(cursor, self._other_keys(steps, numbers), set_cursor=False)


def _cells_from(start: int, num_cells: int, size: int) -> slice | torch.Tensor:
    """Return the index of cells of a ring; TorchRL writes to a slice in two thirds of the time."""
    stop = start + num_cells
    return slice(start, stop) if stop <= size else torch.arange(start, stop) % size


def _as_keys(pixels: str | Key | Sequence[str | Key] | None) -> list[Key] | None:
    """Return the given keys as tuples: a tuple of names is one nested key, a list has several keys."""
    if pixels is None:
        return None
    asked = [pixels] if isinstance(pixels, str | tuple) else pixels
    keys = [(key,) if isinstance(key, str) else key for key in asked] if isinstance(asked, list) else []
    if not keys or not all(isinstance(key, tuple) and all(isinstance(name, str) for name in key) for key in keys):
        raise InvalidSettingsError(
            f"pixels is {pixels!r}: it must be a key of the TensorDicts, or a list of keys; give 'pixels', or "
            "[('agents', 'pixels')] for a nested key"
        )
    return keys
