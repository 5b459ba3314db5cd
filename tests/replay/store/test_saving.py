"""Saving and loading: everything is restored, only new data is written, and damage is found."""

from __future__ import annotations

import copy
import errno
import itertools
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import STACK_PADDINGS
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.store.open_store import keep_only, start_over
from framestow.replay.store.writer import StoreWriter
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.dead_disk import DeadDisk, Killed
from oracles.failing_disk import FailingDisk
from oracles.list_memory import ListMemory
from oracles.recorded_play import SHAPE, play_on, recorded
from oracles.saved_bytes import saved_bytes
from oracles.store_files import commit_files, files_of_newest_commit, generations, unaccounted


@pytest.mark.each_pair
@pytest.mark.parametrize("stack_padding", STACK_PADDINGS)
@pytest.mark.parametrize("storage", ["packed", "raw"])
@pytest.mark.parametrize("num_steps", [0, 1, 15, 40, 400])
def test_a_loaded_memory_equals_the_saved_one_and_resumes_there(storage, num_steps, stack_padding, tmp_path):
    memory, oracle = recorded(num_steps, storage=storage, stack_padding=stack_padding)
    memory.save(tmp_path / "memory")

    loaded = ReplayMemory.load(tmp_path / "memory")

    assert_memory_is_what_the_oracle_holds(loaded, oracle)
    play_on(loaded, oracle, 50, seed=2)
    assert_memory_is_what_the_oracle_holds(loaded, oracle)


def test_a_loaded_memory_packs_later_frames_like_the_saved_one(tmp_path):
    memory, oracle = recorded(370, capacity=2000)
    memory.save(tmp_path / "memory")
    loaded = ReplayMemory.load(tmp_path / "memory")

    for target, number in ((memory, 0), (loaded, 1)):
        play_on(target, copy.deepcopy(oracle), 600, seed=4)
        target.save(tmp_path / f"after {number}")

    assert saved_bytes(tmp_path / "after 0") == saved_bytes(tmp_path / "after 1")


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_saving_again_replaces_the_generation_and_leaves_no_other_file(tmp_path):
    memory, oracle = recorded(20)
    for step in range(3):
        play_on(memory, oracle, 20, seed=step)
        memory.save(tmp_path / "memory")

    assert ["COMMIT.000004", "COMMIT.000004.copy", "LOCK"] == names_in(tmp_path / "memory")
    commit, copy = (tmp_path / "memory" / name for name in names_in(tmp_path / "memory")[:2])
    assert commit.read_bytes() == copy.read_bytes()
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


@pytest.mark.parametrize("through_a_load", [False, True])
def test_saving_again_appends_only_new_data(through_a_load, tmp_path):
    memory, oracle = recorded(1000, capacity=10_000)
    memory.save(tmp_path / "memory")
    first = {path.name: path.read_bytes() for path in (tmp_path / "memory").glob("*.log")}
    if through_a_load:
        memory = ReplayMemory.load(tmp_path / "memory")

    play_on(memory, oracle, 500, seed=7)
    memory.save(tmp_path / "memory")

    assert ["frames", "steps"] == sorted(name.partition("-")[0] for name in first)
    for name, content in first.items():
        grown = (tmp_path / "memory" / name).read_bytes()
        assert content == grown[: len(content)]
        assert 1.2 < len(grown) / len(content) <= 2  # 1.5 times, rounded to blocks
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


def test_a_folder_with_the_save_of_another_memory_is_rewritten(tmp_path):
    memory, oracle = recorded(700, capacity=2000)
    memory.save(tmp_path / "memory")
    recorded(700, capacity=2000, seed=5)[0].save(tmp_path / "memory")
    play_on(memory, oracle, 10, seed=6)

    memory.save(tmp_path / "memory")

    memory.save(tmp_path / "alone")
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)
    assert len(names_in(tmp_path / "alone")) == len(names_in(tmp_path / "memory"))


