"""The sampler contract test finds samplers that are a little wrong."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.sampler_contract import SamplerContract, assert_drawn_by
from framestow import Uniform
from framestow.replay.samplers.sampler import Draw, Sampler
from oracles.chi_square import pooled
from oracles.memories_to_draw_from import five_envs_at_different_rates, with_lost_frames
from oracles.sampler_laws import by_age_law, uniform_law


class UniformContract(SamplerContract):
    def law(self, transitions: np.ndarray) -> np.ndarray:
        return uniform_law(len(transitions))


class NeverTheNewest(Sampler):
    def draw(self, batch_size, transitions, generator):
        ranks = generator.integers(0, max(1, len(transitions) - 1), batch_size)
        return Draw(transitions.sampleable_at(ranks), np.ones(batch_size, np.float32))


class NewerHalfATenthOftener(Sampler):
    def draw(self, batch_size, transitions, generator):
        chances = np.where(np.arange(len(transitions)) < len(transitions) // 2, 1.0, 1.1)
        ranks = generator.choice(len(transitions), batch_size, p=chances / chances.sum())
        return Draw(transitions.sampleable_at(ranks), np.ones(batch_size, np.float32))


class FromTheWholeSpan(Sampler):
    """Draws an index, then the nearest transition, so that transitions next to a gap are drawn too often."""

    def draw(self, batch_size, transitions, generator):
        first, last = transitions.sampleable_at(np.array([0, len(transitions) - 1]))
        indices = transitions.sampleable_at(np.arange(len(transitions)))
        drawn = np.searchsorted(indices, generator.integers(first, last + 1, batch_size))
        return Draw(indices[drawn], np.ones(batch_size, np.float32))


class SameForAWholeBatch(Uniform):
    def draw(self, batch_size, transitions, generator):
        indices, weights = super().draw(1, transitions, generator)
        return Draw(indices.repeat(batch_size), weights.repeat(batch_size))


class OwnGenerator(Uniform):
    """Draws by a generator of its own: neither the memory's seed nor a save holds."""

    own = np.random.default_rng(0)

    def draw(self, batch_size, transitions, generator):
        return super().draw(batch_size, transitions, self.own)


class Forgets(Sampler):
    """Goes through the memory in order, and does not save how far it is."""

    next_rank = 0

    def draw(self, batch_size, transitions, generator):
        ranks = (self.next_rank + np.arange(batch_size)) % len(transitions)
        self.next_rank += batch_size
        return Draw(transitions.sampleable_at(ranks), np.ones(batch_size, np.float32))


class DoubleWeights(Uniform):
    def draw(self, batch_size, transitions, generator):
        indices, weights = super().draw(batch_size, transitions, generator)
        return Draw(indices, weights.astype(np.float64))


@pytest.mark.parametrize(
    "make",
    [NeverTheNewest, NewerHalfATenthOftener, SameForAWholeBatch],
    ids=lambda make: make.__name__,
)
def test_a_sampler_that_is_not_uniform_is_detected(make, tmp_path):
    contract = UniformContract()
    contract.make = make

    with pytest.raises(AssertionError):
        contract.test_what_is_drawn_follows_the_law_of_the_sampler(five_envs_at_different_rates, tmp_path)
    with pytest.raises(AssertionError):
        contract.test_it_goes_on_by_its_law_while_the_memory_does(tmp_path)


def test_a_sampler_that_ignores_gaps_is_detected(tmp_path):
    contract = UniformContract()
    contract.make = FromTheWholeSpan

    with pytest.raises(AssertionError):
        contract.test_what_is_drawn_follows_the_law_of_the_sampler(with_lost_frames, tmp_path)


@pytest.mark.parametrize("make", [OwnGenerator, Forgets], ids=lambda make: make.__name__)
def test_draws_that_no_seed_or_save_repeats_are_detected(make, tmp_path):
    contract = UniformContract()
    contract.make = make

    with pytest.raises(AssertionError):
        contract.test_the_same_seed_draws_the_same_and_another_does_not(tmp_path)
    with pytest.raises(AssertionError):
        contract.test_after_a_load_it_continues_with_the_same_draws(tmp_path)


def test_weights_of_another_dtype_are_detected(tmp_path):
    contract = UniformContract()
    contract.make = DoubleWeights

    with pytest.raises(AssertionError):
        contract.test_indices_are_int64_and_weights_are_float32_in_0_to_1(2, tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_draws_by_the_law_pass_with_any_seed(seed):
    chances = by_age_law(500, half_life=20)

    assert_drawn_by(chances, np.random.default_rng(seed).choice(500, 20_000, p=chances))


def test_rare_outcomes_are_counted_together():
    counts, chances = pooled(np.array([50, 3, 40, 2, 1, 4]), np.array([0.5, 0.03, 0.4, 0.02, 0.01, 0.04]))

    assert [50, 40, 10] == counts.tolist()
    assert [0.5, 0.4, 0.1] == chances.round(9).tolist()
