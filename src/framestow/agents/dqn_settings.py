"""The settings of a DQN agent; apart from the agent, so that a command line can read them without PyTorch."""

from __future__ import annotations

import dataclasses

from framestow.agents.exploration import LinearSchedule


@dataclasses.dataclass(frozen=True)
class DQNSettings:
    """What a DQN agent must be told; the trainer's settings hold the defaults and their sources."""

    learning_rate: float
    adam_epsilon: float
    target_every: int  # updates between two copies of the online network to the target network
    double: bool  # Double DQN's target instead of the plain maximum
    clip_rewards: bool  # rewards of a batch to [-1, 1]
    exploration: LinearSchedule
