"""What every system offers whose draws are timed as a learner makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.learners.course import Flags, Numbers
from framestow.benchmarking.play import Frames

Question = Literal["uniform", "prioritized", "n_step", "sequences"]
QUESTIONS: tuple[Question, ...] = ("uniform", "prioritized", "n_step", "sequences")

SEQUENCE_LENGTH = 80  # steps, as R2D2 learns from
ALPHA, BETA = 0.5, 0.4


@dataclass(frozen=True)
class Drawn:
    """A batch as arrays, to be held against the course; shapes with ``(B,)`` or, of sequences, ``(B, L)`` before.

    ================= =====================================================================================
    numbers           of the steps
    observations      of the steps, ``(..., stack, *frame)``
    next_observations behind the 1-step or n-step transitions; ``None`` where a sequence's next step shows it
    rewards           of one step, or for ``n_step`` the discounted sum
    discounts         what the value behind an n-step transition counts; ``None`` where it is not given
    mask              which steps of a sequence are of its episode; ``None`` if all are
    ================= =====================================================================================
    """

    numbers: Numbers
    observations: Frames
    next_observations: Frames | None
    rewards: npt.NDArray[Any]
    discounts: npt.NDArray[Any] | None = None
    mask: Flags | None = None


class LearningSystem(Protocol):
    """A filled memory that answers one question."""

    library: str
    question: Question
    setting: str
    gives_up: str
    """What is lost at this setting, in words; empty if nothing."""
    keeps_final_frames: bool
    """Whether the observation behind an episode's last step comes back, at any of an n-step transition's steps."""
    uses_torch: bool
    """Whether PyTorch's number of threads matters."""
    num_transitions: int
    """How many can be drawn."""

    def draw(self, batch_size: int) -> Any:
        """Do what one update asks of the memory, with the update of priorities where there are any."""

    def drawn(self, batch: Any) -> Drawn:
        """Give what ``draw`` returned as arrays."""


class PrioritizedLearning(LearningSystem, Protocol):
    """A system that draws by priority."""

    def set_errors(self, numbers: Numbers, errors: npt.NDArray[np.float32]) -> None:
        """Give these steps the priorities of these errors, as an update does."""


class TemporalDifferences:
    """Errors as a learner would find them, drawn beforehand: no call of the generator is timed."""

    def __init__(self, seed: int = 0) -> None:
        self._errors = np.random.default_rng(seed).exponential(size=1 << 20).astype(np.float32)
        self._next = 0

    def next(self, count: int) -> npt.NDArray[np.float32]:
        """Give the next ``count`` errors, a view."""
        if self._next + count > len(self._errors):
            self._next = 0
        self._next += count
        return self._errors[self._next - count : self._next]
