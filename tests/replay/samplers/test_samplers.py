"""The sampler contract test over every sampler."""

from __future__ import annotations

from functools import partial

import numpy as np

from contracts.sampler_contract import SamplerContract
from framestow import ByAge, EmphasizeRecent, Mixture, Prioritized, ReplayMemory, Uniform
from oracles.sampler_laws import by_age_law, emphasize_recent_law, uniform_law


class TestUniform(SamplerContract):
    make = Uniform

    def law(self, stored: np.ndarray) -> np.ndarray:
        return uniform_law(len(stored))


class TestByAge(SamplerContract):
    make = staticmethod(partial(ByAge, half_life=25))

    def law(self, stored: np.ndarray) -> np.ndarray:
        return by_age_law(len(stored), half_life=25)


class TestEmphasizeRecent(SamplerContract):
    make = staticmethod(partial(EmphasizeRecent, eta=0.998, num_updates=10, min_recent=20))

    def law(self, stored: np.ndarray) -> np.ndarray:
        return emphasize_recent_law(len(stored), eta=0.998, num_updates=10, min_recent=20)


class TestMixture(SamplerContract):
    def make(self):
        return Mixture((Uniform(), 1), (ByAge(half_life=7), 2))

    def law(self, stored: np.ndarray) -> np.ndarray:
        return (uniform_law(len(stored)) + 2 * by_age_law(len(stored), half_life=7)) / 3


def errors_of(stored: np.ndarray) -> np.ndarray:
    """TD errors of either sign, from 0.01 to 6."""
    return np.where(stored % 2, 1, -1) * (0.01 + stored * 7 % 13 / 2)


def prioritized_law(stored: np.ndarray, alpha: float) -> np.ndarray:
    weights = (np.abs(errors_of(stored)) + 1e-6) ** alpha
    return weights / weights.sum()


class TestPrioritized(SamplerContract):
    make = staticmethod(partial(Prioritized, alpha=0.7))

    def prepare(self, memory: ReplayMemory) -> None:
        stored = memory.sampleable_indices()
        memory.update_priorities(stored, errors_of(stored))

    def law(self, stored: np.ndarray) -> np.ndarray:
        return prioritized_law(stored, alpha=0.7)


class TestPrioritizedOfNothingKnown(SamplerContract):
    """All have the priority of new ones."""

    make = Prioritized

    def law(self, stored: np.ndarray) -> np.ndarray:
        return uniform_law(len(stored))


class TestMixtureWithPrioritized(TestPrioritized):
    def make(self):
        return Mixture((Uniform(), 0.3), (Mixture((Prioritized(alpha=0.7), 1), (ByAge(30), 1)), 0.7))

    def law(self, stored: np.ndarray) -> np.ndarray:
        nested = prioritized_law(stored, alpha=0.7) + by_age_law(len(stored), half_life=30)
        return 0.3 * uniform_law(len(stored)) + 0.35 * nested