def test_kept_generations_load_until_they_are_pruned(tmp_path):
    memory, oracle = recorded(0, capacity=900)
    kept = {}
    for step in range(4):
        play_on(memory, oracle, 300, seed=step)
        kept[memory.save(tmp_path / "memory", keep_previous=True)] = oracle.held

    found = {generation: ReplayMemory.load(tmp_path / "memory", generation=generation) for generation in kept}

    assert {number: list(steps) for number, steps in kept.items()} == {
        number: loaded.sampleable_indices().tolist() for number, loaded in found.items()
    }
    memory.prune(tmp_path / "memory", 4)
    assert [4, 5] == generations(tmp_path / "memory")
    with pytest.raises(FileNotFoundError, match=r"COMMIT\.000003: there is no generation 3; give one of \[4, 5\]"):
        ReplayMemory.load(tmp_path / "memory", generation=3)
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


def test_a_path_means_what_it_means_in_a_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    memory, oracle = recorded(30)
    for path, folder in (("missing/../beside", "beside"), ("~/mine", "home/mine")):
        generation = memory.save(path)

        assert_memory_is_what_the_oracle_holds(ReplayMemory.load(path), oracle)
        assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / folder, generation=generation), oracle)
    assert {"beside", "home"} == {found.name for found in tmp_path.iterdir()}
    with pytest.raises(InvalidSettingsError, match=r"path is '~nobody-of-this-name/x': .*; give the whole path"):
        memory.save("~nobody-of-this-name/x")


def test_pruning_where_nothing_was_saved_is_refused_and_writes_nothing(tmp_path):
    memory, _ = recorded(10)

    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileNotFoundError, match=f"^{folder}: no memory was saved in this folder, so nothing is"):
            memory.prune(folder, 1)

    assert [] == [*tmp_path.iterdir()]


def test_pruning_at_a_missing_generation_is_refused(tmp_path):
    memory, _ = recorded(10)
    memory.save(tmp_path / "memory")

    with pytest.raises(FileNotFoundError, match=r"there is no generation 1, so nothing is removed; give one of \[2\]"):
        memory.prune(tmp_path / "memory", 1)

    assert 20 == len(ReplayMemory.load(tmp_path / "memory"))


def test_keep_only_removes_older_and_newer_generations(tmp_path):
    memory, oracle = recorded(700, capacity=5000)
    first = memory.save(tmp_path / "memory")
    later = copy.deepcopy(oracle)
    for _ in range(2):
        play_on(memory, later, 700, seed=11)
        memory.save(tmp_path / "memory", keep_previous=True)

    with pytest.raises(FileNotFoundError, match=r"no generation 9, so nothing is removed; give one of \[2, 3, 4\]"):
        keep_only(tmp_path / "memory", 9)
    keep_only(tmp_path / "memory", first)

    assert [first, 5] == generations(tmp_path / "memory")  # going back is a commit
    assert ["COMMIT.000002", "COMMIT.000005"] == [path.name for path in commit_files(tmp_path / "memory")]
    assert not unaccounted(tmp_path / "memory")
    loaded = ReplayMemory.load(tmp_path / "memory")
    play_on(loaded, oracle, 700, seed=12)
    loaded.save(tmp_path / "memory")
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


def test_a_kill_at_any_operation_while_all_is_removed_leaves_a_folder_to_start_in(tmp_path):
    at, was_killed = 0, True
    while was_killed:
        folder = tmp_path / f"killed at {at}"
        settings = {"stack": 4, "directory": folder, "flush_every": None}
        memory = ReplayMemory(100, FrameSpec((2, 2)), 4, **settings)
        memory.begin(np.zeros((1, 2, 2), np.uint8))
        memory.append([3], [0.5], [False], [False], np.ones((1, 2, 2), np.uint8))
        memory.close()

        try:
            start_over(folder, keeps_pinned=False, files=DeadDisk(at))
            was_killed = False
        except Killed:
            at += 1

        if generations(folder):
            start_over(folder, keeps_pinned=False)
        with ReplayMemory(100, FrameSpec((2, 2)), 4, **settings) as again:
            assert 0 == len(again)
    assert at >= 5


