"""Batches that threads prepare are those of ``sample``, and block neither writer nor caller."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

from framestow.errors import DamagedSegmentError, ForkedLoaderError, InvalidSettingsError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from framestow.replay.reading.batches_ahead import BatchesAhead
from framestow.replay.reading.sampling import PendingBatch
from oracles.ctrl_c import ctrl_c_at_line
from oracles.damage import damage_a_segment
from oracles.patience import PATIENCE_S
from oracles.recorded_play import recorded

BATCH_SIZE = 16
STORAGES = pytest.mark.parametrize("storage", ["packed", "raw"])
FIELDS = ("observation", "action", "reward", "discount", "next_observation", "index", "weight")
READING = ("framestow/replay/reading/batches_ahead", "framestow/replay/reading/sampling")


def loader_of(memory: ReplayMemory, ahead: int = 2, threads: int = 1, batch_size: int = BATCH_SIZE) -> BatchesAhead:
    return BatchesAhead(lambda: memory.draw_ahead(batch_size), lambda batch: batch, ahead, threads)


def copied(batch: Batch) -> dict[str, np.ndarray]:
    return {name: getattr(batch, name).copy() for name in FIELDS}


def assert_equal(expected: dict[str, np.ndarray], actual: dict[str, np.ndarray]) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(expected[name], actual[name], name)


def filled_with_noise(frame: int, capacity: int, storage: str = "packed", **settings: object) -> ReplayMemory:
    """A memory full of square frames that do not shrink."""
    memory = ReplayMemory(
        capacity, FrameSpec((frame, frame)), 4, stack=2, storage=storage, seed=0, frames_per_segment=20, **settings
    )
    memory.begin(noise(frame, 1))
    append_noise(memory, frame, capacity)
    return memory


def noise(frame: int, number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (1, frame, frame), dtype=np.uint8)


def append_noise(memory: ReplayMemory, frame: int, num_steps: int) -> None:
    frames = [noise(frame, number) for number in range(8)]
    for step in range(num_steps):
        memory.append([step % 4], [float(step)], [False], [False], frames[step % 8])


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("framestow-loader")]


def assert_ends(work: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """``work`` runs on a thread, so that a test of what must not hang fails instead."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout_s)
    assert not thread.is_alive()


def drawn_when_it_says(
    memory: ReplayMemory, ahead: int, step: Callable[[], object], num_batches: int
) -> Iterator[Batch]:
    """What ``BatchesAhead`` tells that it does, on one thread: batch k is drawn when batch k - ahead is asked for."""
    waiting: deque[Batch] = deque()
    for _ in range(num_batches):
        while len(waiting) <= ahead:
            waiting.append(memory.sample(BATCH_SIZE))
        yield waiting.popleft()
        step()


@STORAGES
@pytest.mark.parametrize(("ahead", "threads"), [(1, 1), (2, 3), (5, 2)])
def test_batches_are_drawn_at_the_documented_requests_for_any_timing_of_threads(ahead, threads, storage):
    loaded, sampled = (filled_with_noise(12, 60, storage) for _ in range(2))
    expected = [copied(batch) for batch in drawn_when_it_says(sampled, ahead, lambda: append_noise(sampled, 12, 3), 40)]

    with loader_of(loaded, ahead, threads) as loader:
        for batch in expected:
            assert_equal(batch, copied(next(loader)))
            append_noise(loaded, 12, 3)


def test_a_writer_that_evicts_much_between_two_batches_does_not_wait():
    memory = filled_with_noise(256, 60)  # 64 KiB a frame: 8 MiB are 128 steps
    batches = []

    def learn() -> None:
        with loader_of(memory, ahead=4) as loader:
            for _ in range(3):
                batches.append(next(loader))
                append_noise(memory, 256, 300)

    assert_ends(learn)

    assert 3 == len(batches)


