"""A memory that lives in a folder: flushed, closed, killed, opened again."""

from __future__ import annotations

import copy
import gc
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from framestow.errors import (
    ClosedMemoryError,
    DamagedSegmentError,
    IncompatibleError,
    InvalidSettingsError,
)
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.comparison import assert_batch_is_what_the_oracle_holds, assert_memory_is_what_the_oracle_holds
from oracles.damage import damage_a_segment
from oracles.list_memory import ListMemory
from oracles.recorded_play import SHAPE, go_on, recorded

BY_HAND = {"flush_every": None}


def closed(oracle: ListMemory) -> ListMemory:
    """What is known when a memory begins again without its environments."""
    oracle = copy.deepcopy(oracle)
    oracle.is_open = [False] * len(oracle.is_open)
    return oracle


@pytest.mark.parametrize("storage", ["packed", "raw"])
@pytest.mark.parametrize("num_steps", [0, 3, 900])
def test_a_folder_that_was_closed_is_gone_on_with_and_its_open_episodes_end(num_steps, storage, tmp_path):
    with recorded(num_steps, capacity=1500, storage=storage, directory=tmp_path / "memory")[0]:
        pass
    _, oracle = recorded(num_steps, capacity=1500)

    memory, _ = recorded(0, capacity=1500, storage=storage, directory=tmp_path / "memory", seed=None)

    oracle = closed(oracle)
    assert_memory_is_what_the_oracle_holds(memory, oracle)
    go_on(memory, oracle, 400, seed=3)
    assert_memory_is_what_the_oracle_holds(memory, oracle)
    memory.close()


def test_flushed_segments_lie_in_files_and_leave_memory(tmp_path):
    memory, oracle = recorded(1700, capacity=10_000, directory=tmp_path / "memory", **BY_HAND)
    before = memory.report()

    memory.flush()

    after = memory.report()
    assert (0, after.disk_bytes > 100_000) == (before.disk_bytes, True)
    assert after.parts["frames"] < before.parts["frames"] - 900_000  # but for a block that waits for the next ones
    assert_memory_is_what_the_oracle_holds(memory, oracle)
    memory.close()


def test_what_was_flushed_is_there_after_a_kill_and_the_next_one_is_told_what_is_lost(tmp_path):
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from oracles.recorded_play import go_on, recorded
memory, oracle = recorded(800, capacity=3000, directory=sys.argv[1], flush_every=None)
memory.flush()
go_on(memory, oracle, 500, seed=2)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path / "memory")], check=False)
    assert -signal.SIGKILL == killed.returncode
    _, oracle = recorded(800, capacity=3000)

    with pytest.warns(RuntimeWarning, match="was not closed: it goes on from its last flush, with 1,600 transitions"):
        memory, _ = recorded(0, capacity=3000, directory=tmp_path / "memory", **BY_HAND)

    assert_memory_is_what_the_oracle_holds(memory, closed(oracle))
    memory.close()


def test_bytes_behind_the_last_flush_are_cut_off_and_told(tmp_path):
    memory, oracle = recorded(800, capacity=3000, directory=tmp_path / "memory", **BY_HAND)
    memory.close()
    log = tmp_path / "memory" / "frames.000001.log"
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(b"x" * 1234)

    with pytest.warns(RuntimeWarning, match=re.escape("what came after is lost and 1,234 bytes behind it are cut off")):
        memory, _ = recorded(0, capacity=3000, directory=tmp_path / "memory", **BY_HAND)

    assert size == log.stat().st_size
    assert_memory_is_what_the_oracle_holds(memory, closed(oracle))
    memory.close()


def test_a_memory_that_is_opened_to_go_on_does_so_exactly_open_episodes_and_all(tmp_path):
    memory, oracle = recorded(800, capacity=1000, directory=tmp_path / "memory", **BY_HAND)
    memory.sample(7)
    memory.close()

    again = ReplayMemory.open(tmp_path / "memory", read_only=False, **BY_HAND)

    assert memory.sample(9).index.tolist() == again.sample(9).index.tolist()
    go_on(again, oracle, 300, seed=5)
    assert_memory_is_what_the_oracle_holds(again, oracle)
    again.close()


def test_an_older_generation_that_was_saved_is_gone_back_to_while_flushes_come_and_go(tmp_path):
    memory, oracle = recorded(700, capacity=3000, directory=tmp_path / "memory", **BY_HAND)
    checkpoint = memory.save(tmp_path / "memory", keep_previous=True)
    then = copy.deepcopy(oracle)
    for step in range(3):
        go_on(memory, oracle, 300, seed=step)
        memory.flush()
    memory.close()

    back = ReplayMemory.open(tmp_path / "memory", read_only=False, generation=checkpoint, **BY_HAND)

    assert_memory_is_what_the_oracle_holds(back, then)
    go_on(back, then, 500, seed=9)
    newest = back.flush()
    back.prune(tmp_path / "memory", newest)
    back.close()
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), then)
    assert 1 == len(list((tmp_path / "memory").glob("MANIFEST.*")))


