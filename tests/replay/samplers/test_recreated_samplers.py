"""A sampler is saved with its settings: a memory that is loaded without a sampler recreates it."""

from __future__ import annotations

import pytest

from framestow import ByAge, EmphasizeRecent, Mixture, ReplayMemory, Uniform
from framestow.errors import IncompatibleError
from oracles.memories_to_draw_from import five_envs_at_different_rates
from oracles.newest_sampler import Newest

SAMPLERS = {
    "uniform": Uniform,
    "by age": lambda: ByAge(half_life=3.5),
    "emphasize recent": lambda: EmphasizeRecent(0.99, 6, 20, final_eta=1.0, annealed_over=30),
    "mixture": lambda: Mixture((Mixture((Uniform(), 1), (ByAge(4), 2)), 0.3), (EmphasizeRecent(0.99, 6, 20), 0.7)),
}


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_a_memory_loaded_without_a_sampler_continues_with_the_saved_one(make, tmp_path):
    memory = five_envs_at_different_rates(tmp_path, make)
    for _ in range(4):
        memory.sample(7)
    memory.save(tmp_path)
    loaded = ReplayMemory.load(tmp_path)

    expected = [memory.sample(7).index.tolist() for _ in range(40)]

    assert expected == [loaded.sample(7).index.tolist() for _ in range(40)]


def test_a_saved_mixture_with_a_foreign_part_must_be_given(tmp_path):
    def make() -> Mixture:
        return Mixture((Uniform(), 1), (Newest(), 1))

    memory = five_envs_at_different_rates(tmp_path, make)
    memory.save(tmp_path)

    with pytest.raises(IncompatibleError, match="the memory was saved with a Newest, which is not one of framestow's"):
        ReplayMemory.load(tmp_path)
    loaded = ReplayMemory.load(tmp_path, sampler=make())
    assert memory.sample(8).index.tolist() == loaded.sample(8).index.tolist()
