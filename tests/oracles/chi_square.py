"""Are counts what equal chances give?

Chi-square at significance 1e-4 with k degrees of freedom, by the cube approximation of Wilson and Hilferty (1931);
3.719 is the normal quantile of 1 - 1e-4. Seeds are fixed, so what is correct passes every time.
"""

from __future__ import annotations

import numpy as np

NORMAL_QUANTILE = 3.719


def chi_square_bound(degrees: int) -> float:
    spread = 2.0 / (9.0 * degrees)
    return degrees * (1.0 - spread + NORMAL_QUANTILE * spread**0.5) ** 3


def chi_square(counts: np.ndarray, chances: np.ndarray | None = None) -> float:
    """``chances``: of each count, together 1; equal by default."""
    expected = counts.sum() * (np.full(len(counts), 1 / len(counts)) if chances is None else chances)
    return float(((counts - expected) ** 2 / expected).sum())


def pooled(counts: np.ndarray, chances: np.ndarray, at_least: float = 5.0) -> tuple[np.ndarray, np.ndarray]:
    """Counts and chances with all that are expected less than ``at_least`` times together in one (Cochran 1954).

    Where they are still less than that together, the next rarer ones join them.
    """
    order = np.argsort(-chances, kind="stable")
    counts, chances = counts[order], chances[order]
    expected = chances * counts.sum()
    kept = int((expected >= at_least).sum())
    while kept < len(counts) and kept and expected[kept:].sum() < at_least:
        kept -= 1
    if kept == len(counts):
        return counts, chances
    return np.append(counts[:kept], counts[kept:].sum()), np.append(chances[:kept], chances[kept:].sum())
