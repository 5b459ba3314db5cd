"""What every sampler promises."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class Draw(NamedTuple):
    """Indices of the transitions drawn, and their importance weights; both of shape ``(batch,)``."""

    indices: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]


class Held(Protocol):
    """The transitions that may be drawn now, by rank: 0 is the oldest, ``len`` minus 1 the newest."""

    def __len__(self) -> int:
        """How many there are."""

    def held_at(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Give their indices."""


class Sampler(Protocol):
    """Draws transitions by their index. It is told which may be drawn, and sees neither frames nor rewards."""

    def draw(self, batch_size: int, held: Held, generator: np.random.Generator) -> Draw:
        """Draw ``batch_size`` of ``held``, which are at least one, with replacement."""

    def state(self) -> dict[str, Any]:
        """What is saved with a memory: JSON-able values."""

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` gave."""
