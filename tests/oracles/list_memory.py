"""A replay memory that keeps everything for ever in plain lists: obviously right, hopelessly large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Step:
    """One step by reference: which episode, and where in it; ``sequence`` are all steps of that."""

    episode: list[np.ndarray]
    sequence: list[Step]
    start: int
    action: int | np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    extras: dict[str, np.ndarray]
    env_id: int


class ListMemory:
    """The oracle of ``ReplayMemory``: every episode is a list of frames, every transition points into one."""

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        stack: int,
        discount: float,
        stack_padding: str = "first_frame",
        n_step: int = 1,
    ) -> None:
        self.capacity, self.stack, self.discount, self.stack_padding = capacity, stack, discount, stack_padding
        self.n_step = n_step
        self.current: list[list[np.ndarray] | None] = [None] * num_envs
        self.sequences: list[list[Step]] = [[] for _ in range(num_envs)]
        self.is_open = [False] * num_envs
        self.steps: list[Step] = []

    @property
    def held(self) -> list[int]:
        return [index for index in self.kept if not self.is_pending(index)]

    @property
    def kept(self) -> range:
        return range(max(0, len(self.steps) - self.capacity), len(self.steps))

    def is_pending(self, index: int) -> bool:
        """Whether steps that belong to this transition may still come."""
        going_on = [sequence for sequence, is_open in zip(self.sequences, self.is_open, strict=True) if is_open]
        is_over = not any(self.steps[index].sequence is sequence for sequence in going_on)
        return not is_over and len(self.steps_of(index)) < self.n_step

    def steps_of(self, index: int) -> list[Step]:
        """The steps whose rewards the transition's return has."""
        step = self.steps[index]
        return step.sequence[step.start : step.start + self.n_step]

    def begin(self, frames: np.ndarray, env_ids: list[int]) -> None:
        for env_id, frame in zip(env_ids, frames, strict=True):
            self.current[env_id], self.sequences[env_id] = [frame.copy()], []
            self.is_open[env_id] = True

    def append(self, actions, rewards, terminated, truncated, frames, env_ids: list[int], extras=None) -> None:
        for row, env_id in enumerate(env_ids):
            episode = self.current[env_id]
            assert episode is not None
            ended, cut = bool(terminated[row]), bool(truncated[row])
            action = np.array(actions[row]) if np.ndim(actions[row]) else int(actions[row])
            sequence = self.sequences[env_id]
            extra = {name: np.array(values[row]) for name, values in (extras or {}).items()}
            self.steps.append(
                Step(episode, sequence, len(sequence), action, float(rewards[row]), ended, cut, extra, env_id)
            )
            sequence.append(self.steps[-1])
            episode.append(frames[row].copy())
            self.is_open[env_id] = not (ended or cut)

    def stacked(self, episode: list[np.ndarray], last: int) -> np.ndarray:
        before = np.zeros_like(episode[0]) if self.stack_padding == "zeros" else episode[0]
        wanted = range(last - self.stack + 1, last + 1)
        return np.stack([episode[place] if place >= 0 else before for place in wanted])

    def observation(self, env_id: int) -> np.ndarray | None:
        episode = self.current[env_id]
        return None if episode is None else self.stacked(episode, len(episode) - 1)

    def observation_of(self, index: int) -> np.ndarray:
        return self.stacked(self.steps[index].episode, self.steps[index].start)

    def next_observation_of(self, index: int) -> np.ndarray:
        return self.stacked(self.steps[index].episode, self.steps[index].start + len(self.steps_of(index)))

    def reward_of(self, index: int) -> np.float32:
        rewards = [float(np.float32(step.reward)) for step in self.steps_of(index)]
        return np.float32(sum(self.discount**power * reward for power, reward in enumerate(rewards)))

    def discount_of(self, index: int) -> np.float32:
        steps = self.steps_of(index)
        return np.float32(0.0 if steps[-1].terminated else self.discount ** len(steps))
