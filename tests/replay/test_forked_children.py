"""A forked child never waits for a lock of its parent's threads."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from framestow.errors import ClosedMemoryError, ForkedLoaderError, ForkedMemoryError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.ensemble import ReplayEnsemble
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batches_ahead import BatchesAhead
from oracles.forked_children import fork_and_call, running
from oracles.numbered_steps import SHAPE, numbered_memory, play_episode

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def playing(memory: ReplayMemory, pause_s: float = 0.001):
    """Play an episode of ten steps, which the next flush writes."""
    episodes = itertools.count()

    def play() -> None:
        play_episode(memory, next(episodes) % 256, length=10, truncated=True)
        time.sleep(pause_s)

    return play


@contextmanager
def waiting_for_the_disk(write: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A thread that writes, and waits for ``fsync`` until the block ends."""
    waits, goes_on, sync = threading.Event(), threading.Event(), os.fsync

    def slow_sync(descriptor: int) -> None:
        waits.set()
        assert goes_on.wait(60)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_sync)
    thread = threading.Thread(target=write)
    thread.start()
    assert waits.wait(60)
    try:
        yield
    finally:
        goes_on.set()
        thread.join()


@pytest.mark.parametrize("num_forks", [30, pytest.param(5_000, marks=pytest.mark.exhaustive)])
@pytest.mark.slow
def test_children_forked_beside_flushes_and_loaders_sample(num_forks, tmp_path):
    directory = {"directory": tmp_path / "memory", "flush_every": 0.001}
    with numbered_memory(2_000, **directory) as memory, numbered_memory(100) as other:
        play_episode(memory, 0, length=50, truncated=True)
        play_episode(other, 0, length=50, truncated=True)
        ensemble = ReplayEnsemble([memory, other], [0.5, 0.5])
        with (
            BatchesAhead(partial(memory.draw_ahead, 8), lambda batch: batch.reward.sum(), threads=2) as loader,
            BatchesAhead(partial(ensemble.draw_ahead, 8), lambda batch: batch.reward.sum()) as loader_of_both,
            running(playing(memory)),
        ):

            def use() -> None:
                assert 4 == len(memory.sample(4)) == len(ensemble.sample(4))
                with pytest.raises(ClosedMemoryError, match="a forked child cannot write it"):
                    memory.flush()

            def use_everything() -> None:
                use()
                assert 4 == len(memory.sample_sequences(4, 3))
                memory.observations()
                with pytest.raises(ForkedLoaderError, match="does not have its threads"):
                    next(loader)
                memory.close()

            for fork in range(num_forks):
                next(loader)
                next(loader_of_both)
                assert "" == fork_and_call(use if fork % 20 else use_everything), f"of fork {fork}"


@pytest.mark.parametrize("num_forks", [15, pytest.param(500, marks=pytest.mark.exhaustive)])
@pytest.mark.slow
def test_children_forked_beside_threads_that_unpack_large_batches_write_and_sample(num_forks):
    # Readers of a segment that still grows hold its lock, so most of what they do is done with it.
    memory = ReplayMemory(300, FrameSpec((128, 128)), 4, stack=4, threads=2, frames_per_segment=256, seed=0)
    frames = np.random.default_rng(0).integers(0, 4, (100, 1, 128, 128)).astype(np.uint8)
    memory.begin(frames[0])
    for frame in frames:
        memory.append([0], [0.0], [False], [False], frame)
    append = itertools.cycle(frames)

    def write() -> None:
        memory.append([0], [0.0], [False], [False], next(append))  # into a full memory, which evicts
        time.sleep(0.0005)

    with running(write, partial(memory.sample, 32), partial(memory.sample, 32)):
        for fork in range(num_forks):
            time.sleep(0.001)
            assert "" == fork_and_call(lambda: (write(), memory.sample(32))), f"of fork {fork}"


def test_a_fork_waits_for_no_disk_and_its_child_neither(tmp_path, monkeypatch):
    memory = numbered_memory(100, directory=tmp_path / "memory", flush_every=None)
    play_episode(memory, 0, length=5, truncated=True)

    def use() -> None:
        monkeypatch.undo()
        assert 4 == len(memory.sample(4))
        for write in (memory.flush, partial(memory.prune, tmp_path / "memory", 0), memory.clear):
            with pytest.raises(ClosedMemoryError, match=r"belongs to process \d+: a forked child cannot write it"):
                write()
        with pytest.raises(ClosedMemoryError, match="a forked child cannot write it"):
            play_episode(memory, 1, length=1, truncated=True)
        memory.save(tmp_path / "of the child")
        assert 5 == len(ReplayMemory.load(tmp_path / "of the child"))
        memory.close()

    with waiting_for_the_disk(memory.flush, monkeypatch):
        wrong = fork_and_call(use)
    assert "" == wrong
    memory.close()
    assert 5 == len(ReplayMemory.load(tmp_path / "memory"))


