"""The newer, the likelier, by a half-life."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from framestow.argument_checks import real_number
from framestow.replay.samplers.sampler import Draw, Held, Sampler


class ByAge(Sampler):
    """Draws a transition with a probability that halves with every ``half_life`` transitions of age.

    The age of a transition is how many of those that are held are newer: 0 for the newest, ``len(memory) - 1`` for the
    oldest. With N of them held, ::

        P(age = a)  =  (1 - q) * q**a / (1 - q**N)        q = 2 ** (-1 / half_life)        a = 0 .. N - 1

    A geometric distribution, cut off at what is held: the discrete form of Wang and Ross 2019's proposition that
    emphasising recent experience is drawing by age, without its phases. What is newer has the higher index:
    docs/sampling.md says what that is with many streams and with random retention.

    ``half_life``: in transitions, any number above 0; a memory that holds far fewer is drawn from uniformly. Raises
    ``InvalidSettingsError`` for any other.
    """

    def __init__(self, half_life: float) -> None:
        rule = "it is a number of transitions above 0; take Uniform() where age is nothing"
        self.half_life = real_number("half_life", half_life, 0, rule=rule, is_least_excluded=True)

    def draw(self, batch_size: int, held: Held, generator: np.random.Generator) -> Draw:
        """Draw ``batch_size`` transitions with replacement; the weights are all 1.

        By the inverse of the distribution function, F(a) = (1 - q**(a + 1)) / (1 - q**N), of 53 random bits. It is
        written with ``expm1`` and ``log1p``, since 1 - q and 1 - q**N lose all their digits where the half-life is much
        longer than the memory.
        """
        num_held = len(held)
        log_q = -math.log(2) / self.half_life
        chances = generator.random(batch_size)
        ages = (np.log1p(chances * math.expm1(num_held * log_q)) / log_q).astype(np.int64)
        np.minimum(ages, num_held - 1, out=ages)  # rounding may reach N
        return Draw(held.held_at(num_held - 1 - ages), np.ones(batch_size, np.float32))

    def state(self, held: Held) -> dict[str, Any]:  # noqa: ARG002
        """Give the half-life, to be made anew with: ages are known to the memory."""
        return {"half_life": self.half_life}
