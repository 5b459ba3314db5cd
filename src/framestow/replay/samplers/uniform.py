"""Every transition equally likely."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow._core import draw_uniformly
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
        """Draw ``batch_size`` transitions with replacement; the weights are all 1.

        Scales 53 random bits, in less than half the time of ``generator.integers``: no transition is likelier than
        another by more than one part in 2**53 over the number held.
        """
        return Draw(*draw_uniformly(generator.random(batch_size), self._oldest, self._stop))

    def state(self) -> dict[str, Any]:
        """What a snapshot keeps."""
        return {"oldest": self._oldest, "stop": self._stop}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` gave."""
        self._oldest, self._stop = int(state["oldest"]), int(state["stop"])
