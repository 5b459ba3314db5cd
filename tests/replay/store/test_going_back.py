"""A memory that goes on from an older generation leaves nothing of the newer ones behind."""

from __future__ import annotations

import copy
import warnings

import pytest

from framestow.replay.inspection import stored_files
from framestow.replay.memory import ReplayMemory
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.recorded_play import go_on, recorded

BY_HAND = {"flush_every": None}


def with_two_generations(folder):
    """A closed memory; the number of a generation of 700 steps, what it held, and a newer one beside it."""
    memory, oracle = recorded(700, capacity=3000, directory=folder, **BY_HAND)
    checkpoint = memory.save(folder, keep_previous=True)
    then = copy.deepcopy(oracle)
    go_on(memory, oracle, 700, seed=7)
    memory.close()
    return checkpoint, then


@pytest.mark.parametrize("num_steps", [0, 500])
def test_what_was_given_up_is_cut_off_without_a_word_when_newer_generations_go(num_steps, tmp_path):
    checkpoint, then = with_two_generations(tmp_path)
    back = ReplayMemory.open(tmp_path, read_only=False, generation=checkpoint, **BY_HAND)
    go_on(back, then, num_steps, seed=9)
    back.flush()

    assert {} == stored_files(tmp_path).left_over
    back.close()
    assert {} == stored_files(tmp_path).left_over
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = ReplayMemory.open(tmp_path, read_only=False, **BY_HAND)
    assert_memory_is_what_the_oracle_holds(again, then)
    again.close()


def test_newer_generations_stay_whole_until_a_commit_lets_them_go(tmp_path):
    checkpoint, then = with_two_generations(tmp_path)
    newest = stored_files(tmp_path).generation

    back = ReplayMemory.open(tmp_path, read_only=False, generation=checkpoint, **BY_HAND)
    go_on(back, then, 100, seed=9)

    there = ReplayMemory.load(tmp_path, generation=newest)
    assert 2 * (700 + 700) == len(there)
    there._check()
    back.close()
