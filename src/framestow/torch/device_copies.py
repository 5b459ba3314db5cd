"""Copies of batches to a device that go on while the learner runs."""

from __future__ import annotations

import threading
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from framestow.torch.tensor_batch import AnyBatch, AnyTensors, converted, parcel_of, to_tensors


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
