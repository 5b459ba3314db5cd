"""Vector environment that loses episodes and reuses its arrays, on demand.

It shares no code with framestow's vector environments.
"""

from __future__ import annotations

from collections.abc import Iterable

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from oracles.numbered_frames import SHAPE, NumberedEnv

WHY_LOST = "the wire was cut"


class ToyVector(VectorEnv):
    """Step ``envs``; ``losses`` has pairs of an environment and the number of its step that loses the episode.

    Without ``copies_observations`` the results are in two arrays that are overwritten in turn.
    """

    def __init__(
        self,
        envs: list[gymnasium.Env],
        mode: AutoresetMode,
        losses: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.envs, self.mode, self.losses = envs, mode, set(losses)
        self.num_envs = len(envs)
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = envs[0].observation_space, envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.copies_observations = True
        self.arrays = np.full((2, self.num_envs, *SHAPE), 99, np.uint8)
        self.num_answers = 0
        self.has_ended = [False] * self.num_envs
        self.num_calls = [0] * self.num_envs
        self.last_frames: list[np.ndarray] = [np.zeros(SHAPE, np.uint8)] * self.num_envs

    def reset(self, *, seed=None, options=None):
        mask = np.ones(self.num_envs, bool) if not options else options["reset_mask"]
        for number in np.flatnonzero(mask):
            self.last_frames[number], self.has_ended[number] = self.envs[number].reset()[0], False
        return self.observations(range(self.num_envs)), {}

    def step(self, actions):
        return self.results([self.step_one(number, action) for number, action in enumerate(actions)])

    def step_one(self, number, action):
        env, was_over, info = self.envs[number], self.has_ended[number], {}
        self.num_calls[number] += 1
        is_lost = (number, self.num_calls[number]) in self.losses
        reward, terminated, truncated = 0.0, False, False
        if self.mode is AutoresetMode.NEXT_STEP and was_over:
            frame = env.reset()[0]
        elif is_lost:
            frame, truncated, info = self.last_frames[number], True, {"episode_lost": WHY_LOST}
            env.is_over = True
        else:
            frame, reward, terminated, truncated, _ = env.step(action)
        if self.mode is AutoresetMode.SAME_STEP and (terminated or truncated):
            info |= {"final_obs": frame, "final_info": {}}
            frame = env.reset()[0]
        self.has_ended[number] = (terminated or truncated) and self.mode is not AutoresetMode.SAME_STEP
        self.last_frames[number] = frame
        return reward, terminated, truncated, info

    def results(self, rows, numbers=None):
        batch, infos = VectorEnv(), {}
        batch.num_envs = len(rows)
        for row, (*_, info) in enumerate(rows):
            infos = batch._add_info(infos, info, row)
        rewards, terminated, truncated = (np.array(column) for column in list(zip(*rows, strict=True))[:3])
        return (
            self.observations(range(self.num_envs) if numbers is None else numbers),
            rewards,
            terminated,
            truncated,
            infos,
        )

    def observations(self, numbers):
        array = self.arrays[self.num_answers % 2]
        self.num_answers += 1
        array[:] = 255
        array[: len(numbers)] = [self.last_frames[number] for number in numbers]
        return array[: len(numbers)].copy() if self.copies_observations else array[: len(numbers)]


def numbered_envs(lengths, endings) -> list[NumberedEnv]:
    return [NumberedEnv(env_id, *each) for env_id, each in enumerate(zip(lengths, endings, strict=True))]
