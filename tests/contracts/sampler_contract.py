"""What every sampler must do; a test module makes ``SamplerContract`` run over each.

What is drawn is compared with the exact law of the sampler: how often each transition by chi-square, and how old they
are by Kolmogorov-Smirnov. Each of the two calls a right sampler wrong with probability 1e-4 at most; a contract test
asks both of it over ten memories, so one in five hundred contract tests would, with other seeds, fail for no reason.
Seeds are fixed, so that what is right passes every time. ``test_sampler_contract.py`` has samplers that are a little
wrong, and which it finds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from framestow.replay.memory import ReplayMemory
from oracles.chi_square import chi_square, chi_square_bound, pooled
from oracles.kolmogorov_smirnov import kolmogorov_smirnov, kolmogorov_smirnov_bound
from oracles.memories_to_draw_from import MEMORIES, MakeSampler, five_envs_at_different_rates
from oracles.numbered_steps import play_episode

BATCH_SIZE = 1000


def assert_drawn_by(chances: np.ndarray, ranks: np.ndarray) -> None:
    """``chances``: of each rank, exactly; ``ranks``: what was drawn."""
    counts = np.bincount(ranks, minlength=len(chances))
    assert 0 == counts[chances == 0].sum(), "something was drawn that never may be"
    some_counts, some_chances = pooled(counts[chances > 0], chances[chances > 0])
    if len(some_counts) > 1:
        assert chi_square(some_counts, some_chances) < chi_square_bound(len(some_counts) - 1)
    newest = len(chances) - 1
    assert kolmogorov_smirnov(newest - ranks, chances[::-1]) < kolmogorov_smirnov_bound(len(ranks))


def ranks_of(drawn: np.ndarray, stored: np.ndarray) -> np.ndarray:
    assert set(drawn.tolist()) <= set(stored.tolist())
    return np.searchsorted(stored, drawn)


class SamplerContract:
    make: MakeSampler
    num_batches = 20  # a whole number of phases, where a sampler has them
    states_chances = True  # whether ``chances`` is written

    def law(self, stored: np.ndarray) -> np.ndarray:
        """How likely each stored transition is, by their indices, ascending; of ``num_batches`` together."""
        raise NotImplementedError

    def prepare(self, memory: ReplayMemory) -> None:
        """Do what the law needs."""

    def batches(self, memory: ReplayMemory, num_batches: int, batch_size: int) -> list[tuple[list[int], list[float]]]:
        batches = [memory.sample(batch_size) for _ in range(num_batches)]
        return [(batch.index.tolist(), batch.weight.tolist()) for batch in batches]

    @pytest.mark.parametrize("make_memory", MEMORIES, ids=lambda make: make.__name__)
    def test_what_is_drawn_follows_the_law_of_the_sampler(self, make_memory, tmp_path: Path):
        memory = make_memory(tmp_path / "memory", self.make)
        self.prepare(memory)
        stored = memory.sampleable_indices()

        drawn = np.concatenate([memory.sample(BATCH_SIZE).index for _ in range(self.num_batches)])

        chances = self.law(stored)
        assert len(stored) == len(memory) == len(chances)
        assert abs(chances.sum() - 1) < 1e-12
        assert_drawn_by(chances, ranks_of(drawn, stored))

    @pytest.mark.parametrize("make_memory", MEMORIES, ids=lambda make: make.__name__)
    def test_the_chances_that_it_states_are_its_law_and_the_weights_those_of_its_draws(self, make_memory, tmp_path):
        memory = make_memory(tmp_path / "memory", self.make)
        self.prepare(memory)
        stored, sampler = memory.sampleable_indices(), memory.inner.parts.notified_sampler
        stated = []

        for _ in range(self.num_batches):
            chances = sampler.chances(stored)
            if not self.states_chances:
                assert chances is None
                return
            stated.append(chances.probabilities)
            batch = memory.sample(33)
            weights = chances.weights[np.searchsorted(stored, batch.index)]
            assert np.allclose(batch.weight, np.where(np.isnan(weights), batch.weight, weights), rtol=1e-6)

        assert np.allclose(self.law(stored), np.mean(stated, axis=0), rtol=1e-6, atol=0)

    def test_it_goes_on_by_its_law_while_the_memory_does(self, tmp_path: Path):
        memory = five_envs_at_different_rates(tmp_path, self.make)
        memory.sample(10)
        for episode in range(30):
            play_episode(memory, episode, length=2, env_id=episode % 5, truncated=True)
        self.prepare(memory)
        stored = memory.sampleable_indices()

        drawn = np.concatenate([memory.sample(BATCH_SIZE).index for _ in range(self.num_batches)])

        assert_drawn_by(self.law(stored), ranks_of(drawn, stored))

    def test_the_same_seed_draws_the_same_and_another_does_not(self, tmp_path: Path):
        drawn = []
        for seed in (5, 5, 6):
            memory = five_envs_at_different_rates(tmp_path, self.make, seed=seed)
            self.prepare(memory)
            drawn.append(self.batches(memory, num_batches=3, batch_size=33))

        assert drawn[0] == drawn[1]
        assert drawn[0] != drawn[2]

    @pytest.mark.parametrize("batch_size", [1, 2, 33])
    def test_indices_are_int64_and_weights_are_float32_in_0_to_1(self, batch_size, tmp_path: Path):
        memory = five_envs_at_different_rates(tmp_path, self.make)
        self.prepare(memory)

        batch = memory.sample(batch_size)

        assert (np.int64, np.float32) == (batch.index.dtype, batch.weight.dtype)
        assert ((batch_size,), (batch_size,)) == (batch.index.shape, batch.weight.shape)
        assert ((batch.weight > 0) & (batch.weight <= 1)).all()

    def test_after_a_load_it_continues_with_the_same_draws(self, tmp_path: Path):
        memory = five_envs_at_different_rates(tmp_path, self.make)
        self.prepare(memory)
        self.batches(memory, num_batches=3, batch_size=9)
        memory.save(tmp_path / "saved")
        loaded = ReplayMemory.load(tmp_path / "saved", sampler=self.make())

        expected = self.batches(memory, num_batches=30, batch_size=9)

        assert expected == self.batches(loaded, num_batches=30, batch_size=9)
