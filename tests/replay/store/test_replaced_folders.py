"""A writer whose folder was moved, removed or replaced gets an error; nothing at that path is written or removed."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from framestow.errors import IncompatibleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.open_store import keep_only
from framestow.replay.store.repair import repair_store
from oracles.replaced_folders import WAYS, ReplacingDisk, contents, move_away
from oracles.store_files import log_files_of
from oracles.watched_disk import as_the_disk


def memory_of(seed: int, **settings) -> ReplayMemory:
    return ReplayMemory(5_000, FrameSpec((6, 6)), 3, seed=seed, flush_every=None, **settings)


def record(memory: ReplayMemory, first: int, num_steps: int) -> None:
    """Record steps whose rewards count up from ``first``."""
    random = np.random.default_rng(first)
    memory.begin(random.integers(0, 256, (1, 6, 6), np.uint8))
    for step in range(num_steps):
        memory.append([1], [first + step], [False], [False], random.integers(0, 256, (1, 6, 6), np.uint8))


def rewards(folder: Path) -> list[float]:
    memory = ReplayMemory.load(folder)
    return memory.get(memory.sampleable_indices()).reward.tolist()


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The folder of another memory, with several generations."""
    folder = tmp_path / "other"
    with memory_of(2, directory=folder) as memory:
        for first in (20_000, 30_000, 40_000):
            record(memory, first, 300)
            memory.flush()
    return folder


def flushed(folder: Path) -> ReplayMemory:
    memory = memory_of(1, directory=folder)
    for first in (0, 1_000, 2_000):
        record(memory, first, 200)
        memory.flush()
    record(memory, 3_000, 200)
    return memory


def prune(memory: ReplayMemory) -> None:
    memory.prune(memory.directory, 5)


@pytest.mark.each_value
@pytest.mark.parametrize("call", [ReplayMemory.flush, ReplayMemory.close, prune])
@pytest.mark.parametrize("way", WAYS)
def test_the_writer_of_a_folder_that_is_not_its_own_any_more_changes_nothing(way, call, other, tmp_path):
    folder = tmp_path / "memory"
    memory = flushed(folder)
    WAYS[way](folder, other)
    found = contents(folder)

    with pytest.raises((IncompatibleError, FileNotFoundError), match=r"nothing is (written or )?removed"):
        call(memory)
    if call is not ReplayMemory.close:
        with pytest.raises(IncompatibleError):
            memory.close()

    assert found == contents(folder)
    assert not found or rewards(other) == rewards(folder)


def test_the_message_says_what_happened_and_what_to_do(other, tmp_path):
    folder = tmp_path / "memory"
    memory = flushed(folder)
    move_away(folder, other)
    message = (
        rf"^memory {folder}: its folder was moved or removed while this process had it locked, .*"
        "; put the locked folder back, or write to another one$"
    )
    with pytest.raises(IncompatibleError, match=message):
        memory.flush()

    shutil.copytree(other, folder)
    with pytest.raises(IncompatibleError, match="its folder was replaced by another one"):
        memory.flush()


def test_a_folder_that_was_put_back_is_written_on_and_nothing_is_missing(other, tmp_path):
    folder = tmp_path / "memory"
    memory = flushed(folder)
    move_away(folder, other)
    with pytest.raises(IncompatibleError):
        memory.flush()
    (tmp_path / "elsewhere").rename(folder)

    memory.close()

    assert [*range(200), *range(1_000, 1_200), *range(2_000, 2_200), *range(3_000, 3_200)] == rewards(folder)


def test_two_writers_of_one_path_keep_their_steps_apart(tmp_path):
    folder = tmp_path / "memory"
    first = flushed(folder)
    shutil.rmtree(folder)
    second = memory_of(2, directory=folder)
    for number in range(3):
        record(second, 10_000 * number, 300)
        second.flush()

    with pytest.raises(IncompatibleError):
        first.close()
    second.close()

    assert [10_000 * number + step for number in range(3) for step in range(300)] == rewards(folder)


