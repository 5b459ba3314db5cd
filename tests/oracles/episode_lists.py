"""Played episodes in plain lists: the expected content of exports and imports."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from framestow.replay.memory import ReplayMemory


@dataclass
class PlainEpisode:
    """``frames`` has one entry more than there are steps; ``indices`` are the memory's transition indices."""

    env_id: int
    frames: list[np.ndarray]
    indices: list[int] = field(default_factory=list)
    actions: list = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)


class RecordedPlay:
    """Appends to a memory and records everything."""

    def __init__(self, memory: ReplayMemory) -> None:
        self.memory, self.num_steps = memory, 0
        self.episodes: list[list[PlainEpisode]] = [[] for _ in range(memory.num_envs)]
        self.num_envs, self.stack = memory.num_envs, memory.stack

    def begin(self, frames, env_ids=None) -> None:
        self.memory.begin(frames, env_ids)
        for frame, env_id in zip(np.asarray(frames), self._listed(env_ids), strict=True):
            self.episodes[env_id].append(PlainEpisode(env_id, [frame.copy()]))

    def append(self, actions, rewards, terminated, truncated, frames, env_ids=None) -> None:
        self.memory.append(actions, rewards, terminated, truncated, frames, env_ids)
        for row, env_id in enumerate(self._listed(env_ids)):
            episode = self.episodes[env_id][-1]
            episode.indices.append(self.num_steps)
            episode.actions.append(np.array(actions[row]))
            episode.rewards.append(float(np.float32(rewards[row])))
            episode.terminated.append(bool(terminated[row]))
            episode.truncated.append(bool(truncated[row]))
            episode.frames.append(np.array(frames[row]))
            self.num_steps += 1

    def observations(self):
        return self.memory.observations()

    def held(self) -> list[tuple[PlainEpisode, int]]:
        """Return the episodes with stored steps, environment by environment, and the first stored step of each."""
        oldest = max(0, self.num_steps - self.memory.capacity)
        found = []
        for episodes in self.episodes:
            for episode in episodes:
                first = sum(index < oldest for index in episode.indices)
                if first < len(episode.indices):
                    found.append((episode, first))
        return found

    def _listed(self, env_ids) -> list[int]:
        return list(range(self.num_envs)) if env_ids is None else np.asarray(env_ids).tolist()
