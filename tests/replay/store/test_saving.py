"""Saving and loading: everything comes back, for the price of what is new, and damage is found."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from framestow.errors import IncompatibleError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import STACK_PADDINGS
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.store.session import keep_only
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.list_memory import ListMemory
from oracles.recorded_play import SHAPE, go_on, recorded


@pytest.mark.parametrize("stack_padding", STACK_PADDINGS)
@pytest.mark.parametrize("storage", ["packed", "raw"])
@pytest.mark.parametrize("num_steps", [0, 1, 15, 40, 400])
def test_a_loaded_memory_is_the_saved_one_and_goes_on_where_it_was(storage, num_steps, stack_padding, tmp_path):
    memory, oracle = recorded(num_steps, storage=storage, stack_padding=stack_padding)
    memory.save(tmp_path / "memory")

    loaded = ReplayMemory.load(tmp_path / "memory")

    assert_memory_is_what_the_oracle_holds(loaded, oracle)
    go_on(loaded, oracle, 50, seed=2)
    assert_memory_is_what_the_oracle_holds(loaded, oracle)


def test_a_loaded_memory_draws_what_the_saved_one_draws(tmp_path):
    memory, _ = recorded(60)
    memory.sample(5)
    memory.save(tmp_path / "memory")
    loaded = ReplayMemory.load(tmp_path / "memory")

    expected = [memory.sample(8).index.tolist() for _ in range(3)]

    assert expected == [loaded.sample(8).index.tolist() for _ in range(3)]


def frames_log(folder: Path) -> bytes:
    return (folder / "frames.000001.log").read_bytes()


def test_a_loaded_memory_packs_what_follows_as_the_saved_one_does(tmp_path):
    memory, oracle = recorded(370, capacity=2000)
    memory.save(tmp_path / "memory")
    loaded = ReplayMemory.load(tmp_path / "memory")

    for target, number in ((memory, 0), (loaded, 1)):
        go_on(target, copy.deepcopy(oracle), 600, seed=4)
        target.save(tmp_path / f"after {number}")

    assert frames_log(tmp_path / "after 0") == frames_log(tmp_path / "after 1")


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_saving_again_replaces_what_was_there_and_leaves_no_file_over(tmp_path):
    memory, oracle = recorded(20)
    for step in range(3):
        go_on(memory, oracle, 20, seed=step)
        memory.save(tmp_path / "memory")

    assert ["LOCK", "MANIFEST.000003", "state.000003.npz"] == names_in(tmp_path / "memory")
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


@pytest.mark.parametrize("through_a_load", [False, True])
def test_saving_again_writes_what_is_new_behind_what_was_there(through_a_load, tmp_path):
    memory, oracle = recorded(1000, capacity=10_000)
    memory.save(tmp_path / "memory")
    first = {path.name: path.read_bytes() for path in (tmp_path / "memory").glob("*.log")}
    if through_a_load:
        memory = ReplayMemory.load(tmp_path / "memory")

    go_on(memory, oracle, 500, seed=7)
    memory.save(tmp_path / "memory")

    assert {"frames.000001.log", "steps.000001.log"} == first.keys()
    for name, content in first.items():
        grown = (tmp_path / "memory" / name).read_bytes()
        assert content == grown[: len(content)]
        assert 1.2 < len(grown) / len(content) <= 2  # half as much again, in whole blocks
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


def test_a_folder_that_another_memory_was_saved_to_meanwhile_is_written_anew(tmp_path):
    memory, oracle = recorded(700, capacity=2000)
    memory.save(tmp_path / "memory")
    recorded(700, capacity=2000, seed=5)[0].save(tmp_path / "memory")
    go_on(memory, oracle, 10, seed=6)

    memory.save(tmp_path / "memory")

    memory.save(tmp_path / "alone")
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)
    assert len(names_in(tmp_path / "alone")) == len(names_in(tmp_path / "memory"))


def test_older_generations_that_are_kept_load_until_they_are_forgotten(tmp_path):
    memory, oracle = recorded(0, capacity=900)
    kept = {}
    for step in range(4):
        go_on(memory, oracle, 300, seed=step)
        kept[memory.save(tmp_path / "memory", keep_previous=True)] = oracle.held

    found = {generation: ReplayMemory.load(tmp_path / "memory", generation=generation) for generation in kept}

    assert {number: list(held) for number, held in kept.items()} == {
        number: loaded.sampleable_indices().tolist() for number, loaded in found.items()
    }
    memory.prune(tmp_path / "memory", 3)
    assert ["MANIFEST.000003", "MANIFEST.000004"] == [name for name in names_in(tmp_path / "memory") if "MAN" in name]
    with pytest.raises(FileNotFoundError, match=r"MANIFEST\.000002"):
        ReplayMemory.load(tmp_path / "memory", generation=2)
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


def test_a_generation_that_is_not_there_is_no_place_to_forget_from(tmp_path):
    memory, _ = recorded(10)
    memory.save(tmp_path / "memory")

    with pytest.raises(FileNotFoundError, match=r"there is no generation 2, so nothing is removed; give one of \[1\]"):
        memory.prune(tmp_path / "memory", 2)

    assert 20 == len(ReplayMemory.load(tmp_path / "memory"))


def test_a_memory_that_was_loaded_from_an_older_generation_goes_on_from_there(tmp_path):
    memory, oracle = recorded(700, capacity=5000)
    first = memory.save(tmp_path / "memory")
    log = frames_log(tmp_path / "memory")
    go_on(memory, copy.deepcopy(oracle), 700, seed=11)
    memory.save(tmp_path / "memory", keep_previous=True)

    back = ReplayMemory.load(tmp_path / "memory", generation=first)
    go_on(back, oracle, 700, seed=12)
    back.save(tmp_path / "memory")

    assert log == frames_log(tmp_path / "memory")[: len(log)]
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


def test_one_generation_is_kept_and_what_was_saved_after_it_is_let_go(tmp_path):
    memory, oracle = recorded(700, capacity=5000)
    first = memory.save(tmp_path / "memory")
    alone = names_in(tmp_path / "memory")
    later = copy.deepcopy(oracle)
    for _ in range(2):
        go_on(memory, later, 700, seed=11)
        memory.save(tmp_path / "memory", keep_previous=True)

    with pytest.raises(FileNotFoundError, match=r"no generation 4, so nothing is removed; give one of \[1, 2, 3\]"):
        keep_only(tmp_path / "memory", 4)
    keep_only(tmp_path / "memory", first)

    assert alone == names_in(tmp_path / "memory")
    loaded = ReplayMemory.load(tmp_path / "memory")
    go_on(loaded, oracle, 700, seed=12)
    loaded.save(tmp_path / "memory")
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


class Newest(Uniform):
    """A sampler of the user's own."""