def test_a_child_does_not_save_to_the_folder_that_its_parent_saves_to_now(tmp_path, monkeypatch):
    memory = numbered_memory(100)
    play_episode(memory, 0, length=5, truncated=True)

    def save() -> None:
        monkeypatch.undo()
        with pytest.raises(ValueError, match="one process may write at a time"):
            memory.save(tmp_path)

    with waiting_for_the_disk(partial(memory.save, tmp_path), monkeypatch):
        wrong = fork_and_call(save)
    assert "" == wrong
    assert 5 == len(ReplayMemory.load(tmp_path))


def noisy_memory(capacity: int) -> tuple[ReplayMemory, np.ndarray]:
    """A full memory whose segments do not shrink: a few of them are as much as may be evicted beside a reader."""
    memory = ReplayMemory(capacity, FrameSpec((128, 128)), 4, stack=2, frames_per_segment=64, seed=0)
    noise = np.random.default_rng(0).integers(0, 256, (64, 1, 128, 128)).astype(np.uint8)
    memory.begin(noise[0])
    for step in range(capacity):
        memory.append([0], [0.0], [False], [False], noise[step % 64])
    return memory, noise


def append_a_lot(memory: ReplayMemory, noise: np.ndarray) -> None:
    for step in range(1_500):  # 24 MB, and a writer waits for readers when 8 MiB are evicted
        memory.append([0], [0.0], [False], [False], noise[step % 64])


def test_a_child_that_writes_does_not_wait_for_draws_of_its_parent():
    memory, noise = noisy_memory(200)
    kept, unread = memory.draw_ahead(4), memory.draw_ahead(4)

    def write() -> None:
        batch = kept.unpack()  # a draw from before the fork can be unpacked in the child
        assert 4 == len(batch)
        append_a_lot(memory, noise)
        assert 4 == len(memory.sample(4))
        with pytest.raises(ValueError, match="this snapshot has stopped"):
            unread.unpack()

    assert "" == fork_and_call(write)
    assert 4 == len(kept.unpack()) == len(unread.unpack())


def test_a_fork_in_the_middle_of_a_long_call_is_an_error_in_the_child(tmp_path):
    memory, noise = noisy_memory(200)
    unread = memory.draw_ahead(4)
    writer = threading.Thread(target=append_a_lot, args=(memory, noise))
    writer.start()  # waits for the draw, with the memory's lock
    while memory.inner.lock.acquire(timeout=0.2):
        memory.inner.lock.release()
    ensemble = ReplayEnsemble([memory], [1.0])
    reader = threading.Thread(target=ensemble.sample, args=(4,))
    reader.start()  # waits for the writer, with the ensemble's lock

    def use() -> None:
        of_a_member = partial(ensemble.sample, 4)
        for call in (partial(memory.sample, 4), memory.observations, partial(memory.save, tmp_path), of_a_member):
            with pytest.raises(ForkedMemoryError, match=r"in a call of the memory for over 1 s: .*; fork when"):
                call()

    wrong = fork_and_call(use)

    unread.stop()
    writer.join()
    reader.join()
    assert "" == wrong
    assert 4 == len(memory.sample(4))


def test_children_of_children_sample(tmp_path):
    with numbered_memory(100, directory=tmp_path, flush_every=0.001) as memory:
        play_episode(memory, 0, length=20, truncated=True)

        def fork_again() -> None:
            assert "" == fork_and_call(lambda: memory.sample(4))
            memory.sample(4)

        with running(playing(memory)):
            for _ in range(5):
                assert "" == fork_and_call(fork_again)


def test_frames_of_a_child_are_those_of_its_parent():
    memory = numbered_memory(100)
    play_episode(memory, 3, length=20, truncated=True)
    before = memory.get(memory.sampleable_indices())

    def compare() -> None:
        again = memory.get(memory.sampleable_indices())
        assert np.array_equal(before.observation, again.observation)
        assert (20, 2, *SHAPE) == again.observation.shape

    assert "" == fork_and_call(compare)
