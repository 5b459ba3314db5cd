"""The events of the training loop, and the protocol of the listeners that receive them."""

from __future__ import annotations

import dataclasses
from typing import Protocol


@dataclasses.dataclass(frozen=True)
class Learned:
    """The agent made an update."""

    num_updates: int
    loss: float
    mean_value: float  # of the actions in the batch


@dataclasses.dataclass(frozen=True)
class EpisodeEnded:
    """A game ended."""

    episode: int  # counted from 1 over the run
    agent_steps: int  # of the run, all environments together
    env_id: int
    score: float  # sum of unclipped rewards
    length: int  # agent steps


@dataclasses.dataclass(frozen=True)
class EpisodesLost:
    """Episodes were lost, for example with a worker process. The memory closed them; the run continues."""

    agent_steps: int  # of the run, all environments together
    env_ids: tuple[int, ...]
    reason: str  # for example how the worker process ended


@dataclasses.dataclass(frozen=True)
class StepTaken:
    """Every environment made a step and the memory stored it. The run can be saved until the next step."""

    agent_steps: int


Event = Learned | EpisodeEnded | EpisodesLost | StepTaken


class Listener(Protocol):
    """An observer of a run. It receives every event in order and must not change the run."""

    def take(self, event: Event) -> None:
        """Handle ``event``. An exception raised here ends the run."""

    def close(self) -> None:
        """Close open files; by default there are none. Called once, also after an error."""
        return
