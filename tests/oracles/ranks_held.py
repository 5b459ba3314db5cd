"""What a sampler is shown where only ranks matter: the index of a transition is its rank."""

from __future__ import annotations

import numpy as np


class RanksHeld:
    """Holds ``num_held`` transitions, or as many as it likes: nothing is stored."""

    def __init__(self, num_held: int) -> None:
        self.num_held = self.num_slots = num_held

    def __len__(self) -> int:
        return self.num_held

    def sampleable_at(self, ranks: np.ndarray) -> np.ndarray:
        assert ranks.dtype == np.int64
        assert ranks.size == 0 or (0 <= ranks.min() and ranks.max() < self.num_held)
        return ranks

    def sampleable_indices(self) -> np.ndarray:
        return np.arange(self.num_held)

    def is_sampleable(self, indices: np.ndarray) -> np.ndarray:
        return (indices >= 0) & (indices < self.num_held)

    def slots_of(self, indices: np.ndarray) -> np.ndarray:
        return indices

    def indices_in(self, slots: np.ndarray) -> np.ndarray:
        return np.where(slots < self.num_held, slots, -1)
