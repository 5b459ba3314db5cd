"""A replay memory that keeps everything for ever in plain lists: obviously right, hopelessly large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Step:
    """One step by reference: the stretch of frames that its observation is in, and the steps of its episode.

    A stretch begins with each episode, and with the next observation of a border. ``start`` and ``end`` are the indices
    of the newest frames of both observations in their stretches, ``offset`` that of the step in its ``sequence``.
    """

    stretch: list[np.ndarray]
    start: int
    next_stretch: list[np.ndarray]
    end: int
    sequence: list[Step]
    offset: int
    action: int | np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    extras: dict[str, np.ndarray]
    env_id: int
    is_forgotten: bool = False


class ListMemory:
    """The oracle of ``ReplayMemory``: every stretch is a list of frames, every transition points into two."""

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
        self.num_cleared = 0

    @property
    def held(self) -> list[int]:
        return [index for index in self.kept if not self.is_pending(index) and not self.has_forgotten(index)]

    @property
    def kept(self) -> range:
        return range(max(self.num_cleared, len(self.steps) - self.capacity), len(self.steps))

    def is_pending(self, index: int) -> bool:
        """Whether steps that belong to this transition may still come."""
        going_on = [sequence for sequence, is_open in zip(self.sequences, self.is_open, strict=True) if is_open]
        is_over = not any(self.steps[index].sequence is sequence for sequence in going_on)
        return not is_over and len(self.steps_of(index)) < self.n_step

    def has_forgotten(self, index: int) -> bool:
        """Whether the transition's return has the reward of a step that was forgotten."""
        return any(step.is_forgotten for step in self.steps_of(index))

    def forget(self, indices: list[int]) -> None:
        for index in indices:
            self.steps[index].is_forgotten = True

    def clear(self) -> None:
        self.is_open = [False] * len(self.is_open)
        self.num_cleared = len(self.steps)

    def steps_of(self, index: int) -> list[Step]:
        """The steps whose rewards the transition's return has."""
        step = self.steps[index]
        return step.sequence[step.offset : step.offset + self.n_step]

    def begin(self, frames: np.ndarray, env_ids: list[int]) -> None:
        for env_id, frame in zip(env_ids, frames, strict=True):
            self.current[env_id], self.sequences[env_id] = [frame.copy()], []
            self.is_open[env_id] = True

    def append(
        self, actions, rewards, terminated, truncated, frames, env_ids: list[int], extras=None, borders=None
    ) -> None:
        for row, env_id in enumerate(env_ids):
            stretch = self.current[env_id]
            assert stretch is not None
            next_stretch = [] if borders is not None and borders[row] else stretch
            indices = stretch, len(stretch) - 1, next_stretch, len(next_stretch)
            ended, cut = bool(terminated[row]), bool(truncated[row])
            action = np.array(actions[row]) if np.ndim(actions[row]) else int(actions[row])
            sequence = self.sequences[env_id]
            extra = {name: np.array(values[row]) for name, values in (extras or {}).items()}
            self.steps.append(
                Step(*indices, sequence, len(sequence), action, float(rewards[row]), ended, cut, extra, env_id)
            )
            sequence.append(self.steps[-1])
            next_stretch.append(frames[row].copy())
            self.current[env_id] = next_stretch
            self.is_open[env_id] = not (ended or cut)

    def set_fields(self, indices: list[int], rewards: np.ndarray, extras: dict[str, np.ndarray]) -> None:
        for row, index in enumerate(indices):
            self.steps[index].reward = float(rewards[row])
            self.steps[index].extras |= {name: values[row] for name, values in extras.items()}

    def stacked(self, stretch: list[np.ndarray], last: int) -> np.ndarray:
        before = np.zeros_like(stretch[0]) if self.stack_padding == "zeros" else stretch[0]
        wanted = range(last - self.stack + 1, last + 1)
        return np.stack([stretch[offset] if offset >= 0 else before for offset in wanted])

    def observation(self, env_id: int) -> np.ndarray | None:
        stretch = self.current[env_id]
        return None if stretch is None else self.stacked(stretch, len(stretch) - 1)

    def observation_of(self, index: int) -> np.ndarray:
        return self.stacked(self.steps[index].stretch, self.steps[index].start)

    def next_observation_of(self, index: int) -> np.ndarray:
        last = self.steps_of(index)[-1]
        return self.stacked(last.next_stretch, last.end)

    def reward_of(self, index: int) -> np.float32:
        rewards = [float(np.float32(step.reward)) for step in self.steps_of(index)]
        return np.float32(sum(self.discount**power * reward for power, reward in enumerate(rewards)))

    def discount_of(self, index: int) -> np.float32:
        steps = self.steps_of(index)
        return np.float32(0.0 if steps[-1].terminated else self.discount ** len(steps))
