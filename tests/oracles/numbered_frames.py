"""Environments whose frames say (environment, episode, step), whose reward is the action, and a memory of lists."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

SHAPE = (2, 3)
NUM_ACTIONS = 5
ENDINGS = {"terminated": (True, False), "truncated": (False, True), "both": (True, True)}


def frame_of(env_id: int, episode: int, step: int) -> np.ndarray:
    """The frame that environment ``env_id`` shows after ``step`` steps of its ``episode``."""
    return np.array([[env_id, episode, step], [env_id + 10, episode + 10, step + 10]], np.uint8)


class NumberedEnv(gymnasium.Env):
    """Plays episodes of given lengths and endings, in turn for ever."""

    def __init__(self, env_id=0, lengths=(3,), endings=("terminated",), *, reuses_its_array=False, raises_at=None):
        self.observation_space = Box(0, 255, SHAPE, np.uint8)
        self.action_space = Discrete(NUM_ACTIONS)
        self.env_id, self.lengths, self.endings, self.raises_at = env_id, lengths, endings, raises_at
        self.episode, self.step_number, self.is_over = -1, 0, True
        self.num_steps, self.seeds, self.actions, self.num_closes = 0, [], [], 0
        self.array = np.zeros(SHAPE, np.uint8) if reuses_its_array else None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.options = options
        self.episode, self.step_number, self.is_over = self.episode + 1, 0, False
        return self.shown(), {"began": self.episode}

    def step(self, action):
        assert not self.is_over, "stepped after its end"
        self.actions.append(int(action))
        self.num_steps += 1
        if self.num_steps == self.raises_at:
            raise KeyError("the wire is cut")
        self.step_number += 1
        terminated = truncated = False
        if self.step_number == self.lengths[self.episode % len(self.lengths)]:
            terminated, truncated = ENDINGS[self.endings[self.episode % len(self.endings)]]
            self.is_over = True
        return self.shown(), float(action), terminated, truncated, {"step": self.step_number}

    def shown(self) -> np.ndarray:
        frame = frame_of(self.env_id, self.episode, self.step_number)
        if self.array is None:
            return frame
        self.array[:] = frame
        return self.array

    def state(self) -> dict[str, Any]:
        return {"episode": self.episode, "step_number": self.step_number, "is_over": self.is_over}

    def restore(self, state: dict[str, Any]) -> None:
        self.episode, self.step_number, self.is_over = state["episode"], state["step_number"], state["is_over"]

    def close(self):
        self.num_closes += 1


class ListSink:
    """A memory for `Recorder` that keeps everything in lists, each environment's in its own."""

    def __init__(self, num_envs: int, stack: int = 4, shape=SHAPE) -> None:
        self.num_envs, self.stack, self.shape = num_envs, stack, shape
        self.log: list[list[tuple]] = [[] for _ in range(num_envs)]
        self.episodes: list[list[np.ndarray]] = [[] for _ in range(num_envs)]

    def begin(self, frames, env_ids=None) -> None:
        for row, env_id in enumerate(self.env_ids(env_ids, frames)):
            self.log[env_id].append(("begin", frames[row].tobytes()))
            self.episodes[env_id] = [frames[row].copy()]

    def append(self, actions, rewards, terminated, truncated, frames, env_ids=None) -> None:
        env_ids = self.env_ids(env_ids, frames)
        assert len(actions) == len(rewards) == len(terminated) == len(truncated) == len(env_ids)
        for row, env_id in enumerate(env_ids):
            assert not self.has_ended(env_id), "appended after the episode's end"
            flags = (bool(terminated[row]), bool(truncated[row]))
            step = ("step", int(actions[row]), float(rewards[row]), *flags, frames[row].tobytes())
            self.log[env_id].append(step)
            self.episodes[env_id].append(frames[row].copy())

    def observations(self) -> np.ndarray:
        return np.stack([self.stacked(env_id) for env_id in range(self.num_envs)])

    def stacked(self, env_id: int) -> np.ndarray:
        frames = self.episodes[env_id] or [np.zeros(self.shape, np.uint8)]
        return np.stack([frames[max(0, len(frames) - 1 - back)] for back in range(self.stack - 1, -1, -1)])

    def env_ids(self, env_ids, frames) -> list[int]:
        chosen = list(range(self.num_envs)) if env_ids is None else [int(env_id) for env_id in env_ids]
        assert len(chosen) == len(frames)
        return chosen

    def has_ended(self, env_id: int) -> bool:
        last = self.log[env_id][-1]
        return last[0] == "step" and (last[3] or last[4])

    def num_steps(self, env_id: int) -> int:
        return sum(entry[0] == "step" for entry in self.log[env_id])
