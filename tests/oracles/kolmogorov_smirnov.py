"""Are numbers distributed as they should be? The statistic of Kolmogorov and Smirnov, for counted numbers too.

The bound is Massart's (1990, "The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality"): whatever the
distribution, and however many numbers n, P(D > d) <= 2 exp(-2 n d**2). With numbers that are counted, as ages are, D is
smaller still, so the false alarms are rarer than the rate that is asked for.
"""

from __future__ import annotations

import math

import numpy as np

FALSE_ALARMS = 1e-4


def kolmogorov_smirnov(numbers: np.ndarray, chances: np.ndarray) -> float:
    """The largest difference D of two distribution functions: of ``numbers``, and of ``chances`` for 0, 1, 2, ..."""
    assert numbers.min() >= 0
    assert numbers.max() < len(chances)
    seen = np.cumsum(np.bincount(numbers, minlength=len(chances))) / len(numbers)
    return float(np.abs(seen - np.cumsum(chances)).max())


def kolmogorov_smirnov_bound(num_numbers: int, false_alarms: float = FALSE_ALARMS) -> float:
    return math.sqrt(math.log(2 / false_alarms) / (2 * num_numbers))
