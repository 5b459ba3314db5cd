"""What the loop tells those who watch it."""

from __future__ import annotations

import dataclasses
from typing import Protocol, SupportsFloat


@dataclasses.dataclass(frozen=True)
class Learned:
    """The agent made an update. The numbers may still be on their way from a device: ``float()`` waits for them."""

    num_updates: int
    loss: SupportsFloat
    mean_value: SupportsFloat


@dataclasses.dataclass(frozen=True)
class EpisodeEnded:
    """A whole game ended."""

    episode: int  # counted from 1 over the run
    agent_steps: int  # of the run, all environments together
    env_id: int
    score: float  # sum of unclipped rewards
    length: int  # agent steps


@dataclasses.dataclass(frozen=True)
class EpisodesLost:
    """Episodes were cut off where nobody saw their end; the memory closed them there and the run goes on."""

    agent_steps: int  # of the run, all environments together
    env_ids: tuple[int, ...]
    reason: str  # such as what became of the worker process


@dataclasses.dataclass(frozen=True)
class StepTaken:
    """Every environment made a step and it was recorded: the run is consistent, and may be saved, until the next."""

    agent_steps: int


Event = Learned | EpisodeEnded | EpisodesLost | StepTaken


class Listener(Protocol):
    """Watches a run: takes every event in order, and changes nothing that the loop depends on."""

    def take(self, event: Event) -> None:
        """Take notice of ``event``. An error raised here ends the run."""

    def close(self) -> None:
        """Finish what is open. Called once, also after an error."""
