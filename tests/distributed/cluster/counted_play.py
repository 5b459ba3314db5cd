"""Environments whose frames say which step they belong to, and a file that knows how many steps were played.

The file survives ``kill -9`` of the actor, so steps that were played and not stored can be counted. A frame has the
number of its environment, of the episode, of the step within it, and of the step over all restarts.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from framestow import Batch, FrameSpec, Prioritized
from framestow.distributed import PolicyStep, ShardedReplay

SHAPE, STACK, EPISODE = (4, 8), 3, 37
ACTORS, ENVS, SHARDS, LENGTH = 2, 2, 2, 16  # ENVS: of each actor; LENGTH: frames of a chunk
STEP_S = 0.004  # that an environment takes for a step

_NUMBERS = struct.Struct("<4q")  # environment, episode, step of the episode, step of the environment


class CountedEnv(gymnasium.Env):
    observation_space, action_space = Box(0, 255, SHAPE, np.uint8), Discrete(4)

    def __init__(self, env_id: int, folder: Path) -> None:
        self._env_id, self._path = env_id, folder / f"steps-{env_id}"
        if not self._path.exists():
            self._path.write_bytes(bytes(8))
        self._file = os.open(self._path, os.O_RDWR)
        self._episode, self._step = time.time_ns(), 0

    def reset(self, *, seed=None, options=None):
        self._episode, self._step = time.time_ns(), 0
        return self._frame(self._played()), {}

    def step(self, action):
        time.sleep(STEP_S)
        self._step += 1
        played = self._played() + 1
        frame = self._frame(played)
        os.pwrite(self._file, played.to_bytes(8, "little"), 0)
        return frame, float(played), self._step == EPISODE, False, {}

    def _played(self) -> int:
        return int.from_bytes(os.pread(self._file, 8, 0), "little")

    def _frame(self, played: int) -> np.ndarray:
        return np.frombuffer(_NUMBERS.pack(self._env_id, self._episode, self._step, played), np.uint8).reshape(SHAPE)


def counted_replay(**settings) -> ShardedReplay:
    """Return a replay of the environments of all actors."""
    common = {"shards": SHARDS, "num_envs": ACTORS * ENVS, "stack": STACK, "frames_per_segment": LENGTH, "seed": 0}
    return ShardedReplay(200_000, FrameSpec(SHAPE), 4, sampler=Prioritized(), **common, **settings)


class MakeCounted:
    """Makes the environments of an actor; sent to the cluster."""

    def __init__(self, folder: Path, envs_per_actor: int) -> None:
        self._folder, self._num = folder, envs_per_actor

    def __call__(self, number: int, seed: int):
        first = number * self._num
        makes = [lambda k=k: CountedEnv(first + k, self._folder) for k in range(self._num)]
        return SyncVectorEnv(makes, autoreset_mode=AutoresetMode.NEXT_STEP)


class AnyPolicy:
    def __init__(self, number: int, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def load(self, weights) -> None:
        del weights

    def act(self, observations) -> PolicyStep:
        values = np.ones(len(observations), np.float32)
        return PolicyStep(self._generator.integers(0, 4, len(observations)), values, values)


def steps_played(folder: Path, num_envs: int) -> np.ndarray:
    """Return how many steps each environment has played."""
    files = [folder / f"steps-{env_id}" for env_id in range(num_envs)]
    return np.array([int.from_bytes(file.read_bytes(), "little") if file.exists() else 0 for file in files])


def check_batch(batch: Batch) -> None:
    """Raise unless every stack is one that the policy saw, and every transition one that was played."""
    before, after = _numbers(batch.observation), _numbers(batch.next_observation)
    for stack in (before, after):
        assert (stack[:, :, 0] == stack[:, :1, 0]).all(), "a stack has frames of two environments"
        assert (stack[:, :, 1] == stack[:, :1, 1]).all(), "a stack has frames of two episodes"
        steps = stack[:, :, 2]
        expected = np.maximum(steps[:, -1:] - np.arange(STACK - 1, -1, -1), 0)
        assert (steps == expected).all(), f"a stack was never seen: {steps[(steps != expected).any(axis=1)][0]}"
    assert (after[:, -1, 1:3] - before[:, -1, 1:3] == (0, 1)).all(), "a transition is not one step"
    assert (batch.reward == after[:, -1, 3]).all(), "a reward belongs to another step"
    assert (batch.terminated == (after[:, -1, 2] == EPISODE)).all(), "an episode ended elsewhere"


def _numbers(stacks: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(stacks).reshape(*stacks.shape[:2], 32).view(np.int64)


def env_and_step(batch: Batch) -> list[tuple[int, int]]:
    """Return environment and number of the step of each row."""
    numbers = _numbers(batch.next_observation)[:, -1]
    return list(zip(numbers[:, 0].tolist(), numbers[:, 3].tolist(), strict=True))
