"""A memory in a folder: flushed, closed, killed, resumed."""

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

from framestow import EmphasizeRecent, Mixture, Prioritized, Uniform
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
from oracles.patience import PATIENCE_S
from oracles.recorded_play import SHAPE, play_on, recorded
from oracles.store_files import log_file

BY_HAND = {"flush_every": None}


def closed(oracle: ListMemory) -> ListMemory:
    """Return a copy of the oracle with its open episodes closed, as after a resume without environments."""
    oracle = copy.deepcopy(oracle)
    oracle.is_open = [False] * len(oracle.is_open)
    return oracle


def test_flushed_segments_move_from_ram_to_files(tmp_path):
    memory, oracle = recorded(1700, capacity=10_000, directory=tmp_path / "memory", **BY_HAND)
    before = memory.report()

    memory.flush()

    after = memory.report()
    assert (0, after.disk_bytes > 100_000) == (before.disk_bytes, True)
    assert after.parts["frames"] < before.parts["frames"] - 900_000  # the newest segments stay in RAM
    assert_memory_is_what_the_oracle_holds(memory, oracle)
    memory.close()


def test_flushed_steps_survive_a_kill_and_a_warning_says_what_is_lost(tmp_path):
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from oracles.recorded_play import play_on, recorded
memory, oracle = recorded(800, capacity=3000, directory=sys.argv[1], flush_every=None)
memory.flush()
play_on(memory, oracle, 500, seed=2)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path / "memory")], check=False)
    assert -signal.SIGKILL == killed.returncode
    _, oracle = recorded(800, capacity=3000)

    with pytest.warns(RuntimeWarning, match="was not closed: it resumes from its last flush, with 1,600 transitions"):
        memory, _ = recorded(0, capacity=3000, directory=tmp_path / "memory", **BY_HAND)

    assert_memory_is_what_the_oracle_holds(memory, closed(oracle))
    memory.close()


def test_a_log_with_bytes_after_the_last_commit_goes_on_in_a_new_file(tmp_path):
    memory, oracle = recorded(800, capacity=3000, directory=tmp_path / "memory", **BY_HAND)
    memory.close()
    log = log_file(tmp_path / "memory", "frames")
    with log.open("ab") as file:
        file.write(b"x" * 1234)
    before = log.read_bytes()

    memory, _ = recorded(0, capacity=3000, directory=tmp_path / "memory", **BY_HAND)
    oracle = closed(oracle)
    assert_memory_is_what_the_oracle_holds(memory, oracle)
    play_on(memory, oracle, 800, seed=4)
    memory.close()

    assert before == log.read_bytes()
    assert log_file(tmp_path / "memory", "frames", 2).exists()
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


def test_a_reader_sees_the_flushed_generation_while_another_process_writes(tmp_path):
    memory, oracle = recorded(700, capacity=900, directory=tmp_path / "memory", **BY_HAND)
    memory.flush()
    reader, then = ReplayMemory.open(tmp_path / "memory"), copy.deepcopy(oracle)

    for step in range(4):
        play_on(memory, oracle, 700, seed=step)
        memory.flush()

    assert_memory_is_what_the_oracle_holds(reader, then)
    with pytest.raises(ClosedMemoryError, match="is open read-only: it takes no steps"):
        reader.begin(np.zeros((2, *SHAPE), np.uint8))
    assert_memory_is_what_the_oracle_holds(ReplayMemory.open(tmp_path / "memory"), oracle)
    memory.close()


def test_a_second_writer_is_refused_with_the_name_of_the_first(tmp_path):
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
    [({"capacity": 30}, "capacity is 30"), ({"stack_padding": "zeros"}, "stack_padding is 'zeros'")],
)
def test_a_folder_with_other_settings_is_refused_and_the_setting_named(changed, named, tmp_path):
    recorded(10, directory=tmp_path / "memory")[0].close()

    with pytest.raises(IncompatibleError, match=re.escape(f"{named}: the memory in {tmp_path / 'memory'} has")):
        recorded(0, **{"directory": tmp_path / "memory"} | changed)

    recorded(0, directory=tmp_path / "memory")[0].close()


