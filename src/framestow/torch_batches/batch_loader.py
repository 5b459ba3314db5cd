"""Batches of tensors that are prepared while the learner runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from framestow.errors import InvalidSettingsError
from framestow.replay.batch import Batch
from framestow.replay.drawing.batches_ahead import BatchesAhead, DrawsAhead, Pending
from framestow.replay.drawing.drawn_memory import DrawnMemory
from framestow.replay.drawing.sequence_starts import Borders
from framestow.torch_batches.device_copies import CopiesAhead, CudaUploads, ImmediateCopies
from framestow.torch_batches.tensor_batch import TensorBatch, TensorSequenceBatch

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


Loaded = TypeVar("Loaded")


class Loader(Generic[Loaded]):
    """What loaders of transitions and of sequences have in common: ``BatchLoader`` says how they work."""

    def __init__(
        self,
        draw: Callable[[], Pending[Any]],
        device: torch.device | str,
        ahead: int,
        threads: int,
        pin_memory: bool,
    ) -> None:
        copies = _copies_to(torch.device(device), pin_memory, ahead)
        self._receive: Callable[[Any], Any] = copies.receive
        self._batches: BatchesAhead[Any, Any] = BatchesAhead(draw, copies.send, ahead, threads)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Loaded:
        """Give the next batch, and wait for it where it is not prepared yet."""
        loaded: Loaded = self._receive(next(self._batches))
        return loaded

    def close(self) -> None:
        """End the threads, once each has finished the batch it is at; closing again does nothing."""
        self._batches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class BatchLoader(Loader[TensorBatch]):
    """An endless iterator over a memory's batches as tensors, the next of which are prepared on threads.

    >>> import numpy as np
    >>> from framestow import FrameSpec, ReplayMemory
    >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=3, seed=0)
    >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
    >>> memory.append([3], [0.5], [False], [True], np.ones((1, 2, 2), np.uint8))
    >>> with BatchLoader(memory, batch_size=32) as loader:
    ...     batch = next(loader)
    >>> batch.observation.shape, batch.reward[0]
    (torch.Size([32, 3, 2, 2]), tensor(0.5000))

    Arguments:
        memory: what batches are drawn from; others may append to it and sample it meanwhile.
        batch_size: what is drawn at a time.
        device: where the tensors are to be; see ``TensorBatch``.
        ahead: batches that are drawn before they are asked for.
        threads: how many unpack, each a batch at a time. One keeps up with a learner that takes longer over a batch
            than unpacking does.
        pin_memory: for CUDA, whether the buffers that batches travel through are pinned, so that copies run beside the
            learner. There are ``ahead`` + 2 of them, each as large as a batch.
        draw: what draws, given ``batch_size``, and returns what is unpacked later; ``memory.draw_ahead`` by default.

    **What is drawn, and when**: batch k in the thread that asks, when that asks for batch k - ahead; the first call
    draws batches 0 to ``ahead``. So the order of draws among steps, priorities and other draws is the program's own:
    the same program gives the same batches, bit for bit, whatever the threads do, and without steps in between those
    that ``sample`` gives. What came after a batch's draw, steps and priorities, is not seen in it.

    A batch is handed over when it is on the device, or, for CUDA, when the calling thread's current stream will wait
    for it; on another stream, wait for that one. What goes wrong on a thread is raised when its batch is asked for:
    ``DamagedSegmentError``, or what the device raises; the next call gives the next batch. ``NothingToSampleError``
    comes from the draw. ``ForkedLoaderError`` is raised in a process that was forked since.

    One thread at a time asks for batches. ``close``, or the end of a ``with`` block, ends the threads, as does dropping
    the loader; from then on there are no more batches. docs/sampling.md has examples and figures.
    """

    def __init__(
        self,
        memory: DrawsAhead[Batch],
        batch_size: int,
        device: torch.device | str = "cpu",
        *,
        ahead: int = 2,
        threads: int = 1,
        pin_memory: bool = True,
        draw: Callable[[int], Pending[Batch]] | None = None,
    ) -> None:
        if batch_size < 1:
            raise InvalidSettingsError(f"batch_size is {batch_size}: a batch has at least 1 transition")
        super().__init__(partial(draw or memory.draw_ahead, batch_size), device, ahead, threads, pin_memory)


class SequenceLoader(Loader[TensorSequenceBatch]):
    """The same for sequences: what ``memory.sample_sequences`` gives, as tensors, prepared ahead.

    ``batch_size``, ``length``, ``overlap``, ``burn_in`` and ``borders`` are those of ``sample_sequences``, all else is
    as for ``BatchLoader``. To a CUDA device each frame of a sequence travels once, unless borders are crossed.
    """

    def __init__(
        self,
        memory: DrawnMemory,
        batch_size: int,
        length: int,
        device: torch.device | str = "cpu",
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
        ahead: int = 2,
        threads: int = 1,
        pin_memory: bool = True,
    ) -> None:
        asked = partial(memory.draw_sequences_ahead, overlap=overlap, burn_in=burn_in, borders=borders)
        super().__init__(partial(asked, batch_size, length), device, ahead, threads, pin_memory)


def _copies_to(device: torch.device, pin_memory: bool, ahead: int) -> CopiesAhead | ImmediateCopies:
    if device.type != "cuda":
        return ImmediateCopies(device)
    if device.index is None:  # each thread has a current device of its own
        device = torch.device("cuda", torch.cuda.current_device())
    return CopiesAhead(CudaUploads(device, pin_memory), num_buffers=ahead + 2)