@pytest.mark.parametrize(
    "drawn_from",
    [
        lambda memory: partial(memory.draw_ahead, 200),
        lambda memory: partial(memory.draw_sequences_ahead, 200, 6, burn_in=1),
    ],
    ids=["batches", "sequences"],
)
def test_a_batch_with_a_skipped_segment_is_redrawn_in_its_place_for_any_timing_of_threads(drawn_from, tmp_path):
    recorded(1700, capacity=10_000, directory=tmp_path / "memory", flush_every=None)[0].close()
    damage_a_segment(tmp_path / "memory")
    runs = []

    for threads in (1, 1, 3):
        memory = ReplayMemory.open(tmp_path / "memory", on_damage="skip", seed=0)
        with BatchesAhead(drawn_from(memory), lambda batch: batch, threads=threads) as loader:
            runs.append([copied(next(loader)) for _ in range(8)])
        assert 1 == memory.report().skipped_segments
        indices = np.concatenate([batch["index"] for batch in runs[-1]])
        assert np.isin(indices[indices >= 0], memory.sampleable_indices()).all()

    for first, *others in zip(*runs, strict=True):
        for other in others:
            assert_equal(first, other)


def test_a_writer_beside_damaged_batches_does_not_wait(tmp_path):
    recorded(1700, capacity=10_000, directory=tmp_path / "memory", flush_every=None)[0].close()
    damage_a_segment(tmp_path / "memory")
    memory = ReplayMemory.open(tmp_path / "memory", on_damage="skip", seed=0)
    sizes = []

    def learn() -> None:
        with loader_of(memory, ahead=3, batch_size=3000) as loader:  # each draws the damaged segment
            sizes.append(len(next(loader)))
            with memory.inner.lock:  # as a writer does while it waits for snapshots
                wait_until_all_are_prepared(loader)
            sizes.append(len(next(loader)))

    assert_ends(learn)

    assert [3000, 3000] == sizes


