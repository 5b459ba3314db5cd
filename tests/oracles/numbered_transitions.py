"""Transitions for samplers without a memory: the index of each is its rank."""

from __future__ import annotations

import numpy as np


class NumberedTransitions:
    """Any number of transitions, of which nothing is stored."""

    def __init__(self, num_transitions: int) -> None:
        self.num_transitions = self.num_slots = num_transitions

    def __len__(self) -> int:
        return self.num_transitions

    def sampleable_at(self, ranks: np.ndarray) -> np.ndarray:
        assert ranks.dtype == np.int64
        assert ranks.size == 0 or (0 <= ranks.min() and ranks.max() < self.num_transitions)
        return ranks

    def sampleable_indices(self) -> np.ndarray:
        return np.arange(self.num_transitions)

    def is_sampleable(self, indices: np.ndarray) -> np.ndarray:
        return (indices >= 0) & (indices < self.num_transitions)

    def slots_of(self, indices: np.ndarray) -> np.ndarray:
        return indices
