"""Episodes whose end nobody saw: those the caller has yet to be told of, and how their environments go on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from framestow.argument_checks import checked_seed


class LostEpisodes:
    """Remembers what a loss leaves to be done, environment by environment.

    An environment that was made anew is seeded at its first reset: the ``k``-th of environment ``i`` from
    ``SeedSequence(seed, spawn_key=(i, k))``, so that the same losses give the same run, and no stream is played twice.
    """

    def __init__(self, seed: int | None, num_envs: int) -> None:
        self.untold: dict[int, str] = {}
        """Environments whose next step has to tell of a loss, and why."""
        self.first_seeds: dict[int, int] = {}
        """Environments that were made anew and not reset since, and what to reset them with."""
        self._num_replacements = [0] * num_envs
        self.seed_from(seed)

    def seed_from(self, seed: int | None) -> None:
        """Derive the seeds of replacements from this one; ``None`` takes fresh entropy."""
        self._entropy = np.random.SeedSequence(checked_seed(seed)).entropy

    def note_replacement(self, numbers: Iterable[int]) -> None:
        """Take note that these environments were made anew."""
        for number in numbers:
            key = (number, self._num_replacements[number])
            self._num_replacements[number] += 1
            state = np.random.SeedSequence(self._entropy, spawn_key=key).generate_state(1, np.uint32)
            self.first_seeds[number] = int(state[0])

    def note_reset(self, numbers: Iterable[int]) -> None:
        """Take note that these environments were reset: what was lost before is closed by that."""
        for number in numbers:
            self.untold.pop(number, None)
            self.first_seeds.pop(number, None)

    def state_dict(self) -> dict[str, Any]:
        """What is still to be told and seeded, in plain values."""
        return {
            "untold": {str(number): why for number, why in self.untold.items()},
            "first_seeds": {str(number): seed for number, seed in self.first_seeds.items()},
            "num_replacements": list(self._num_replacements),
            "entropy": self._entropy,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.untold = {int(number): str(why) for number, why in state["untold"].items()}
        self.first_seeds = {int(number): int(seed) for number, seed in state["first_seeds"].items()}
        self._num_replacements = [int(count) for count in state["num_replacements"]]
        self._entropy = state["entropy"]
