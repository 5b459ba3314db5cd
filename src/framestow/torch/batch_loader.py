"""Batches of tensors that are prepared while the learner runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from framestow.argument_checks import truth_value, whole_number
from framestow.errors import InvalidSettingsError
from framestow.replay.batch import Batch
from framestow.replay.batches_ahead import AHEAD_RULE, BatchesAhead, DrawsAhead, Pending, checked_batch, draw_function
from framestow.replay.memory import ReplayMemory, checked_batch_size
from framestow.replay.sequences import Borders
from framestow.torch.tensor_batch import (
    AnyBatch,
    AnyTensors,
    TensorBatch,
    TensorSequenceBatch,
    converted,
    parcel_of,
    to_tensors,
)

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Upload(Protocol):
    """A copy to the device, which goes on."""

    @property
    def piece(self) -> Tensor:
        """Where it ends: uint8 on the device. Not to be looked at before ``await_on_device``."""

    def is_done(self) -> bool:
        """Whether what it reads may be written again."""

    def wait(self) -> None:
        """Return once it is done. It waits for nothing but the copies before it."""

    def await_on_device(self) -> None:
        """Let all that the calling thread queues on the device from now on come after the copy.

        ``piece`` may then be dropped at any time: its memory is used again only after what was queued until then.
        """


class Uploads(Protocol):
    """What is asked of a device that copies by itself: memory that it can read, and copies beside the learner."""

    def staging(self, num_bytes: int) -> Tensor:
        """Make a buffer on the CPU, uint8, that the device can read."""

    def start(self, staging: Tensor) -> Upload:
        """Queue a copy of ``staging``, behind the copies before it and beside all else."""


class Sent(NamedTuple):
    """A batch on its way, and what its tensors are views of."""

    batch: AnyTensors
    upload: Upload


class CopiesAhead:
    """Sends batches through recycled buffers to a device that copies while the learner runs, and hands them over.

    A buffer is written again once the copy that read it is done. There are ``num_buffers``, made when first needed;
    where none is idle, a thread waits for the oldest copy, which waits for no one.
    """

    def __init__(self, uploads: Uploads, num_buffers: int) -> None:
        self._uploads = uploads
        self._lock = threading.Lock()
        self._num_unmade = num_buffers
        self._used: list[tuple[Tensor, Upload]] = []  # each with the copy that read it last, the oldest first

    def send(self, batch: AnyBatch) -> Sent:
        """Queue the copy of ``batch``, in any thread; when this returns, its arrays have been read."""
        parcel = parcel_of(batch)
        buffer = self._take(parcel.nbytes)
        staging = buffer[: parcel.nbytes]
        parcel.write_to(staging)
        upload = self._uploads.start(staging)
        with self._lock:
            self._used.append((buffer, upload))
        return Sent(converted(batch, lambda array: parcel.find(array, upload.piece)), upload)

    def receive(self, sent: Sent) -> AnyTensors:
        """Give a batch to the calling thread: what that queues from now on sees it whole."""
        sent.upload.await_on_device()
        return sent.batch

    def _take(self, num_bytes: int) -> Tensor:
        with self._lock:
            is_first_idle = bool(self._used) and self._used[0][1].is_done()
            if self._used and (is_first_idle or not self._num_unmade):
                buffer, upload = self._used.pop(0)
            else:
                self._num_unmade = max(0, self._num_unmade - 1)
                buffer, upload = self._uploads.staging(num_bytes), None
        if upload is not None:
            upload.wait()
        return buffer if len(buffer) >= num_bytes else self._uploads.staging(num_bytes)


class ImmediateCopies:
    """The same face for a device that copies at once, and for the CPU, where nothing is copied."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def send(self, batch: AnyBatch) -> AnyTensors:
        """Bring ``batch`` to the device."""
        return to_tensors(batch, self._device)

    def receive(self, sent: AnyTensors) -> AnyTensors:
        """Give it to the calling thread as it is."""
        return sent


class CudaUpload:
    """A copy on the stream of ``CudaUploads``."""

    def __init__(self, piece: Tensor, event: torch.cuda.Event) -> None:
        self.piece, self._event = piece, event

    def is_done(self) -> bool:
        """Whether the stream has passed the copy."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Let the thread sleep until then."""
        self._event.synchronize()

    def await_on_device(self) -> None:
        """Let the thread's current stream wait for the copy; the thread itself goes on."""
        learner = torch.cuda.current_stream(self.piece.device)
        learner.wait_event(self._event)
        self.piece.record_stream(learner)  # it belongs to the copies' stream, which would use it again at once


class CudaUploads:
    """Copies to a CUDA device on a stream of their own."""

    def __init__(self, device: torch.device, pin_memory: bool) -> None:
        self._device, self._pin_memory = device, pin_memory
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def staging(self, num_bytes: int) -> Tensor:
        """Make a buffer; from one that is not pinned, CUDA copies through one of its own, and the thread waits."""
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=self._pin_memory)

    def start(self, staging: Tensor) -> CudaUpload:
        """Queue a copy of ``staging``."""
        with torch.cuda.stream(self._stream):
            piece = torch.empty(len(staging), dtype=torch.uint8, device=self._device)
            piece.copy_(staging, non_blocking=True)
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            event.record(self._stream)
        return CudaUpload(piece, event)


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
        pin_memory = truth_value("pin_memory", pin_memory)
        ahead = whole_number("ahead", ahead, 1, rule=AHEAD_RULE)
        copies = _copies_to(_device(device), pin_memory, ahead)
        self._receive: Callable[[Any], Any] = copies.receive
        self._batches: BatchesAhead[Any, Any] = BatchesAhead(draw, partial(_sent, copies), ahead, threads)

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
        draw: what draws instead of the memory: called with ``batch_size`` in the caller's thread, it returns an object
            with ``unpack()``, called on a thread; ``redraw(error)``; and ``stop()`` (docs/sampling.md).

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
        batch_size = checked_batch_size(batch_size)
        super().__init__(partial(draw_function(memory, draw), batch_size), device, ahead, threads, pin_memory)


class SequenceLoader(Loader[TensorSequenceBatch]):
    """The same for sequences: what ``memory.sample_sequences`` gives, as tensors, prepared ahead.

    ``batch_size``, ``length``, ``overlap``, ``burn_in`` and ``borders`` are those of ``sample_sequences``, all else is
    as for ``BatchLoader``. To a CUDA device each frame of a sequence travels once, unless borders are crossed.
    """

    def __init__(
        self,
        memory: ReplayMemory,
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
        draw_function(memory)
        asked = partial(memory._draw_sequences_ahead, overlap=overlap, burn_in=burn_in, borders=borders)
        super().__init__(partial(asked, batch_size, length), device, ahead, threads, pin_memory)


def _device(device: torch.device | str) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidSettingsError(f"device is {device!r}: PyTorch knows no such device: {error}") from error


def _sent(copies: CopiesAhead | ImmediateCopies, batch: Any) -> Any:
    return copies.send(checked_batch(batch))


def _copies_to(device: torch.device, pin_memory: bool, ahead: int) -> CopiesAhead | ImmediateCopies:
    if device.type != "cuda":
        return ImmediateCopies(device)
    if device.index is None:  # each thread has a current device of its own
        device = torch.device("cuda", torch.cuda.current_device())
    return CopiesAhead(CudaUploads(device, pin_memory), num_buffers=ahead + 2)
