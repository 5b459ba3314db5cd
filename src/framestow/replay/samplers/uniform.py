"""Every transition equally likely."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow.replay.samplers.sampler import Draw


class Uniform:
    """Draws every held transition with the same probability, in constant time (a ``Sampler``)."""

    def __init__(self) -> None:
        self._oldest = 0
        self._stop = 0

    def grew(self, stop: int) -> None:
        """Transitions up to, not including, index ``stop`` may be drawn now."""
        self._stop = stop

    def evicted(self, before: int) -> None:
        """Transitions below index ``before`` have gone."""
        self._oldest = before

    def draw(self, batch_size: int, generator: np.random.Generator) -> Draw:
        """Draw ``batch_size`` transitions with replacement; the weights are all 1."""
        indices = generator.integers(self._oldest, self._stop, size=batch_size, dtype=np.int64)
        return Draw(indices, np.ones(batch_size, np.float32))

    def state(self) -> dict[str, Any]:
        """What a snapshot keeps."""
        return {"oldest": self._oldest, "stop": self._stop}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` gave."""
        self._oldest, self._stop = int(state["oldest"]), int(state["stop"])