class Newest(Uniform):
    """A custom sampler."""


def test_a_custom_sampler_is_passed_to_load(tmp_path):
    memory, _ = recorded(20, sampler=Newest())
    memory.save(tmp_path / "memory")

    with pytest.raises(IncompatibleError, match="sampler is not given: the memory was saved with a Newest, which is"):
        ReplayMemory.load(tmp_path / "memory")

    loaded = ReplayMemory.load(tmp_path / "memory", sampler=Newest())
    assert memory.sample(8).index.tolist() == loaded.sample(8).index.tolist()


def test_an_environment_without_stored_steps_resumes_at_its_position(tmp_path):
    memory = ReplayMemory(50, FrameSpec(SHAPE), 4, stack=4, num_envs=2, seed=0)
    oracle = ListMemory(50, 2, 4, 0.99)
    blank = np.zeros((1, *SHAPE), np.uint8)
    for target in (memory, oracle):
        target.begin(blank, [1])
        for step in range(319):  # with the first frame a complete segment
            target.append([0], [0.0], [step == 318], [False], blank, [1])
        target.begin(blank, [0])
        for _ in range(60):
            target.append([1], [0.0], [False], [False], blank, [0])
    memory.save(tmp_path / "memory")

    loaded = ReplayMemory.load(tmp_path / "memory")

    for target in (loaded, oracle):
        target.begin(blank + 1, [1])
        target.append([2], [0.0], [False], [False], blank + 2, [1])
    assert_memory_is_what_the_oracle_holds(loaded, oracle)


MEASURE_PEAK = """
import resource, sys
import numpy as np
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def record(num_steps):
    memory = ReplayMemory(num_steps, FrameSpec((84, 84)), 4, stack=4)
    noise = np.random.default_rng(0).integers(0, 256, (256, 84, 84), dtype=np.uint8)
    memory.begin(noise[:1])
    for step in range(num_steps):
        memory.append([0], [0.0], [False], [False], noise[step % 256][None])
    return memory

folder = sys.argv[2]
record(200).save(folder + "-warm")
ReplayMemory.load(folder + "-warm")
if sys.argv[1] == "save":
    memory = record(15_000)
    before = peak()
    memory.save(folder)
else:
    before = peak()
    memory = ReplayMemory.load(folder)
    before += memory.nbytes
print((peak() - before) / 2**20)
"""


def test_saving_and_loading_need_no_second_copy_of_the_memory(tmp_path):
    over = {}
    for what in ("save", "load"):
        command = [sys.executable, "-c", MEASURE_PEAK, what, str(tmp_path / "memory")]
        over[what] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert max(over.values()) < 12, over  # MiB, of 101 MiB of noise: a few segments of 2.2 MiB


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_writer_that_failed_at_any_operation_goes_on_with_its_own_memory(every, tmp_path):
    """Also if only the commit that repeats the other memory's, and lists the new id, was written."""
    settings = {"capacity": 900, "frames_per_segment": 16}
    (other, _), (memory, oracle) = recorded(200, **settings), recorded(200, **settings, seed=2)
    other.save(tmp_path / "other")

    for at in itertools.count(0, every):
        folder = shutil.copytree(tmp_path / "other", tmp_path / f"{at}")
        disk = FailingDisk(at, errno.ENOSPC)
        with StoreWriter(folder, files=disk) as writer:
            writer.continue_from(None)
            with suppress(OSError):
                commit = writer.commit(memory.inner.parts, set(), with_copy=True)
                writer.prune_before(commit.generation)
            disk.at = -1  # it works again
            writer.commit(memory.inner.parts, set(), with_copy=True)
        assert_memory_is_what_the_oracle_holds(ReplayMemory.load(folder), oracle)
        assert not unaccounted(folder), at
        assert 1 == len(commit_files(folder)), at
        assert 2 == len(files_of_newest_commit(folder)), at
        if disk.failed is None:
            break
    assert at >= 50