def test_a_sampler_of_the_users_own_is_given_to_load(tmp_path):
    memory, _ = recorded(20, sampler=Newest())
    memory.save(tmp_path / "memory")

    with pytest.raises(IncompatibleError, match="sampler is not given: the memory was saved with a Newest, which is"):
        ReplayMemory.load(tmp_path / "memory")

    loaded = ReplayMemory.load(tmp_path / "memory", sampler=Newest())
    assert memory.sample(8).index.tolist() == loaded.sample(8).index.tolist()


def test_a_folder_without_a_memory_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no framestow memory was saved in this folder"):
        ReplayMemory.load(tmp_path)


def test_a_moved_folder_loads(tmp_path):
    memory, oracle = recorded(10)
    memory.save(tmp_path / "memory")
    shutil.move(tmp_path / "memory", tmp_path / "elsewhere")

    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "elsewhere"), oracle)


def test_a_stream_of_which_nothing_is_held_any_more_goes_on_where_it_was(tmp_path):
    memory = ReplayMemory(50, FrameSpec(SHAPE), 4, num_envs=2, seed=0)
    oracle = ListMemory(50, 2, 4, 0.99)
    blank = np.zeros((1, *SHAPE), np.uint8)
    for target in (memory, oracle):
        target.begin(blank, [1])
        for step in range(319):  # with the first frame a whole segment
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
    memory = ReplayMemory(num_steps, FrameSpec((84, 84)), 4)
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


def test_saving_and_loading_take_no_second_copy_of_the_memory(tmp_path):
    over = {}
    for what in ("save", "load"):
        command = [sys.executable, "-c", MEASURE_PEAK, what, str(tmp_path / "memory")]
        over[what] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert max(over.values()) < 12, over  # MiB, of 101 MiB of noise: a segment of 2.2 MiB some times over
