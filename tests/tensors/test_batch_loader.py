"""A loader returns the batches of ``sample`` as tensors."""

from __future__ import annotations

import re
import signal
import threading
import time

import numpy as np
import pytest
import torch

from framestow.errors import InvalidSettingsError
from framestow.torch.batch_loader import BatchLoader, SequenceLoader
from framestow.torch.tensor_batch import TensorBatch, to_tensors
from oracles.patience import PATIENCE_S
from tensors.filled_memory import append, filled

CPU = torch.device("cpu")
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
    ),
]


def assert_same(expected: TensorBatch, actual: TensorBatch) -> None:
    for name in ("observation", "action", "reward", "discount", "next_observation", "index", "weight", "terminated"):
        assert torch.equal(getattr(expected, name), getattr(actual, name).cpu()), name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_loader_gives_what_sample_gives_in_the_same_order(device, threads):
    sampled = filled()

    with BatchLoader(filled(), 32, device, threads=threads) as loader:
        for _ in range(20):
            batch = next(loader)
            assert device == batch.observation.device.type
            assert_same(to_tensors(sampled.sample(32), CPU), batch)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers")
def test_a_handler_of_a_signal_may_close_the_loader_while_the_learner_waits():
    memory, is_waiting = filled(), threading.Event()

    class SlowDraw:
        def __init__(self, pending):
            self.redraw, self.stop, self._unpack = pending.redraw, pending.stop, pending.unpack

        def unpack(self):
            assert is_waiting.wait(PATIENCE_S)
            return self._unpack()

    loader = BatchLoader(memory, 32, draw=lambda batch_size: SlowDraw(memory.draw_ahead(batch_size)))

    def close(*_):
        is_waiting.set()
        loader.close()

    before = signal.signal(signal.SIGALRM, close)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        assert list(loader) == []
    finally:
        signal.signal(signal.SIGALRM, before)


def test_steps_added_after_the_draw_are_not_in_the_batch():
    memory = filled(30)
    with BatchLoader(memory, 32, ahead=2) as loader:
        newest = memory.sampleable_indices()[-1]
        next(loader)
        for step in range(100, 140):
            append(memory, step)

        are_new = [bool((next(loader).index > newest).any()) for _ in range(4)]

    assert [False, False, True, True] == are_new


def test_the_next_batches_are_unpacked_while_the_learner_is_busy():
    memory = filled()
    threads = set()

    class Watched:
        def __init__(self, batch_size: int) -> None:
            self._pending = memory.draw_ahead(batch_size)
            threads.add(("draw", threading.current_thread()))
            self.redraw, self.stop = self._pending.redraw, self._pending.stop

        def unpack(self):
            threads.add(("unpack", threading.current_thread()))
            unpacked.release()
            return self._pending.unpack()

    unpacked = threading.Semaphore(0)
    with BatchLoader(memory, 8, ahead=3, draw=Watched) as loader:
        next(loader)
        for _ in range(4):  # without another call
            assert unpacked.acquire(timeout=PATIENCE_S)

    here = threading.current_thread()
    assert {("draw", here)} == {(what, thread) for what, thread in threads if thread is here}
    assert {"draw", "unpack"} == {what for what, _ in threads}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("borders", ["mask", "inside", "cross"])
def test_a_sequence_loader_gives_what_sample_sequences_gives_in_the_same_order(borders, device):
    sampled = filled()
    asked = {"overlap": 2, "burn_in": 3, "borders": borders}

    with SequenceLoader(filled(), 8, 10, device, **asked, threads=2) as loader:
        for _ in range(10):
            batch, expected = next(loader), sampled.sample_sequences(8, 10, **asked)
            for name in vars(expected):
                np.testing.assert_array_equal(getattr(expected, name), on_cpu(getattr(batch, name)), name)
            np.testing.assert_array_equal(expected.learns, on_cpu(batch.learns))
            assert device == batch.observation.device.type


def on_cpu(value: object) -> object:
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else value


def test_a_loader_ends_with_its_block():
    with BatchLoader(filled(), 8) as loader:
        next(loader)

    assert [] == list(loader)
    deadline = time.monotonic() + PATIENCE_S
    while any(thread.name.startswith("framestow-loader") for thread in threading.enumerate()):
        assert time.monotonic() < deadline


class UnpacksTo:
    """A draw that unpacks to ``given``."""

    def __init__(self, given) -> None:
        self.given, self.is_stopped = given, False

    def unpack(self):
        return self.given

    def redraw(self, error):
        raise error

    def stop(self):
        self.is_stopped = True


@pytest.mark.parametrize("given", [None, 7, "batch", {}])
def test_a_draw_that_returns_no_pending_batch_is_refused_and_the_loader_can_be_closed(given):
    loader = BatchLoader(filled(), 8, draw=lambda _: given)

    for _ in range(2):
        with pytest.raises(InvalidSettingsError, match=re.escape(f"draw returned {given!r}: it must return a draw ")):
            next(loader)
    loader.close()

    assert [] == list(loader)


def test_a_draw_that_unpacks_to_no_batch_is_refused_and_the_loader_can_be_closed():
    drawn = []

    def draw(_):
        drawn.append(UnpacksTo(None))
        return drawn[-1]

    loader = BatchLoader(filled(), 8, draw=draw)

    with pytest.raises(InvalidSettingsError, match="a batch is None: it must be a Batch or a SequenceBatch"):
        next(loader)
    loader.close()

    assert [False, True, True] == [one.is_stopped for one in drawn]


def test_a_draw_that_is_no_function_is_refused():
    with pytest.raises(InvalidSettingsError, match="draw is 5: it must be a function; give "):
        BatchLoader(filled(), 8, draw=5)
