"""ByAge is exact for memories of any size and half-lives of any length."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from contracts.sampler_contract import assert_drawn_by
from framestow import ByAge
from oracles.numbered_transitions import NumberedTransitions
from oracles.sampler_laws import by_age_law


class Given:
    """A generator that gives the numbers it was given."""

    def __init__(self, numbers: list[float]) -> None:
        self.numbers = np.array(numbers)

    def random(self, size: int) -> np.ndarray:
        return self.numbers[:size]


def ages_for(chances: list[float], num_transitions: int, half_life: float) -> list[int]:
    indices, _ = ByAge(half_life).draw(len(chances), NumberedTransitions(num_transitions), Given(chances))
    return (num_transitions - 1 - indices).tolist()


@pytest.mark.parametrize("num_transitions", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("half_life", [0.1, 0.7, 1, 3, 40, 1e4, 1e12])
def test_it_draws_by_its_law_for_any_number_of_transitions(num_transitions, half_life):
    indices, _ = ByAge(half_life).draw(50_000, NumberedTransitions(num_transitions), np.random.default_rng(1))

    chances = by_age_law(num_transitions, half_life)
    assert_drawn_by(chances, indices)


@pytest.mark.parametrize("num_transitions", [1, 2, 5, 60])
def test_ages_change_exactly_where_the_distribution_function_says(num_transitions):
    """With a half-life of 1 the function is rational: (1 - 2**-(a + 1)) / (1 - 2**-N)."""
    near, expected = [], []
    for age in range(num_transitions - 1):
        border = (1 - Fraction(1, 2 ** (age + 1))) / (1 - Fraction(1, 2**num_transitions))
        if 1 - border < Fraction(1, 2**40):
            break  # nearer to 1 than the 53 bits of a random number tell apart
        near += [float(border) - 2**-50, float(border) + 2**-50]  # 8 of the steps between random numbers
        expected += [age, age + 1]

    assert expected == ages_for(near, num_transitions, half_life=1)


@pytest.mark.parametrize("half_life", [5e-324, 1e-300, 1e-3, 1, 1e9, 1e300, 1.7e308])
@pytest.mark.parametrize("num_transitions", [1, 2, 10**6, 10**12])
def test_the_least_and_the_greatest_random_number_draw_a_stored_transition(half_life, num_transitions):
    newest, oldest = ages_for([0.0, 1 - 2**-53], num_transitions, half_life)

    assert 0 == newest
    assert 0 <= oldest < num_transitions


def test_of_a_memory_of_a_thousand_million_half_are_younger_than_the_half_life():
    indices, _ = ByAge(half_life=1e6).draw(100_000, NumberedTransitions(10**9), np.random.default_rng(3))

    ages = 10**9 - 1 - indices
    for num_half_lives in (1, 2, 3):
        share, expected = (ages < num_half_lives * 10**6).mean(), 1 - 0.5**num_half_lives
        assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / 100_000)  # four standard deviations
