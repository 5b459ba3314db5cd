"""A memory that resumes from an older generation leaves no files of the newer ones."""

from __future__ import annotations

import copy
import warnings

import pytest

from framestow.replay.memory import ReplayMemory
from framestow.replay.reports.inspection import find_files
from framestow.replay.store.format import commit_path
from framestow.replay.store.open_store import keep_only
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.recorded_play import play_on, recorded
from oracles.store_files import generations, log_file, unaccounted

BY_HAND = {"flush_every": None}


def with_two_generations(folder):
    """Return a closed memory, the number of its generation of 700 steps, and the oracle of then; a newer one exists."""
    memory, oracle = recorded(700, capacity=3000, directory=folder, **BY_HAND)
    checkpoint = memory.save(folder, keep_previous=True)
    then = copy.deepcopy(oracle)
    play_on(memory, oracle, 700, seed=7)
    memory.close()
    return checkpoint, then


@pytest.mark.parametrize("num_steps", [0, 500])
def test_removing_newer_generations_also_removes_their_files_without_a_warning(num_steps, tmp_path):
    checkpoint, then = with_two_generations(tmp_path)
    back = ReplayMemory.open(tmp_path, read_only=False, generation=checkpoint, **BY_HAND)
    play_on(back, then, num_steps, seed=9)
    back.flush()

    assert not unaccounted(tmp_path)
    back.close()
    assert not unaccounted(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = ReplayMemory.open(tmp_path, read_only=False, **BY_HAND)
    assert_memory_is_what_the_oracle_holds(again, then)
    again.close()


def test_newer_generations_stay_intact_until_a_commit_removes_them(tmp_path):
    checkpoint, then = with_two_generations(tmp_path)
    newest = find_files(tmp_path).generation

    back = ReplayMemory.open(tmp_path, read_only=False, generation=checkpoint, **BY_HAND)
    play_on(back, then, 100, seed=9)

    there = ReplayMemory.load(tmp_path, generation=newest)
    assert 2 * (700 + 700) == len(there)
    there.inner.parts.check()
    back.close()


def test_a_memory_that_prunes_the_generation_that_it_goes_on_from_writes_everything_again(tmp_path):
    (memory, oracle), (other, _) = recorded(700, capacity=3000), recorded(300, capacity=3000, seed=2)
    mine, others = (one.save(tmp_path, keep_previous=True) for one in (memory, other))
    back = ReplayMemory.open(tmp_path, read_only=False, generation=mine, **BY_HAND)

    back.prune(tmp_path, others)
    play_on(back, oracle, 40, seed=9)
    back.flush()

    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path), oracle)
    back.close()
    assert not unaccounted(tmp_path)


def saved(folder, oracle, memory):
    return memory.save(folder, keep_previous=True)


def closed(folder, oracle, memory):
    saved(folder, oracle, memory)
    with ReplayMemory.open(folder, read_only=False, **BY_HAND):
        pass
    return find_files(folder).generation


def pruned(folder, oracle, memory):
    number = saved(folder, oracle, memory)
    memory.prune(folder, number)
    return number


def went_back(folder, oracle, memory):
    number = saved(folder, oracle, memory)
    play_on(memory, copy.deepcopy(oracle), 40, seed=8)
    saved(folder, oracle, memory)
    keep_only(folder, number)
    return number


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore:.*has the same content and is read:RuntimeWarning")
@pytest.mark.parametrize("is_tidied", [False, True])
@pytest.mark.parametrize("write", [saved, closed, pruned, went_back])
def test_a_missing_commit_is_answered_by_its_copy_as_often_as_a_run_resumes(write, is_tidied, tmp_path):
    memory, oracle = recorded(700, capacity=3000)
    number = write(tmp_path, oracle, memory)

    for seed in range(1 if write is closed else 2):  # no later commit keeps the last flush of a memory
        commit_path(tmp_path, number).unlink()
        said = rf"COMMIT.{number:06d}: the file is missing: its copy has the same content .*, so nothing is missing"
        with pytest.warns(RuntimeWarning, match=said):
            there = ReplayMemory.load(tmp_path, generation=number)
        assert_memory_is_what_the_oracle_holds(there, oracle)
        if is_tidied:
            keep_only(tmp_path, number)
        with ReplayMemory.open(tmp_path, read_only=False, generation=number, **BY_HAND) as back:
            play_on(back, copy.deepcopy(oracle), 40, seed=seed)
            assert number < back.flush()

    assert not unaccounted(tmp_path)


def test_a_memory_that_goes_on_without_a_lost_log_keeps_the_generations_of_checkpoints(tmp_path):
    memory, _ = recorded(700, capacity=3000, directory=tmp_path, **BY_HAND)
    checkpoint = memory.save(tmp_path, keep_previous=True)
    memory.close()
    log_file(tmp_path, "frames").unlink()

    with ReplayMemory.open(tmp_path, read_only=False, on_damage="skip", **BY_HAND) as back:
        back.flush()

    assert checkpoint in generations(tmp_path)
