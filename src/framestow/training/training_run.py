"""What a training run is to the command line, the loop, the listeners and the checkpoints: ``TrainingRun``, its events.

``Run`` trains in one process (``framestow.training.run``), ``DistributedRun`` on a cluster.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gymnasium.vector import VectorEnv

from framestow.agents.dqn import DQN
from framestow.envs import FinishedGame
from framestow.replay.reading.read_calls import ReadCalls
from framestow.training.settings import Settings

NUM_RECENT = 20  # games in the mean score
MOST_COUNT = 2**53  # of steps and games

MakeEnv = Callable[[Settings], "VectorEnv[Any, Any, Any]"]
"""Returns ``settings.num_envs`` environments, whose seed is ``settings.seed``."""


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


class RunMemory(ReadCalls, Protocol):
    """The memory of a run, for learner, reports and checkpoints: a ``ReplayMemory`` or a ``ShardedReplay``."""

    def save(self, path: Path, *, keep_previous: bool = False) -> int:
        """Save to a folder; return the generation."""

    def prune(self, path: Path, generation: int) -> None:
        """Remove the generations before ``generation``."""


class TrainingRun(Protocol):
    """Environments, memory, agent and counts of one training run, wherever they are."""

    @property
    def settings(self) -> Settings:
        """The settings of the run."""

    @property
    def device(self) -> str:
        """Where the agent learns: cpu, cuda or mps."""

    @property
    def agent(self) -> DQN:
        """The agent that learns."""

    @property
    def memory(self) -> RunMemory:
        """The memory that the agent learns from."""

    @property
    def tally(self) -> Tally:
        """Steps, games and scores so far."""

    def events(self) -> Iterator[Event]:
        """Train up to ``settings.steps`` agent steps and yield the events; the run can be saved after a StepTaken."""

    def describe_players(self) -> str:
        """Return which environments play, for the first line of the command."""

    def other_processes(self) -> dict[str, str]:
        """Return what the display of the progress says about other processes, by name."""

    def dormant_units(self) -> list[float]:
        """Return the share of dormant units of each layer; nothing where no observations are at hand."""

    def save(self, checkpoints: Path) -> Path:
        """Write a checkpoint and return its path. Call it after a ``StepTaken``, or after the last event.

        Raises:
            CheckpointError: the checkpoint could not be written; the last one stays.
        """

    def close(self) -> None:
        """End the environments and all processes of the run."""


@dataclasses.dataclass
class Tally:
    """Steps, games and scores of a run since its first step, including all resumed parts."""

    agent_steps: int = 0  # of all environments together
    episodes: int = 0
    best_score: float | None = None  # unclipped; None before the first game
    # Of the last games.
    recent_scores: deque[float] = dataclasses.field(default_factory=lambda: deque(maxlen=NUM_RECENT))

    def count_games(self, games: Sequence[FinishedGame]) -> list[EpisodeEnded]:
        """Count all finished games, then return their events. So each listener sees the complete tally."""
        first = self.episodes + 1
        self.episodes += len(games)
        for game in games:
            self.recent_scores.append(game.score)
            self.best_score = game.score if self.best_score is None else max(self.best_score, game.score)
        return [
            EpisodeEnded(number, self.agent_steps, game.env_id, game.score, game.agent_steps)
            for number, game in enumerate(games, start=first)
        ]

    def list_lost_episodes(self, lost: Mapping[int, str]) -> list[EpisodesLost]:
        """Return one event for each reason; ``lost`` has the environments whose episode was lost, each with it."""
        return [
            EpisodesLost(self.agent_steps, tuple(env_id for env_id in lost if lost[env_id] == reason), reason)
            for reason in dict.fromkeys(lost.values())
        ]

    @property
    def mean_recent_score(self) -> float | None:
        """Mean score of the last 20 games at most; ``None`` before the first."""
        return sum(self.recent_scores) / len(self.recent_scores) if self.recent_scores else None

    def state_dict(self) -> dict[str, Any]:
        """Return the tally as numbers and lists that JSON takes."""
        return {**vars(self), "recent_scores": list(self.recent_scores)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Tally:
        """Return the tally that ``state_dict`` described; raises ``TypeError`` or ``ValueError`` for another state."""
        tally = cls(**{**state, "recent_scores": deque(state["recent_scores"], maxlen=NUM_RECENT)})
        for count in (tally.agent_steps, tally.episodes):
            if type(count) is not int or not 0 <= count <= MOST_COUNT:
                raise ValueError(f"a count is {str(count)[:60]}")
        for score in (tally.best_score, *tally.recent_scores):
            if score is not None and not isinstance(score, (int, float)):
                raise ValueError(f"a score is {str(score)[:60]}")
        return tally
