"""The vector environments of OpenAI Baselines, re-implemented plainly for environments of Gymnasium."""

from __future__ import annotations

import math

import numpy as np
from gymnasium import spaces


class PlainVecEnv:
    """Steps environments one by one; subclasses say how the observations and rewards of all become arrays."""

    def __init__(self, env_fns):
        self.envs = [make() for make in env_fns]
        self.num_envs = len(self.envs)
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space
        self.spec = self.envs[0].spec

    def reset(self):
        self.last = [env.reset(seed=None)[0] for env in self.envs]
        return self.batched(self.last)

    def step(self, actions):
        rewards, dones, infos = [], [], []
        for number, env in enumerate(self.envs):
            observation, reward, terminated, truncated, info = env.step(actions[number])
            if terminated or truncated:
                observation, _ = env.reset()
            self.last[number] = observation
            rewards.append(reward)
            dones.append(terminated or truncated)
            infos.append(info)
        return self.batched(self.last), self.rewards(rewards), np.array(dones), infos

    def render(self):
        """All pictures in rows: as many as the root of their number, rounded up."""
        pictures = [env.render() for env in self.envs]
        rows = math.ceil(math.sqrt(len(pictures)))
        columns = math.ceil(len(pictures) / rows)
        pictures += [np.zeros_like(pictures[0])] * (rows * columns - len(pictures))
        return np.vstack([np.hstack(pictures[row * columns : (row + 1) * columns]) for row in range(rows)])


class PlainDummyVecEnv(PlainVecEnv):
    """Arrays have the dtypes of the space, and rewards are ``float32``; parts of a Tuple are a dict by number."""

    def batched(self, observations):
        def stacked(space, parts):
            array = np.zeros((len(parts), *space.shape), space.dtype)
            for number, part in enumerate(parts):
                array[number] = part
            return array

        space = self.observation_space
        if isinstance(space, spaces.Dict):
            return {key: stacked(part, [each[key] for each in observations]) for key, part in space.items()}
        if isinstance(space, spaces.Tuple):
            return {n: stacked(part, [each[n] for each in observations]) for n, part in enumerate(space)}
        return stacked(space, observations)

    def rewards(self, rewards):
        return np.array(rewards, np.float32).reshape(len(rewards))


class PlainSubprocVecEnv(PlainVecEnv):
    """Arrays are the stacked values of the environments; infos are a tuple."""

    def batched(self, observations):
        space = self.observation_space
        if isinstance(space, spaces.Dict):
            return {key: np.stack([each[key] for each in observations]) for key in space}
        return np.stack(observations)

    def rewards(self, rewards):
        return np.stack(rewards)

    def step(self, actions):
        *others, infos = super().step(actions)
        return *others, tuple(infos)
