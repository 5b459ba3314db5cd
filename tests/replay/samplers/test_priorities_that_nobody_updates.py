"""Priorities that nobody updates are warned of once, with the way out."""

from __future__ import annotations

import warnings

import pytest

from framestow import Mixture, Prioritized, ReplayMemory, Uniform
from oracles.numbered_steps import numbered_memory, play_episode

SAMPLERS = {"alone": Prioritized, "in a mixture": lambda: Mixture((Uniform(), 0.5), (Prioritized(), 0.5))}


def filled(sampler) -> ReplayMemory:
    memory = numbered_memory(100, sampler=sampler)
    play_episode(memory, 0, length=20, truncated=True)
    return memory


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_the_thousandth_draw_without_an_update_warns_and_no_other_one(sampler):
    memory = filled(sampler())
    for _ in range(999):
        memory.sample(2)

    with pytest.warns(UserWarning, match=r"1,000 batches were drawn .* call update_priorities\(batch.index") as seen:
        memory.sample(2)

    assert __file__ == seen[0].filename
    for _ in range(1_001):
        memory.sample(2)  # a warning is an error here


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_one_update_is_enough(sampler):
    memory = filled(sampler())
    memory.update_priorities(memory.sample(2).index, [1.0, 2.0])

    for _ in range(2_001):
        memory.sample(2)


def test_a_reader_of_saved_priorities_is_not_warned(tmp_path):
    filled(Prioritized()).save(tmp_path)

    memory = ReplayMemory.open(tmp_path, seed=0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(1_001):
            memory.sample(2)