def saved_twice(folder: Path) -> ReplayMemory:
    memory = memory_of(1)
    for first in (0, 1_000):
        record(memory, first, 1_200)
        memory.save(folder, keep_previous=True)
    return memory


def prepare_save(folder: Path) -> Callable[[], object]:
    memory = saved_twice(folder)
    record(memory, 2_000, 1_200)
    return partial(memory.save, folder)


def prepare_flush(folder: Path) -> Callable[[], object]:
    return flushed(folder).flush


def prepare_flush_for_a_budget(folder: Path) -> Callable[[], object]:
    memory = memory_of(1, directory=folder, max_bytes="3 MiB")
    record(memory, 0, 2_400)
    return memory.flush


def prepare_prune(folder: Path) -> Callable[[], object]:
    return partial(saved_twice(folder).prune, folder, 3)


def prepare_going_back(folder: Path) -> Callable[[], object]:
    saved_twice(folder)
    return partial(keep_only, folder, 2)


def prepare_repair(folder: Path) -> Callable[[], object]:
    saved_twice(folder)
    log = max(folder.glob("frames-*.log"))
    log.write_bytes(log.read_bytes()[:-50] + b"?" * 50)
    return partial(repair_store, folder)


CALLS = {
    "a save": prepare_save,
    "a flush": prepare_flush,
    "a flush for a budget": prepare_flush_for_a_budget,
    "a prune": prepare_prune,
    "going back": prepare_going_back,
    "a repair": prepare_repair,
}


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("way", ["removed", "removed, and another one put there"])
@pytest.mark.parametrize("name", CALLS)
def test_a_folder_replaced_after_any_operation_is_not_touched_any_more(name, way, every, other, tmp_path):
    at, has_replaced = 0, True
    while has_replaced:
        folder, found = tmp_path / str(at), {}
        with log_files_of(20_000):
            act = CALLS[name](folder)

        def replace(folder: Path = folder, found: dict[str, bytes] = found) -> None:
            WAYS[way](folder, other)
            found |= contents(folder)

        disk = ReplacingDisk(at, replace)
        with log_files_of(20_000), as_the_disk(disk):
            error = None
            try:
                act()
            except (IncompatibleError, FileNotFoundError) as raised:
                error = raised
        has_replaced = disk.has_replaced
        if has_replaced:
            assert found == contents(folder), (at, error)
        at += every if at > 2 else 1
    assert at >= 2 * every
    assert error is None


def test_a_failing_background_flush_is_logged_once_although_no_step_follows(other, tmp_path, caplog):
    folder = tmp_path / "memory"
    memory = ReplayMemory(5_000, FrameSpec((6, 6)), 3, directory=folder, flush_every=0.01)
    move_away(folder, other)
    with suppress(IncompatibleError):  # from the flush, between two of these steps
        record(memory, 0, 2)
    while not caplog.records:
        time.sleep(0.01)
    time.sleep(0.1)

    assert [logging.ERROR] == [line.levelno for line in caplog.records]
    assert f"memory {folder}: a flush in the background failed" in caplog.text
    with pytest.raises(IncompatibleError):
        memory.close()


def test_a_process_whose_folder_went_away_says_at_its_end_what_is_lost(tmp_path):
    script = """
import shutil, sys, numpy as np
from framestow import FrameSpec, ReplayMemory
memory = ReplayMemory(100, FrameSpec((6, 6)), 3, directory=sys.argv[1], flush_every=None)
memory.begin(np.zeros((1, 6, 6), np.uint8))
shutil.rmtree(sys.argv[1])
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "memory")], capture_output=True, text=True, check=False
    )

    assert f"memory {tmp_path / 'memory'}: it could not be closed, so its last steps are lost: " in run.stderr
    assert not (tmp_path / "memory").exists()
