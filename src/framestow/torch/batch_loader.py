"""Iterators over batches of tensors: threads prepare the next batches while the learner runs.

``BatchLoader`` and ``SequenceLoader`` draw batches in the caller's thread. Background threads unpack them.
To a CUDA device they are copied through pinned buffers on a separate stream (``CopiesAhead``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from framestow.checks import truth_value, whole_number
from framestow.keywords import suggests_keywords
from framestow.replay.memory import check_batch_size
from framestow.replay.reading.batch import Batch, check_batch
from framestow.replay.reading.batches_ahead import (
    AHEAD_RULE,
    BatchesAhead,
    DrawsAhead,
    Pending,
    draw_function,
    sequence_draw_function,
)
from framestow.replay.reading.read_calls import ReadCalls
from framestow.replay.reading.sequences import Borders, SequenceShape
from framestow.torch.tensor_batch import (
    AnyBatch,
    AnyTensors,
    TensorBatch,
    TensorSequenceBatch,
    convert_batch,
    copied,
    to_tensors,
    transfer_buffer_of,
    usable_device,
)


class Upload(Protocol):
    """An asynchronous copy to the device."""

    @property
    def on_device(self) -> Tensor:
        """The copied bytes on the device, uint8. Call ``make_stream_wait`` before you read them."""

    def is_done(self) -> bool:
        """Return whether the source buffer may be written again."""

    def wait(self) -> None:
        """Block the thread until this copy, and the copies queued before it, are done."""

    def make_stream_wait(self) -> None:
        """Make the calling thread's device stream wait for the copy.

        The device reuses the memory of ``on_device`` only after the work that the stream has queued by then.
        """


class Uploads(Protocol):
    """A device that copies asynchronously: it makes readable buffers and queues copies."""

    def staging(self, num_bytes: int) -> Tensor:
        """Return a new uint8 buffer on the CPU that the device can read."""

    def start(self, staging: Tensor) -> Upload:
        """Queue a copy of ``staging``, after the copies queued before it."""


class SentBatch(NamedTuple):
    """A batch whose copy is queued, and that copy."""

    batch: AnyTensors
    upload: Upload


class CopiesAhead:
    """Copies batches asynchronously to a device, through up to ``num_buffers`` reused buffers.

    A buffer is written again when the copy that reads it is done. When all buffers are in use, ``send`` waits for the
    oldest copy.
    """

    def __init__(self, uploads: Uploads, num_buffers: int, copy: bool = False) -> None:
        self._uploads, self._copy = uploads, copy
        self._lock = threading.Lock()  # guards the two below; several threads send
        self._num_to_create = num_buffers  # buffers that may still be created
        self._used: list[tuple[Tensor, Upload]] = []  # buffers with the last copy that reads them, oldest first

    def send(self, batch: AnyBatch) -> SentBatch:
        """Queue the copy of ``batch``. Any thread may call this; the batch's arrays are read before it returns."""
        layout = transfer_buffer_of(batch)
        buffer = self._take(layout.nbytes)
        staging = buffer[: layout.nbytes]
        layout.write_to(staging)
        upload = self._uploads.start(staging)
        with self._lock:
            self._used.append((buffer, upload))
        return SentBatch(convert_batch(batch, lambda array: layout.find(array, upload.on_device)), upload)

    def receive(self, sent: SentBatch) -> AnyTensors:
        """Return the batch's tensors; the calling thread's stream waits for the copy."""
        sent.upload.make_stream_wait()
        return copied(sent.batch) if self._copy else sent.batch

    def _take(self, num_bytes: int) -> Tensor:
        with self._lock:
            is_first_idle = bool(self._used) and self._used[0][1].is_done()
            if self._used and (is_first_idle or not self._num_to_create):
                buffer, upload = self._used.pop(0)
            else:
                self._num_to_create = max(0, self._num_to_create - 1)
                buffer, upload = self._uploads.staging(num_bytes), None
        if upload is not None:
            upload.wait()
        return buffer if len(buffer) >= num_bytes else self._uploads.staging(num_bytes)


class ImmediateCopies:
    """Same interface for devices that copy synchronously, and for the CPU, where nothing is copied."""

    def __init__(self, device: torch.device, copy: bool = False) -> None:
        self._device, self._copy = device, copy

    def send(self, batch: AnyBatch) -> AnyTensors:
        """Return ``batch`` as tensors on the device."""
        return to_tensors(batch, self._device, copy=self._copy)

    def receive(self, sent: AnyTensors) -> AnyTensors:
        """Return ``sent`` unchanged."""
        return sent


class CudaUpload:
    """A copy on the CUDA stream of ``CudaUploads``."""

    def __init__(self, on_device: Tensor, event: torch.cuda.Event) -> None:
        # The bytes on the device, and the event of the end of their copy.
        self.on_device, self._event = on_device, event

    def is_done(self) -> bool:
        """Return whether the copy is done."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Block the thread until the copy is done."""
        self._event.synchronize()

    def make_stream_wait(self) -> None:
        """Make the thread's current CUDA stream wait for the copy, without blocking the thread."""
        learner = torch.cuda.current_stream(self.on_device.device)
        learner.wait_event(self._event)
        self.on_device.record_stream(learner)  # or the copy stream would reuse the memory at once