def wait_until(holds: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert holds()


def wait_until_all_are_prepared(loader: BatchesAhead) -> None:
    wait_until(lambda: all(batch.future.done() for batch in loader._in_progress))


def test_damage_is_raised_at_its_batch_and_the_next_call_returns_the_one_after_it(tmp_path):
    recorded(1700, capacity=10_000, directory=tmp_path / "memory", flush_every=None)[0].close()
    damage_a_segment(tmp_path / "memory")
    loaded, sampled = ReplayMemory.open(tmp_path / "memory", seed=0), ReplayMemory.open(tmp_path / "memory", seed=0)
    outcomes = []

    with loader_of(loaded) as loader:
        for _ in range(40):
            expected, actual = told_or_copied(lambda: sampled.sample(BATCH_SIZE)), told_or_copied(loader.__next__)
            outcomes.append(type(expected))
            if isinstance(expected, str):
                assert expected == actual
            else:
                assert_equal(expected, actual)

    assert {str, dict} == set(outcomes)


def told_or_copied(draw: Callable[[], Batch]) -> str | dict[str, np.ndarray]:
    try:
        return copied(draw())
    except DamagedSegmentError as error:
        return str(error)


def test_a_failed_preparation_raises_and_the_next_batch_follows():
    memory = filled_with_noise(12, 30)
    num_calls = 0

    def fail_at_the_second(batch: Batch) -> Batch:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 2:
            raise IndexError("no room on the device")
        return batch

    with BatchesAhead(lambda: memory.draw_ahead(BATCH_SIZE), fail_at_the_second) as loader:
        next(loader)
        with pytest.raises(IndexError, match="no room on the device"):
            next(loader)
        assert BATCH_SIZE == len(next(loader))


def test_a_loader_of_an_empty_memory_raises_and_works_after_the_first_steps():
    memory = ReplayMemory(10, FrameSpec((4, 4)), 4, stack=4)
    with loader_of(memory) as loader:
        with pytest.raises(NothingToSampleError):
            next(loader)
        memory.begin(noise(4, 1))
        append_noise(memory, 4, 3)
        assert BATCH_SIZE == len(next(loader))


def test_ctrl_c_while_the_caller_waits_loses_no_batch():
    loaded, sampled = (filled_with_noise(12, 30) for _ in range(2))
    may_go_on = threading.Event()

    def prepare_when_allowed(batch: Batch) -> Batch:
        may_go_on.wait()
        return batch

    with BatchesAhead(lambda: loaded.draw_ahead(BATCH_SIZE), prepare_when_allowed) as loader:
        press = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        press.start()
        with pytest.raises(KeyboardInterrupt):
            next(loader)
        may_go_on.set()
        for _ in range(4):
            assert_equal(copied(sampled.sample(BATCH_SIZE)), copied(next(loader)))


@pytest.fixture
def _few_objects():
    """Let ``gc.get_objects`` return only objects that are made from now on."""
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("_few_objects")
def test_ctrl_c_at_any_line_loses_no_reading_and_the_loader_continues(tmp_path):
    recorded(400, capacity=10_000, directory=tmp_path / "memory", flush_every=None)[0].close()
    damage_a_segment(tmp_path / "memory")
    number, is_interrupted = 0, True
    while is_interrupted:
        number += 1
        memory = ReplayMemory.open(tmp_path / "memory", on_damage="skip", seed=0)
        with loader_of(memory, ahead=1, batch_size=200) as loader:
            is_interrupted, interrupts = False, []
            try:
                with ctrl_c_at_line(number, READING):
                    next(loader)
            except KeyboardInterrupt as interrupt:
                is_interrupted = True
                interrupts.append(interrupt)  # as a prompt keeps the last traceback, and what its lines look at
            wait_until_all_are_prepared(loader)
            assert [] == snapshots_out(), number
            assert 200 == len(next(loader)), number
            interrupts.clear()
    assert number > 30


def snapshots_out() -> list[PendingBatch]:
    return [kept for kept in gc.get_objects() if isinstance(kept, PendingBatch) and getattr(kept, "snapshot", None)]


@pytest.mark.usefixtures("_few_objects")
def test_a_batch_that_is_drawn_ahead_is_a_snapshot_until_it_is_unpacked_or_stopped():
    memory = filled_with_noise(12, 30)
    first, second = memory.draw_ahead(4), memory.draw_ahead(4)
    assert 2 == len(snapshots_out())

    first.unpack()
    second.stop()

    assert [] == snapshots_out()
    with pytest.raises(ValueError, match="the draw was unpacked or stopped before"):
        second.unpack()


def test_a_closed_loader_has_no_more_batches_and_closes_again():
    memory = filled_with_noise(12, 30)
    loader = loader_of(memory, threads=2)
    next(loader)

    loader.close()
    loader.close()

    assert [] == list(loader)
    assert [] == loader_threads()


def test_an_unreferenced_loader_ends_its_threads():
    memory = filled_with_noise(12, 30)
    loader = loader_of(memory, threads=2)
    next(loader)
    assert loader_threads()

    del loader
    gc.collect()

    wait_until(lambda: not loader_threads())


def test_a_forked_child_must_create_a_loader():
    memory = filled_with_noise(12, 30)
    with loader_of(memory) as loader, warnings.catch_warnings():
        next(loader)
        wait_until_all_are_prepared(loader)
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking beside threads
        child = os.fork()
        if not child:
            is_told = False
            try:
                next(loader)
            except ForkedLoaderError:
                loader.close()
                is_told = True
            os._exit(0 if is_told else 1)

        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


LEFT_OPEN = """
import signal, sys
import numpy as np
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.reading.batches_ahead import BatchesAhead
from framestow.replay.reading.sampling import PendingBatch
from framestow.replay.memory import ReplayMemory

memory = ReplayMemory(100, FrameSpec((84, 84)), 4, stack=4)
memory.begin(np.zeros((1, 84, 84), np.uint8))
for step in range(100):
    memory.append([0], [0.0], [False], [False], np.full((1, 84, 84), step, np.uint8))
loader = BatchesAhead(lambda: memory.draw_ahead(32), lambda batch: batch, threads=2)
for number, batch in enumerate(loader):
    if number == 3 and "interrupt" in sys.argv:
        signal.raise_signal(signal.SIGINT)
    if number == 5:
        break
"""


@pytest.mark.parametrize(("argument", "code"), [("end", 0), ("interrupt", 1)])
def test_a_loader_that_is_left_open_lets_the_process_end(argument, code):
    ended = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, argument], timeout=PATIENCE_S, capture_output=True, text=True, check=False
    )

    assert code == abs(ended.returncode) or (argument == "interrupt" and ended.returncode in (-2, 130))
    assert ("KeyboardInterrupt" in ended.stderr) == (argument == "interrupt")
    assert "framestow" not in ended.stderr.replace("framestow/replay", "")


@pytest.mark.parametrize(("setting", "told"), [({"ahead": 0}, "ahead is 0"), ({"threads": 0}, "threads is 0")])
def test_settings_that_cannot_work_are_refused(setting, told):
    with pytest.raises(InvalidSettingsError, match=told):
        loader_of(ReplayMemory(10, FrameSpec((4, 4)), 4, stack=4), **setting)
