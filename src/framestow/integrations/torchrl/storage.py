"""The storage itself: TorchRL's calls, answered from a memory for pixels and from tensors for all else."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.context import get_spawning_popen
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import TensorDictBase
from torchrl.data import LazyTensorStorage, RoundRobinWriter, TensorStorage

from framestow.errors import InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.frames.stacking import StackPadding
from framestow.integrations.torchrl.checkpoint import FramestowCheckpointer, check_same, restore_state, state_of
from framestow.integrations.torchrl.pixel_layout import layouts_that_may_be
from framestow.integrations.torchrl.pixel_steps import PixelSteps
from framestow.integrations.torchrl.step_batch import NONE, Indices, streams_for
from framestow.integrations.torchrl.stored_pixels import StoredPixels
from framestow.integrations.torchrl.tensor_steps import Key, PixelKeys
from framestow.replay.memory import ReplayMemory

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
        return self._held_pixels().steps.memory

    def set(self, cursor: Index, data: Any, *, set_cursor: bool = True) -> None:
        """Write ``data`` at ``cursor``, the place that comes next; with ``set_cursor=False`` all but the pixels."""
        steps = torch.stack(data, 0) if isinstance(data, list) else data
        if not isinstance(steps, TensorDictBase):
            raise InvalidStepError(f"a step is a {type(data).__name__}: it has to be a TensorDict; give one")
        if not set_cursor:
            self._write_beside(cursor, steps)
            return
        is_one = isinstance(cursor, int | np.integer) or (isinstance(cursor, torch.Tensor) and not cursor.ndim)
        batch = steps.unsqueeze(0) if is_one else steps
        size, length = self._max_size_along_dim0(batched_data=batch), len(self)
        cells = self._checked_cells(cursor, len(batch), size)
        try:
            self._set_next(cursor, steps, batch, size)
        except BaseException:
            self._len = length
            self._take_back(len(batch))
            raise
        self._next_cell = (int(cells[-1]) + 1) % size

    def _set_next(self, cursor: Index, steps: TensorDictBase, batch: TensorDictBase, size: int) -> None:
        keys = PixelKeys.found_in(batch, self._asked_keys) if self._pixels is None else self._pixels.keys
        step_batch = keys.steps_of(batch, self.ndim > 1)
        if self._pixels is None:
            self._pixels = self._made_pixels(keys, size * batch.batch_size[1:].numel(), streams_for(step_batch))
        going = self._pixels.steps.checked(step_batch)

        beside = steps.exclude(*keys.all_keys).set(STEP, torch.full(steps.batch_size, NONE, dtype=torch.int64))
        super().set(cursor, beside)
        indices = self._pixels.steps.add(step_batch, going)
        self._storage[STEP][cursor] = torch.from_numpy(indices).reshape(steps.batch_size).to(self.device)

    def _take_back(self, num_cells: int) -> None:
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
        numbers, pixels = steps.pop(STEP), self._held_pixels()
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
            "pixels": self._held_pixels().state(),
        }

    def restore_state(self, state: dict[str, Any], memory: ReplayMemory) -> None:
        """Take over what ``saved_state`` gave, with its memory; ``IncompatibleError`` where settings differ."""
        check_same(self._settings(), state["settings"])
        saved = state["pixels"]
        pixels = self._made_pixels(PixelKeys.from_state(saved["keys"]), saved["num_steps"], memory.num_envs)
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

    def _held_pixels(self) -> StoredPixels:
        if self._pixels is None:
            raise NothingToSampleError("no step came yet: a memory is made for the first; extend the buffer first")
        return self._pixels

    def _made_pixels(self, keys: PixelKeys, num_steps: int, num_envs: int) -> StoredPixels:
        layouts = layouts_that_may_be(keys.space, self._frame_stack, self._padding, self._dim)
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

    def _write_beside(self, cursor: Index, steps: TensorDictBase) -> None:
        """Write the keys that are no pixels; pixels have to be those that are there."""
        pixels = self._held_pixels()
        try:
            numbers = super().get(cursor)[STEP]
        except IndexError:  # nothing is there yet
            numbers = None
        if numbers is None or not pixels.are_those(steps, numbers):
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