class CudaUploads:
    """Copies to a CUDA device on a separate CUDA stream."""

    def __init__(self, device: torch.device, pin_memory: bool) -> None:
        self._device, self._pin_memory = device, pin_memory
        # Copies run on it while the learner's stream computes.
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def staging(self, num_bytes: int) -> Tensor:
        """Return a new buffer. If it is not pinned, ``start`` blocks while CUDA copies it."""
        return torch.empty(num_bytes, dtype=torch.uint8, device="cpu", pin_memory=self._pin_memory)

    def start(self, staging: Tensor) -> CudaUpload:
        """Queue a copy of ``staging`` and return it."""
        with torch.cuda.stream(self._stream):
            on_device = torch.empty(len(staging), dtype=torch.uint8, device=self._device)
            on_device.copy_(staging, non_blocking=True)
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            event.record(self._stream)
        return CudaUpload(on_device, event)


Loaded = TypeVar("Loaded")


class Loader(BatchesAhead[Any, Loaded]):
    """Base class of ``BatchLoader`` and ``SequenceLoader``: an iterator over batches, and a context manager."""

    def __init__(
        self,
        draw: Callable[[], Pending[Any]],
        device: torch.device | str,
        ahead: int,
        threads: int,
        pin_memory: bool,
        copy: bool,
    ) -> None:
        pin_memory, copy = truth_value("pin_memory", pin_memory), truth_value("copy", copy)
        ahead = whole_number("ahead", ahead, 1, rule=AHEAD_RULE)
        copies = _copies_to(usable_device(device), pin_memory, ahead, copy)
        # Returns the tensors of a prepared batch; runs in the thread that asks for it.
        self._receive: Callable[[Any], Any] = copies.receive
        super().__init__(draw, partial(_send_checked, copies), ahead, threads, f"on {device}")

    def __next__(self) -> Loaded:
        """Return the next batch; wait for it if it is not ready."""
        loaded: Loaded = self._receive(super().__next__())
        return loaded


@suggests_keywords
class BatchLoader(Loader[TensorBatch]):
    """Endless iterator over a memory's batches as tensors; threads prepare the next batches.

    >>> import numpy as np
    >>> from framestow import FrameSpec, ReplayMemory
    >>> from framestow.torch import BatchLoader
    >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=3, seed=0)
    >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
    >>> memory.append([3], [0.5], [False], [True], np.ones((1, 2, 2), np.uint8))
    array([0])
    >>> with BatchLoader(memory, batch_size=32) as loader:
    ...     batch = next(loader)
    >>> batch.observation.shape, batch.reward[0]
    (torch.Size([32, 3, 2, 2]), tensor(0.5000))

    Arguments:
        memory: the ``ReplayMemory`` to sample from. You may add to it and sample it at the same time.
        batch_size: number of transitions per batch.
        device: where the tensors are created.
        ahead: number of batches that are drawn before you ask for them.
        threads: number of threads that unpack batches, one batch each. One is enough if a learning step takes longer
            than unpacking a batch.
        pin_memory: CUDA only: copy through pinned buffers, so that copies run beside the learner. There are
            ``ahead + 2`` buffers, each of the size of a batch.
        draw: called with ``batch_size`` in the caller's thread instead of drawing from the memory. It returns an object
            with ``unpack()``, ``redraw(error)`` and ``stop()`` (docs/tensors.md).
        copy: as of ``to_tensors``: whether you may write to the tensors. On the CPU the loader's threads copy.

    **When batches are drawn.** The first ``next`` draws batches 0 to ``ahead``. Each further call that returns batch k
    draws batch k + ``ahead``, in the caller's thread. So the same program gives the same batches, bit for bit, for any
    number of threads. A batch contains no steps and no priorities that were added after its draw.

    ``next`` returns a batch when it is on the device. On CUDA, the calling thread's current stream waits for the copy;
    other streams must wait for that stream.

    Raises (from ``next``):
        DamagedSegmentError: a batch could not be read. The next call returns the batch after it.
        NothingToSampleError: the memory has no sampleable transition.
        ForkedLoaderError: the process was forked after the loader was created.

    Only one thread at a time may iterate. ``close`` or the end of a ``with`` block stops the threads and ends the
    iteration.
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
        copy: bool = False,
    ) -> None:
        batch_size = check_batch_size(batch_size)
        super().__init__(partial(draw_function(memory, draw), batch_size), device, ahead, threads, pin_memory, copy)


@suggests_keywords
class SequenceLoader(Loader[TensorSequenceBatch]):
    """Endless iterator over batches of sequences as tensors; threads prepare the next batches.

    Each frame of a sequence is copied to the device once, unless ``borders="cross"``.

    Arguments:
        memory: Memory to draw from.
        batch_size: Number of sequences in a batch.
        length: Number of steps of a sequence.
        device: Device of the tensors.
        overlap: As in ``memory.sample_sequences``, and so are ``burn_in`` and ``borders``.
        burn_in: Number of first steps that only warm up a recurrent network.
        borders: What a sequence does at the end of an episode.
        ahead: As in ``BatchLoader``, and so are ``threads`` and ``pin_memory``.
        threads: Number of threads that unpack batches.
        pin_memory: Whether the buffers on the CPU are pinned.
        copy: As in ``BatchLoader``.
    """

    def __init__(
        self,
        memory: ReadCalls,
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
        copy: bool = False,
    ) -> None:
        shape = SequenceShape(length, overlap, burn_in, borders)
        super().__init__(sequence_draw_function(memory, batch_size, shape), device, ahead, threads, pin_memory, copy)


def _send_checked(copies: CopiesAhead | ImmediateCopies, batch: Any) -> Any:
    return copies.send(check_batch(batch))


def _copies_to(device: torch.device, pin_memory: bool, ahead: int, copy: bool) -> CopiesAhead | ImmediateCopies:
    if device.type != "cuda":
        return ImmediateCopies(device, copy)
    if device.index is None:  # the current device differs between threads
        device = torch.device("cuda", torch.cuda.current_device())
    return CopiesAhead(CudaUploads(device, pin_memory), num_buffers=ahead + 2, copy=copy)
