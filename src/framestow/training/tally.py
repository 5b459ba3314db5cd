"""What a run has counted so far."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

NUM_RECENT = 20  # episodes in the running mean


@dataclasses.dataclass
class Tally:
    """Steps, episodes and scores of a run from its first step on, over every resume."""

    agent_steps: int = 0
    episodes: int = 0
    best_score: float | None = None
    recent_scores: deque[float] = dataclasses.field(default_factory=lambda: deque(maxlen=NUM_RECENT))

    def add_episode(self, score: float) -> None:
        """Count an episode that ended with ``score``."""
        self.episodes += 1
        self.recent_scores.append(score)
        self.best_score = score if self.best_score is None else max(self.best_score, score)

    @property
    def mean_recent_score(self) -> float | None:
        """Mean score of the last 20 episodes, or of fewer while there are no more; None before the first."""
        return sum(self.recent_scores) / len(self.recent_scores) if self.recent_scores else None

    def state_dict(self) -> dict[str, Any]:
        """Return numbers and a list of numbers, fit for JSON."""
        return {**vars(self), "recent_scores": list(self.recent_scores)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Tally:
        """Return the tally that :meth:`state_dict` described."""
        return cls(**{**state, "recent_scores": deque(state["recent_scores"], maxlen=NUM_RECENT)})