def test_a_reader_beside_a_writer_sees_what_was_flushed_for_as_long_as_it_looks(tmp_path):
    memory, oracle = recorded(700, capacity=900, directory=tmp_path / "memory", **BY_HAND)
    memory.flush()
    reader, then = ReplayMemory.open(tmp_path / "memory"), copy.deepcopy(oracle)

    for step in range(4):
        go_on(memory, oracle, 700, seed=step)
        memory.flush()

    assert_memory_is_what_the_oracle_holds(reader, then)
    with pytest.raises(ClosedMemoryError, match="was opened to be read: no step goes into it"):
        reader.begin(np.zeros((2, *SHAPE), np.uint8))
    assert_memory_is_what_the_oracle_holds(ReplayMemory.open(tmp_path / "memory"), oracle)
    memory.close()


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path):
    memory, _ = recorded(10, directory=tmp_path / "memory", **BY_HAND)

    for attempt in (
        lambda: recorded(0, directory=tmp_path / "memory"),
        lambda: ReplayMemory.open(tmp_path / "memory", read_only=False),
        lambda: recorded(5)[0].save(tmp_path / "memory"),
    ):
        with pytest.raises(IncompatibleError, match=f"is being written by process {os.getpid()}"):
            attempt()

    memory.close()
    recorded(5)[0].save(tmp_path / "memory")


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"capacity": 50}, "capacity is 50"), ({"stack_padding": "zeros"}, "stack_padding is 'zeros'")],
)
def test_a_folder_with_a_memory_of_other_settings_is_refused_by_the_setting(changed, named, tmp_path):
    recorded(10, directory=tmp_path / "memory")[0].close()

    with pytest.raises(IncompatibleError, match=re.escape(f"{named}: the memory in {tmp_path / 'memory'} has")):
        recorded(0, **{"directory": tmp_path / "memory"} | changed)

    recorded(0, directory=tmp_path / "memory")[0].close()


def test_a_closed_memory_can_be_sampled_and_takes_nothing_any_more(tmp_path):
    memory, oracle = recorded(700, capacity=3000, directory=tmp_path / "memory", **BY_HAND)
    memory.close()
    memory.close()

    assert_batch_is_what_the_oracle_holds(memory.sample(20), oracle)
    with pytest.raises(ClosedMemoryError, match="is closed: no step goes into it"):
        memory.begin(np.zeros((2, *SHAPE), np.uint8))
    with pytest.raises(ClosedMemoryError, match="is closed: nothing is written there"):
        memory.flush()


def test_a_memory_without_a_folder_has_nothing_to_flush_and_closes_as_nothing(tmp_path):
    with recorded(10)[0] as memory, pytest.raises(InvalidSettingsError, match="the memory has no directory"):
        memory.flush()


def test_a_memory_in_a_folder_is_saved_to_another_and_loaded_from_both(tmp_path):
    memory, oracle = recorded(900, capacity=1200, directory=tmp_path / "memory", **BY_HAND)
    memory.flush()
    go_on(memory, oracle, 100, seed=4)

    memory.save(tmp_path / "copy")
    memory.close()

    for name in ("memory", "copy"):
        assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / name), oracle)


def test_a_background_flush_comes_by_itself(tmp_path):
    memory, oracle = recorded(300, directory=tmp_path / "memory", flush_every=0.02)
    deadline = time.monotonic() + 20

    while time.monotonic() < deadline:
        time.sleep(0.02)
        if np.array_equal(ReplayMemory.load(tmp_path / "memory").sampleable_indices(), memory.sampleable_indices()):
            break

    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)
    memory.close()


def test_what_a_background_flush_fails_with_is_raised_by_the_next_step_and_the_flush_after_it_works(tmp_path):
    memory, oracle = recorded(3, directory=tmp_path / "memory", flush_every=0.02)
    (tmp_path / "memory").rename(tmp_path / "elsewhere")
    frames = np.zeros((2, *SHAPE), np.uint8)

    with pytest.raises(FileNotFoundError):  # noqa: PT012 - one of these steps, whichever comes after the flush
        for _ in range(2000):
            memory.begin(frames)
            oracle.begin(frames, [0, 1])
            time.sleep(0.01)
    (tmp_path / "elsewhere").rename(tmp_path / "memory")

    memory.close()
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


def test_a_memory_that_is_dropped_or_left_open_at_the_end_is_closed(tmp_path):
    memory, oracle = recorded(30, directory=tmp_path / "memory", flush_every=1000)
    del memory
    gc.collect()

    recorded(0, directory=tmp_path / "memory")[0].close()  # without a warning, and the lock is free

    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from oracles.recorded_play import recorded
