"""How likely each sampler is to draw each transition, from its definition: the rank 0 is the oldest that is held."""

from __future__ import annotations

import numpy as np


def uniform_law(num_held: int) -> np.ndarray:
    return np.full(num_held, 1 / num_held)


def by_age_law(num_held: int, half_life: float) -> np.ndarray:
    ages = np.arange(num_held)[::-1]
    chances = 0.5 ** (ages / half_life)
    return chances / chances.sum()


def recent_law(num_held: int, num_recent: int) -> np.ndarray:
    chances = np.zeros(num_held)
    chances[max(0, num_held - num_recent) :] = 1 / min(num_recent, num_held)
    return chances


def emphasize_recent_law(num_held: int, eta: float, num_updates: int, min_recent: int) -> np.ndarray:
    """Of a whole phase, all its updates together."""
    laws = [
        recent_law(num_held, max(int(num_held * eta ** (1000 * update / num_updates)), min_recent))
        for update in range(1, num_updates + 1)
    ]
    return np.mean(laws, axis=0)