def test_a_closed_memory_can_be_sampled_and_stores_nothing(tmp_path):
    memory, oracle = recorded(700, capacity=3000, directory=tmp_path / "memory", **BY_HAND)
    memory.close()
    memory.close()

    assert_batch_is_what_the_oracle_holds(memory.sample(20), oracle)
    with pytest.raises(ClosedMemoryError, match="is closed: it takes no steps"):
        memory.begin(np.zeros((2, *SHAPE), np.uint8))
    with pytest.raises(ClosedMemoryError, match="is closed: it cannot be written"):
        memory.flush()


def test_a_memory_without_a_folder_cannot_flush_and_closing_does_nothing(tmp_path):
    with recorded(10)[0] as memory, pytest.raises(InvalidSettingsError, match="the memory has no directory"):
        memory.flush()


def test_the_background_flushes_without_a_call(tmp_path):
    memory, oracle = recorded(300, directory=tmp_path / "memory", flush_every=0.02)
    deadline = time.monotonic() + PATIENCE_S

    while time.monotonic() < deadline:
        time.sleep(0.02)
        if np.array_equal(ReplayMemory.load(tmp_path / "memory").sampleable_indices(), memory.sampleable_indices()):
            break

    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)
    memory.close()


def replace_sampler(memory: ReplayMemory) -> None:
    memory.sampler = Prioritized(beta=0.3)


SAMPLER_CHANGES = {
    "another sampler": (Uniform, replace_sampler),
    "a phase": (EmphasizeRecent, lambda memory: memory.sampler.begin_phase(num_updates=7)),
    "a phase of a part": (
        lambda: Mixture((Uniform(), 1), (EmphasizeRecent(), 1)),
        lambda memory: memory.sampler.parts[1][0].begin_phase(num_updates=7),
    ),
    "a setting": (Prioritized, lambda memory: setattr(memory.sampler, "beta", 0.75)),
}


@pytest.mark.parametrize("name", SAMPLER_CHANGES)
def test_the_background_sees_every_change_of_the_sampler(name, tmp_path):
    make, change = SAMPLER_CHANGES[name]
    memory, _ = recorded(300, directory=tmp_path / "memory", flush_every=0.02, sampler=make())
    memory.flush()

    def saved_state() -> str:
        reader = ReplayMemory.open(tmp_path / "memory")
        return f"{reader.sampler} {reader.sampler.state(reader.inner.steps)}"

    change(memory)

    deadline = time.monotonic() + PATIENCE_S
    while saved_state() != (changed := f"{memory.sampler} {memory.sampler.state(memory.inner.steps)}"):
        assert time.monotonic() < deadline, f"{saved_state()} is not {changed}"
        time.sleep(0.02)
    memory.close()


def test_the_next_step_raises_the_error_of_a_background_flush_and_a_later_flush_works(tmp_path):
    memory, oracle = recorded(3, directory=tmp_path / "memory", flush_every=0.02)
    (tmp_path / "memory").rename(tmp_path / "elsewhere")
    frames = np.zeros((2, *SHAPE), np.uint8)

    with pytest.raises(IncompatibleError, match="its folder was moved or removed"):  # noqa: PT012 - one of these steps, the first after the flush
        for _ in range(2000):
            memory.begin(frames)
            oracle.begin(frames, [0, 1])
            time.sleep(0.01)
    (tmp_path / "elsewhere").rename(tmp_path / "memory")

    memory.close()
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


def test_a_collected_memory_and_one_open_at_exit_are_closed(tmp_path):
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
def test_a_forked_child_neither_flushes_nor_closes_nor_locks(tmp_path):
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


def test_opening_a_missing_folder_does_not_create_it(tmp_path):
    for read_only in (True, False):
        with pytest.raises(FileNotFoundError, match="no framestow memory was saved in this folder"):
            ReplayMemory.open(tmp_path / "nothing", read_only=read_only)

    assert not (tmp_path / "nothing").exists()