memory, _ = recorded(30, directory=sys.argv[1], flush_every=1000)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "other")], check=True)
    again, _ = recorded(0, directory=tmp_path / "other")
    assert_memory_is_what_the_oracle_holds(again, closed(oracle))
    again.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_neither_flushes_nor_closes_nor_keeps_the_lock(tmp_path):
    memory, oracle = recorded(30, directory=tmp_path / "memory", **BY_HAND)
    child = os.fork()
    if child == 0:
        try:
            memory.flush()
        except ClosedMemoryError:
            memory.close()
            os._exit(7)
        os._exit(1)

    assert 7 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    memory.close()
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


def test_a_folder_that_is_not_there_is_not_made_by_opening_it(tmp_path):
    for read_only in (True, False):
        with pytest.raises(FileNotFoundError, match="no framestow memory was saved in this folder"):
            ReplayMemory.open(tmp_path / "nothing", read_only=read_only)

    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("flush_every", [0, -1.0, float("nan")])
def test_a_time_between_flushes_that_is_none_is_refused(flush_every, tmp_path):
    with pytest.raises(InvalidSettingsError, match="flush_every is"):
        recorded(0, directory=tmp_path / "memory", flush_every=flush_every)

    assert not (tmp_path / "memory").exists()


def test_a_damaged_segment_is_an_error_that_names_file_and_offset_when_it_is_drawn(tmp_path):
    recorded(1700, capacity=10_000, directory=tmp_path / "memory", **BY_HAND)[0].close()
    damage_a_segment(tmp_path / "memory")
    memory = ReplayMemory.open(tmp_path / "memory")

    with pytest.raises(DamagedSegmentError, match=r"frames\.000001\.log.*offset"):
        memory.get(memory.sampleable_indices())
    with pytest.raises(DamagedSegmentError):
        memory.sample(3000)


def test_a_damaged_segment_is_skipped_counted_and_the_rest_is_drawn_uniformly(tmp_path):
    memory, oracle = recorded(1700, capacity=10_000, directory=tmp_path / "memory", **BY_HAND)
    memory.close()
    damage_a_segment(tmp_path / "memory")
    memory = ReplayMemory.open(tmp_path / "memory", on_damage="skip")

    batches = [memory.sample(1000) for _ in range(40)]

    assert {1000} == {len(batch.index) for batch in batches}
    assert 1 == memory.report().skipped_segments
    assert 3400 - 320 - 5 <= len(memory) <= 3400 - 200  # last frames of episodes begin no transition
    assert_batch_is_what_the_oracle_holds(batches[0], oracle)
    counts = np.bincount(np.concatenate([batch.index for batch in batches]), minlength=3400)
    held = memory.sampleable_indices()
    assert 0 == np.delete(counts, held).sum()
    chi_square = ((counts[held] - 40_000 / len(held)) ** 2 / (40_000 / len(held))).sum()
    assert abs(chi_square - len(held)) < 5 * np.sqrt(2 * len(held))  # five standard deviations
    assert "1 damaged segments were skipped" in str(memory.report())


def test_a_writer_that_skips_a_damaged_segment_goes_on_without_it(tmp_path):
    memory, oracle = recorded(1700, capacity=10_000, directory=tmp_path / "memory", **BY_HAND)
    memory.close()
    damage_a_segment(tmp_path / "memory")
    memory = ReplayMemory.open(tmp_path / "memory", read_only=False, on_damage="skip", **BY_HAND)
    memory.sample(5000)
    go_on(memory, oracle, 100, seed=8)
    memory.close()

    loaded = ReplayMemory.load(tmp_path / "memory")

    assert memory.sampleable_indices().tolist() == loaded.sampleable_indices().tolist()
    assert_batch_is_what_the_oracle_holds(loaded.get(loaded.sampleable_indices()), oracle)


def test_an_unknown_way_to_treat_damage_is_refused(tmp_path):
    with pytest.raises(InvalidSettingsError, match="on_damage is 'ignore': it must be 'raise' or 'skip'"):
        ReplayMemory(10, FrameSpec(SHAPE), 4, on_damage="ignore")


def test_a_saved_memory_is_opened_without_a_warning(tmp_path):
    memory, oracle = recorded(50)
    memory.save(tmp_path / "memory")

    again = ReplayMemory.open(tmp_path / "memory", read_only=False, **BY_HAND)

    assert_memory_is_what_the_oracle_holds(again, oracle)
    again.close()


@pytest.mark.parametrize("name", ["./memory/", "deep/new/memory"])
def test_a_relative_path_counts_from_where_the_memory_began(name, tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path)
    memory, oracle = recorded(300, capacity=1500, directory=name)

    monkeypatch.chdir(tmp_path / "deep")
    memory.save("copy")
    go_on(memory, oracle, 200, seed=3)
    memory.close()
    monkeypatch.chdir(tmp_path)

    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(name), oracle)
    assert 0 < len(ReplayMemory.load("deep/copy")) < len(ReplayMemory.open(Path(name)))
