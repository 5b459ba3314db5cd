"""Received batches are complete, even if the device copies them late."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
import pytest
import torch

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from framestow.torch.batch_loader import CopiesAhead, CudaUploads, SentBatch
from framestow.torch.tensor_batch import TensorBatch, to_tensors

UNWRITTEN = 0xAB
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class LateUpload:
    def __init__(self, device: LateDevice, staging: torch.Tensor) -> None:
        self._device, self._staging = device, staging
        self.on_device = torch.full((len(staging),), UNWRITTEN, dtype=torch.uint8)
        self.has_been_read = False

    def read(self) -> None:
        self.on_device.copy_(self._staging)
        self.has_been_read = True

    def is_done(self) -> bool:
        return self.has_been_read

    def wait(self) -> None:
        self._device.copy_until(self)
        self._device.num_waits += 1

    def make_stream_wait(self) -> None:
        self._device.copy_until(self)


class LateDevice:
    """A simulated CUDA device: it copies on the CPU, in order, and only when ``copy`` is called."""

    def __init__(self) -> None:
        self._queue: deque[LateUpload] = deque()
        self._lock = threading.Lock()
        self.num_buffers = self.num_waits = 0

    def staging(self, num_bytes: int) -> torch.Tensor:
        self.num_buffers += 1
        return torch.empty(num_bytes, dtype=torch.uint8)

    def start(self, staging: torch.Tensor) -> LateUpload:
        with self._lock:
            self._queue.append(LateUpload(self, staging))
            return self._queue[-1]

    def copy(self, num_copies: int) -> None:
        with self._lock:
            for _ in range(min(num_copies, len(self._queue))):
                self._queue.popleft().read()

    def copy_until(self, upload: LateUpload) -> None:
        while not upload.has_been_read:
            self.copy(1)


def batch_of(number: int, size: int = 6) -> Batch:
    random = np.random.default_rng(number)
    frames = random.integers(0, 256, (size, 5, 4, 3), dtype=np.uint8)
    joints = random.normal(size=(size, 2, 7)).astype(np.float32)
    return Batch(
        observation={"camera": frames[:, :-1], "joints": (joints[:, :1],)},
        action=random.integers(0, 4, size),
        reward=random.normal(size=size).astype(np.float32),
        discount=np.full(size, 0.99, np.float32),
        next_observation={"camera": frames[:, 1:], "joints": (joints[:, 1:],)},
        index=np.arange(size) + 2**40,
        weight=random.random(size).astype(np.float32),
        terminated=random.random(size) < 0.5,
        truncated=random.random(size) < 0.5,
        extras={"log_prob": random.normal(size=size)},
    )


def flat(tree: object) -> list[np.ndarray]:
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in flat(tree[key])]
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in flat(part)]
    return [np.asarray(tree.cpu() if isinstance(tree, torch.Tensor) else tree)]


def assert_same(batch: Batch, tensors: TensorBatch) -> None:
    for name in vars(batch).keys() - {"burn_in"}:
        for expected, actual in zip(flat(getattr(batch, name)), flat(getattr(tensors, name)), strict=True):
            np.testing.assert_array_equal(expected, actual, name)
            assert expected.dtype == actual.dtype


def test_each_frame_of_a_sequence_is_copied_once_and_its_stacks_are_complete():
    memory = ReplayMemory(100, FrameSpec((12, 16)), 4, stack=4, seed=0)
    memory.begin(np.zeros((1, 12, 16), np.uint8))
    for step in range(100):
        frame = np.random.default_rng(step).integers(0, 256, (1, 12, 16), dtype=np.uint8)
        memory.append([0], [1.0], [step == 50], [False], frame)
        if step == 50:
            memory.begin(frame)
    batch = memory.sample_sequences(8, 30, burn_in=2)
    copies = CopiesAhead(LateDevice(), num_buffers=2)

    sent = copies.send(batch)
    tensors = copies.receive(sent)

    assert_same(batch, tensors)
    assert 2 == tensors.burn_in
    num_frames = len(sent.upload.on_device) / (12 * 16)
    assert 8 * (30 + 4) <= num_frames < 8 * (30 + 4) + 30  # plus the other fields; as stacks it would be 1,920


def test_the_index_stays_on_the_cpu():
    batch = batch_of(0)

    sent = CopiesAhead(LateDevice(), num_buffers=4).send(batch)

    assert np.shares_memory(batch.index, sent.batch.index.numpy())


@pytest.mark.parametrize("seed", range(3))
def test_a_buffer_is_not_reused_before_the_device_has_read_it(seed):
    random = np.random.default_rng(seed)
    device = LateDevice()
    copies = CopiesAhead(device, num_buffers=4)
    pending: deque[tuple[int, SentBatch]] = deque()
    sizes = random.integers(1, 9, 40)

    for number in range(40):
        pending.append((number, copies.send(batch_of(number, sizes[number]))))
        device.copy(random.integers(3))
        while len(pending) > random.integers(6):
            sent_number, sent = pending.popleft()
            assert_same(batch_of(sent_number, sizes[sent_number]), copies.receive(sent))


def test_at_most_num_buffers_are_created_and_none_while_one_is_idle():
    patient, prompt = LateDevice(), LateDevice()
    for device, num_copies in ((patient, 0), (prompt, 1)):
        copies = CopiesAhead(device, num_buffers=3)
        for number in range(20):
            copies.send(batch_of(number))
            device.copy(num_copies)

    assert (3, 17) == (patient.num_buffers, patient.num_waits)
    assert 1 == prompt.num_buffers


def test_threads_share_the_buffers():
    device = LateDevice()
    copies = CopiesAhead(device, num_buffers=3)
    wrong: list[AssertionError] = []

    def send_and_receive(first: int) -> None:
        try:
            for number in range(first, first + 15):
                assert_same(batch_of(number), copies.receive(copies.send(batch_of(number))))
        except AssertionError as failure:
            wrong.append(failure)

    threads = [threading.Thread(target=send_and_receive, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == wrong


def test_to_tensors_keeps_dicts_tuples_and_columns():
    batch = batch_of(3)

    tensors = to_tensors(batch, torch.device("cpu"))

    assert_same(batch, tensors)
    assert np.shares_memory(batch.observation["joints"][0], tensors.observation["joints"][0].numpy())


@pytest.mark.gpu
@CUDA
def test_batches_arrive_complete_on_a_gpu_for_any_number_ahead():
    copies = CopiesAhead(CudaUploads(torch.device("cuda", 0), pin_memory=True), num_buffers=4)
    busy = torch.randn(4000, 4000, device="cuda")
    sent = [(number, copies.send(batch_of(number, 500))) for number in range(20)]
    for _ in range(20):
        busy = (busy @ busy).clamp(-1, 1)

    for number, batch in sent:
        tensors = copies.receive(batch)
        assert tensors.observation["camera"].is_cuda
        assert_same(batch_of(number, 500), tensors)


@pytest.mark.gpu
@CUDA
def test_a_dropped_batch_stays_valid_for_kernels_queued_before():
    copies = CopiesAhead(CudaUploads(torch.device("cuda", 0), pin_memory=True), num_buffers=2)
    busy = torch.randn(4000, 4000, device="cuda")
    sums = []
    for number in range(30):
        tensors = copies.receive(copies.send(batch_of(number, 500)))
        busy = (busy @ busy).clamp(-1, 1)  # the sum below waits for this, the next copies do not
        sums.append(tensors.observation["camera"].long().sum() + (busy.sum() * 0).long())
        del tensors

    assert [int(batch_of(number, 500).observation["camera"].sum()) for number in range(30)] == [
        int(total) for total in sums
    ]