def test_sampling_a_damaged_segment_raises_with_file_and_offset(tmp_path):
    recorded(1700, capacity=10_000, directory=tmp_path / "memory", **BY_HAND)[0].close()
    damage_a_segment(tmp_path / "memory")
    memory = ReplayMemory.open(tmp_path / "memory", seed=0)

    with pytest.raises(DamagedSegmentError, match=r"frames-\w+\.000001\.log.*offset"):
        memory.get(memory.sampleable_indices())
    with pytest.raises(DamagedSegmentError):
        memory.sample(3000)


def test_a_skipped_segment_is_counted_and_the_rest_is_sampled_uniformly(tmp_path):
    memory, oracle = recorded(1700, capacity=10_000, directory=tmp_path / "memory", **BY_HAND)
    memory.close()
    damage_a_segment(tmp_path / "memory")
    memory = ReplayMemory.open(tmp_path / "memory", on_damage="skip", seed=0)

    batches = [memory.sample(1000) for _ in range(40)]

    assert {1000} == {len(batch.index) for batch in batches}
    assert 1 == memory.report().skipped_segments
    assert 3400 - 320 - 5 <= len(memory) <= 3400 - 200  # the last frame of an episode starts no transition
    assert_batch_is_what_the_oracle_holds(batches[0], oracle)
    counts = np.bincount(np.concatenate([batch.index for batch in batches]), minlength=3400)
    indices = memory.sampleable_indices()
    assert 0 == np.delete(counts, indices).sum()
    chi_square = ((counts[indices] - 40_000 / len(indices)) ** 2 / (40_000 / len(indices))).sum()
    assert abs(chi_square - len(indices)) < 5 * np.sqrt(2 * len(indices))  # five standard deviations
    assert "1 damaged segments were skipped" in str(memory.report())


def test_a_writer_that_skips_a_damaged_segment_continues_without_it(tmp_path):
    memory, oracle = recorded(1700, capacity=10_000, directory=tmp_path / "memory", **BY_HAND)
    memory.close()
    damage_a_segment(tmp_path / "memory")
    memory = ReplayMemory.open(tmp_path / "memory", read_only=False, on_damage="skip", **BY_HAND)
    memory.sample(5000)
    play_on(memory, oracle, 100, seed=8)
    memory.close()

    loaded = ReplayMemory.load(tmp_path / "memory")

    assert memory.sampleable_indices().tolist() == loaded.sampleable_indices().tolist()
    assert_batch_is_what_the_oracle_holds(loaded.get(loaded.sampleable_indices()), oracle)


@pytest.mark.parametrize("name", ["./memory/", "deep/new/memory"])
def test_a_relative_path_stays_relative_to_the_first_working_directory(name, tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path)
    memory, oracle = recorded(300, capacity=1500, directory=name)

    monkeypatch.chdir(tmp_path / "deep")
    memory.save("copy")
    play_on(memory, oracle, 200, seed=3)
    memory.close()
    monkeypatch.chdir(tmp_path)

    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(name), oracle)
    assert 0 < len(ReplayMemory.load("deep/copy")) < len(ReplayMemory.open(Path(name)))


@pytest.mark.slow  # waits for a slow disk, more than two seconds
@pytest.mark.parametrize("spec", [FrameSpec((40, 100)), FrameSpec((1000,), np.float32)], ids=["pictures", "vectors"])
def test_a_disk_slower_than_the_writer_slows_it_instead_of_filling_ram(tmp_path, monkeypatch, spec):
    monkeypatch.setattr("framestow.replay.store.open_store.MAX_UNFLUSHED_BYTES", 2 * 2**20)
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (time.sleep(0.1), sync(descriptor)))
    noise = np.random.default_rng(0).integers(0, 256, (64, *spec.shape)).astype(spec.dtype)
    largest = 0

    with ReplayMemory(10_000, spec, 4, stack=4, directory=tmp_path / "memory", flush_every=0.01) as memory:
        memory.begin(noise[:1])
        for step in range(1_500):  # 6 MB
            memory.append([0], [0.0], [False], [False], noise[step % 64][None])
            largest = max(largest, memory.inner.frames.nbytes["frames"])

    assert largest < 2 * 2**20 + 320 * 4000 + 16 * 4000 + 2**19  # the bound, an open segment, 16 steps, a block
