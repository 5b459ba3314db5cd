"""``Uniform(distinct=True)`` draws no transition twice in a batch, and every choice of transitions equally often."""

from __future__ import annotations

import re
from itertools import permutations

import numpy as np
import pytest

from framestow import ByAge, Mixture, ReplayEnsemble, ReplayMemory, Uniform
from framestow.distributed.shard import sampler_settings
from framestow.errors import InvalidSettingsError, NothingToSampleError
from oracles.chi_square import chi_square, chi_square_bound
from oracles.memories_to_draw_from import MEMORIES, five_envs_at_different_rates
from oracles.numbered_steps import numbered_memory, play_episode


def distinct() -> Uniform:
    return Uniform(distinct=True)


def with_transitions(count: int, **settings) -> ReplayMemory:
    memory = numbered_memory(100, sampler=distinct(), **settings)
    play_episode(memory, 0, length=count, truncated=True)
    return memory


@pytest.mark.parametrize("make_memory", MEMORIES, ids=lambda make: make.__name__)
def test_no_batch_has_a_transition_twice_whatever_its_size(make_memory, tmp_path):
    memory = make_memory(tmp_path, distinct)
    stored = set(memory.sampleable_indices().tolist())

    for batch_size in sorted({1, len(stored) // 3 + 1, len(stored) // 2 + 1, len(stored)}):
        for _ in range(20):
            drawn = memory.sample(batch_size).index.tolist()
            assert len(drawn) == batch_size == len(set(drawn))
            assert set(drawn) <= stored


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_a_batch_of_all_transitions_has_each_once(retention):
    memory = numbered_memory(400, sampler=distinct(), retention=retention)
    for episode in range(60):
        play_episode(memory, episode, length=11, truncated=True)

    drawn = memory.sample(len(memory)).index

    assert memory.sampleable_indices().tolist() == np.sort(drawn).tolist()


@pytest.mark.parametrize("count", [5, 9])
def test_every_order_of_every_choice_is_equally_likely(count):
    memory, pairs = with_transitions(count), list(permutations(range(count), 2))
    first = memory.sampleable_indices()[0]

    drawn = [tuple((memory.sample(2).index - first).tolist()) for _ in range(200 * len(pairs))]

    counts = np.array([drawn.count(pair) for pair in pairs])
    assert counts.sum() == len(drawn)
    assert chi_square(counts, np.full(len(pairs), 1 / len(pairs))) < chi_square_bound(len(pairs) - 1)


def test_a_batch_that_is_larger_than_the_memory_is_refused():
    memory = with_transitions(7)

    with pytest.raises(NothingToSampleError, match=re.escape("batch_size is 8: Uniform(distinct=True)")):
        memory.sample(8)
    assert len(memory.sample(7)) == 7


def test_it_is_saved_with_the_memory(tmp_path):
    memory = five_envs_at_different_rates(tmp_path, lambda: Mixture((distinct(), 1), (ByAge(9), 1)))
    memory.save(tmp_path / "saved")

    loaded = ReplayMemory.load(tmp_path / "saved")

    assert repr(memory.sampler) == repr(loaded.sampler)
    assert [memory.sample(9).index.tolist() for _ in range(20)] == [loaded.sample(9).index.tolist() for _ in range(20)]


def test_without_it_the_saved_settings_are_those_of_before(tmp_path):
    memory = with_transitions(7)

    assert Uniform().state(memory.inner.steps) == {}


def test_a_sampler_that_is_given_to_load_keeps_its_own_choice(tmp_path):
    memory = with_transitions(7)
    memory.save(tmp_path)

    loaded = ReplayMemory.load(tmp_path, sampler=Uniform())

    assert len(loaded.sample(50)) == 50


def test_draws_ahead_have_no_repeats_either():
    memory = with_transitions(7)

    pending = memory.draw_ahead(6)

    assert len(set(pending.read().index.tolist())) == 6


def test_the_first_steps_of_sequences_are_different():
    memory = with_transitions(40)

    batch = memory.sample_sequences(30, length=5)

    assert len(set(batch.index[:, 0].tolist())) == 30


def test_the_rows_of_each_member_of_an_ensemble_are_different():
    ensemble = ReplayEnsemble([with_transitions(20), with_transitions(30)], [0.5, 0.5])

    batch = ensemble.sample(40)

    assert len(set(batch.index.tolist())) == 40
    with pytest.raises(NothingToSampleError, match="draws no transition twice, and 20 can be sampled"):
        ensemble.sample(42)


def test_shards_refuse_it_because_they_draw_with_replacement():
    with pytest.raises(InvalidSettingsError, match=re.escape("give Uniform()")):
        sampler_settings(distinct())


def test_distinct_must_be_a_boolean():
    with pytest.raises(InvalidSettingsError, match="distinct is 1: it must be True or False"):
        Uniform(distinct=1)
