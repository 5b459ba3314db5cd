"""``Uniform``: every transition with the same probability."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow._core import draw_uniformly
from framestow.checks import truth_value
from framestow.errors import NothingToSampleError
from framestow.keywords import suggests_keywords
from framestow.replay.samplers.sampler import Chances, Draw, Indices, Sampleable, Sampler


@suggests_keywords
class Uniform(Sampler):
    """Draws every transition with the same probability.

    >>> import numpy as np
    >>> from framestow import FrameSpec, ReplayMemory, Uniform
    >>> memory = ReplayMemory(
    ...     100, FrameSpec((2, 2)), 4, stack=4, sampler=Uniform(distinct=True)
    ... )
    >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
    >>> for step in range(3):
    ...     _ = memory.append(
    ...         [step], [1.0], [False], [False], np.ones((1, 2, 2), np.uint8)
    ...     )
    >>> sorted(memory.sample(3).action.tolist())
    [0, 1, 2]

    Arguments:
        distinct: Whether the transitions of a batch are all different (drawn without replacement). ``False``, the
            default, draws with replacement: a batch of 32 from a million has a repeat in one of 2,000 batches.

    Raises:
        InvalidSettingsError: ``distinct`` is no boolean.
    """

    def __init__(self, distinct: bool = False) -> None:
        self.distinct = truth_value("distinct", distinct)

    def draw(self, batch_size: int, transitions: Sampleable, generator: np.random.Generator) -> Draw:
        """Draw ``batch_size`` transitions, with replacement unless ``distinct``; the weights are all 1.

        Scales 53 random bits to a rank, in less than half the time of ``generator.integers``. Relative probabilities of
        N transitions differ by at most N / 2**53.

        Raises:
            NothingToSampleError: with ``distinct``, fewer than ``batch_size`` transitions are stored.
        """
        count = len(transitions)
        if not self.distinct:
            ranks, weights = draw_uniformly(generator.random(batch_size), 0, count)
            return Draw(transitions.sampleable_at(ranks), weights)
        if batch_size > count:
            raise NothingToSampleError(
                f"batch_size is {batch_size}: Uniform(distinct=True) draws no transition twice, and {count:,} can be "
                "sampled; append more steps first, or sample fewer"
            )
        ranks = generator.choice(count, batch_size, replace=False)
        return Draw(transitions.sampleable_at(ranks), np.ones(batch_size, np.float32))

    def total_mass(self, transitions: Sampleable) -> tuple[float, float]:
        """Return the number of transitions; each has mass 1."""
        return float(len(transitions)), 1.0

    def chances(self, indices: Indices, transitions: Sampleable) -> Chances:
        """Return the same probability for each transition, and weights of 1."""
        return Chances(np.full(len(indices), 1 / len(transitions)), np.ones(len(indices)))

    def state(self, transitions: Sampleable) -> dict[str, Any]:  # noqa: ARG002
        """Return ``distinct`` if it is set."""
        return {"distinct": True} if self.distinct else {}
