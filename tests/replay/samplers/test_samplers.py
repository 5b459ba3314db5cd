"""The sampler battery over every sampler."""

from __future__ import annotations

from functools import partial

import numpy as np

from batteries.sampler_battery import SamplerBattery
from framestow import ByAge, EmphasizeRecent, Mixture, Uniform
from oracles.sampler_laws import by_age_law, emphasize_recent_law, uniform_law


class TestUniform(SamplerBattery):
    make = Uniform

    def law(self, held: np.ndarray) -> np.ndarray:
        return uniform_law(len(held))


class TestByAge(SamplerBattery):
    make = partial(ByAge, half_life=25)

    def law(self, held: np.ndarray) -> np.ndarray:
        return by_age_law(len(held), half_life=25)


class TestEmphasizeRecent(SamplerBattery):
    make = partial(EmphasizeRecent, eta=0.998, num_updates=10, min_recent=20)

    def law(self, held: np.ndarray) -> np.ndarray:
        return emphasize_recent_law(len(held), eta=0.998, num_updates=10, min_recent=20)


class TestMixture(SamplerBattery):
    def make(self):
        return Mixture((Uniform(), 1), (ByAge(half_life=7), 2))

    def law(self, held: np.ndarray) -> np.ndarray:
        return (uniform_law(len(held)) + 2 * by_age_law(len(held), half_life=7)) / 3
