"""What every sampler promises."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class Draw(NamedTuple):
    """Indices of the transitions drawn, and their importance weights; both of shape ``(batch,)``."""

    indices: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]


class Sampler(Protocol):
    """Draws transitions by their index. It is told which may be drawn, and sees neither frames nor rewards."""

    def grew(self, stop: int) -> None:
        """Transitions up to, not including, index ``stop`` may be drawn now."""

    def evicted(self, before: int) -> None:
        """Transitions below index ``before`` have gone."""

    def draw(self, batch_size: int, generator: np.random.Generator) -> Draw:
        """Draw ``batch_size`` transitions, with replacement, out of at least one."""

    def state(self) -> dict[str, Any]:
        """What a snapshot keeps: JSON-able values."""

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` gave."""
