"""A replay memory that keeps everything for ever in plain lists: obviously right, hopelessly large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Step:
    """One transition by reference: which episode, and where in it."""

    episode: list[np.ndarray]
    start: int
    action: int | np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    columns: dict[str, np.ndarray]


class ListMemory:
    """The oracle of ``ReplayMemory``: every episode is a list of frames, every transition points into one."""

    def __init__(
        self, capacity: int, num_streams: int, stack: int, discount: float, stack_padding: str = "first_frame"
    ) -> None:
        self.capacity, self.stack, self.discount, self.stack_padding = capacity, stack, discount, stack_padding
        self.current: list[list[np.ndarray] | None] = [None] * num_streams
        self.is_open = [False] * num_streams
        self.steps: list[Step] = []

    @property
    def held(self) -> range:
        return range(max(0, len(self.steps) - self.capacity), len(self.steps))

    def begin(self, frames: np.ndarray, streams: list[int]) -> None:
        for stream, frame in zip(streams, frames, strict=True):
            self.current[stream] = [frame.copy()]
            self.is_open[stream] = True

    def append(self, actions, rewards, terminated, truncated, frames, streams: list[int], columns=None) -> None:
        for row, stream in enumerate(streams):
            episode = self.current[stream]
            assert episode is not None
            ended, cut = bool(terminated[row]), bool(truncated[row])
            action = np.array(actions[row]) if np.ndim(actions[row]) else int(actions[row])
            extra = {name: np.array(values[row]) for name, values in (columns or {}).items()}
            self.steps.append(Step(episode, len(episode) - 1, action, float(rewards[row]), ended, cut, extra))
            episode.append(frames[row].copy())
            self.is_open[stream] = not (ended or cut)

    def stacked(self, episode: list[np.ndarray], last: int) -> np.ndarray:
        before = np.zeros_like(episode[0]) if self.stack_padding == "zeros" else episode[0]
        wanted = range(last - self.stack + 1, last + 1)
        return np.stack([episode[place] if place >= 0 else before for place in wanted])

    def observation(self, stream: int) -> np.ndarray | None:
        episode = self.current[stream]
        return None if episode is None else self.stacked(episode, len(episode) - 1)

    def observation_of(self, index: int) -> np.ndarray:
        return self.stacked(self.steps[index].episode, self.steps[index].start)

    def next_observation_of(self, index: int) -> np.ndarray:
        return self.stacked(self.steps[index].episode, self.steps[index].start + 1)

    def discount_of(self, index: int) -> np.float32:
        return np.float32(0.0 if self.steps[index].terminated else self.discount)
