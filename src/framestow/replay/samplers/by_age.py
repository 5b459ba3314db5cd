"""``ByAge``: newer transitions more often, by a half-life."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from framestow.checks import real_number
from framestow.keywords import suggests_keywords
from framestow.replay.samplers.sampler import Chances, Draw, Indices, Sampleable, Sampler, ranks_of


@suggests_keywords
class ByAge(Sampler):
    """Draws a transition with a probability that halves with every ``half_life`` transitions of age.

    The age of a transition is the number of newer ones: 0 for the newest, N - 1 for the oldest of N stored ones::

        P(age = a)  =  (1 - q) * q**a / (1 - q**N)        q = 2 ** (-1 / half_life)        a = 0 .. N - 1

    This geometric distribution over the stored transitions emphasizes recent experience as Wang and Ross 2019 propose,
    but without phases. A newer transition has a higher index; docs/sampling.md has the order with several environments
    and with random retention.

    Arguments:
        half_life: Number of transitions, above 0. With far fewer stored, draws are nearly uniform.

    Raises:
        InvalidSettingsError: another value.
    """

    def __init__(self, half_life: float) -> None:
        rule = "it must be a number of transitions above 0; for draws without age, take Uniform()"
        self.half_life = real_number("half_life", half_life, 0, rule=rule, is_least_excluded=True)

    def draw(self, batch_size: int, transitions: Sampleable, generator: np.random.Generator) -> Draw:
        """Draw ``batch_size`` transitions with replacement; the weights are all 1.

        Inverts the distribution function F(a) = (1 - q**(a + 1)) / (1 - q**N) for 53 random bits. ``expm1`` and
        ``log1p`` keep the digits of 1 - q and 1 - q**N if the half-life is much longer than the memory.
        """
        num_transitions = len(transitions)
        log_q = -math.log(2) / self.half_life
        chances = generator.random(batch_size)
        ages = (np.log1p(chances * math.expm1(num_transitions * log_q)) / log_q).astype(np.int64)
        np.minimum(ages, num_transitions - 1, out=ages)  # rounding may reach N
        return Draw(transitions.sampleable_at(num_transitions - 1 - ages), np.ones(batch_size, np.float32))

    def chances(self, indices: Indices, transitions: Sampleable) -> Chances:
        """Return P(age) of each transition, and weights of 1."""
        num_transitions = len(transitions)
        log_q = -math.log(2) / self.half_life
        ages = num_transitions - 1 - ranks_of(indices, transitions)
        probabilities = np.exp(ages * log_q) * (math.expm1(log_q) / math.expm1(num_transitions * log_q))
        return Chances(probabilities, np.ones(len(indices)))

    def state(self, transitions: Sampleable) -> dict[str, Any]:  # noqa: ARG002
        """Return the half-life; ages follow from the indices."""
        return {"half_life": self.half_life}
