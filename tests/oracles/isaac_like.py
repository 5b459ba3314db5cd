"""A vector environment in the form of Isaac Lab's: torch tensors, SAME_STEP, and no last frame of an episode.

It logs what really happened, frames that it does not show included, and compares the rows of a memory with that.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from framestow import ReplayMemory
from oracles.numbered_frames import NUM_ACTIONS, SHAPE

STACK, DISCOUNT = 3, 0.5


def frame_of(env_id: int, number: int, step: int) -> np.ndarray:
    """The frame after ``step`` steps of an environment's episode."""
    return np.array([[env_id, number % 256, step], [number // 256, step, 9]], np.uint8)


class Episode:
    """What happened in one episode: ``frames`` has one more than ``rewards``."""

    def __init__(self, first: np.ndarray) -> None:
        self.frames, self.actions, self.rewards = [first], [], []
        self.end = ""

    def __len__(self) -> int:
        return len(self.rewards)


class IsaacLikeEnv(gymnasium.Env):
    """Episodes of 1 to 9 steps; ends at random by ``terminated``, ``truncated`` or both.

    ``reports``: how the last frames are given: not at all, as Isaac Lab does with ``compute_final_obs``, or as
    ManiSkill does, in ``final_observation`` of all environments with a mask.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 -- as theirs

    def __init__(self, num_envs: int, seed: int = 0, reports: str = "nothing") -> None:
        self.num_envs, self.reports = num_envs, reports
        self.single_observation_space, self.single_action_space = Box(0, 255, SHAPE, np.uint8), Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.cfg = SimpleNamespace(compute_final_obs=reports == "final_obs")
        self.generator = np.random.default_rng(seed)
        self.episodes: list[list[Episode]] = [[] for _ in range(num_envs)]

    def reset(self, *, seed=None, options=None):
        for env_id in range(self.num_envs):
            self.begin(env_id)
        return self.shown(), {}

    def begin(self, env_id: int) -> None:
        number = len(self.episodes[env_id])
        self.episodes[env_id].append(Episode(frame_of(env_id, number, 0)))

    def step(self, actions: Any):
        ends, infos = [], {"log": {"mean": 0.5}}
        for env_id, action in enumerate(torch.as_tensor(actions).tolist()):
            episode = self.episodes[env_id][-1]
            episode.actions.append(action)
            episode.rewards.append(float(self.generator.integers(-3, 4)))
            episode.frames.append(frame_of(env_id, len(self.episodes[env_id]) - 1, len(episode)))
            chances = [1.0, 0.0, 0.0, 0.0] if len(episode) < 1 else [0.8, 0.1, 0.07, 0.03]
            episode.end = str(self.generator.choice(["", "terminated", "truncated", "both"], p=chances))
            ends.append(episode.end)
        rewards = torch.tensor([episodes[-1].rewards[-1] for episodes in self.episodes])
        terminated = torch.tensor([end in ("terminated", "both") for end in ends])
        truncated = torch.tensor([end in ("truncated", "both") for end in ends])
        if any(ends) and self.reports != "nothing":
            infos[self.reports] = self.shown()
            if self.reports == "final_observation":
                infos |= {"_final_observation": terminated | truncated, "_final_info": terminated | truncated}
                infos["final_info"] = {"episode": {"return": torch.zeros(self.num_envs)}}
        for env_id in np.flatnonzero(ends):
            self.begin(int(env_id))
        return self.shown(), rewards, terminated, truncated, infos

    def shown(self) -> torch.Tensor:
        return torch.from_numpy(np.stack([episodes[-1].frames[-1] for episodes in self.episodes]))


def stack_at(episode: Episode, step: int, stack: int) -> np.ndarray:
    """The observation before ``step``, padded with the first frame."""
    return np.stack([episode.frames[max(step - back, 0)] for back in reversed(range(stack))])


def memory_of(env, **settings) -> ReplayMemory:
    return ReplayMemory(
        settings.pop("capacity", 20_000),
        env.single_observation_space,
        env.single_action_space,
        stack=STACK,
        num_envs=env.num_envs,
        discount=DISCOUNT,
        seed=0,
        **settings,
    )


def num_stored(episode: Episode, has_last_frames: bool = False) -> int:
    """Steps of an episode that a memory has: all but a truncated last one without a last frame."""
    return len(episode) - (episode.end == "truncated" and not has_last_frames)


def assert_rows_are_right(memory: ReplayMemory, env: IsaacLikeEnv, has_last_frames: bool = False) -> int:
    """Compare every transition with what happened; return how many there are."""
    num_rows = 0
    for batch in memory.batches(500):
        for row in range(len(batch)):
            (env_id, low, step), (high, *_) = batch.observation[row, -1].tolist()
            number = low + 256 * high
            episode = env.episodes[env_id][number]
            count = min(memory.n_step, num_stored(episode, has_last_frames) - step)
            rewards = episode.rewards[step : step + count]
            is_terminal = episode.end in ("terminated", "both") and step + count == len(episode)
            assert count >= 1
            assert np.array_equal(stack_at(episode, step, STACK), batch.observation[row])
            assert batch.action[row] == episode.actions[step]
            assert batch.reward[row] == sum(reward * DISCOUNT**n for n, reward in enumerate(rewards))
            assert batch.discount[row] == (0 if is_terminal else DISCOUNT**count)
            assert batch.terminated[row] == is_terminal
            if has_last_frames or not is_terminal:
                assert np.array_equal(stack_at(episode, step + count, STACK), batch.next_observation[row])
            else:  # the newest frame of the last observation, once more
                assert np.array_equal(episode.frames[step + count - 1], batch.next_observation[row, -1])
            num_rows += 1
    return num_rows
