"""A play in a store of several small files and two generations, and its recording in plain arrays."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from framestow.replay.store.writer import StoreWriter
from oracles.shadowed_memory import ShadowedMemory

SHAPE, STACK, NUM_ENVS, CAPACITY = (4, 5), 3, 3, 6_000
FILE_BYTES = 40_000  # so that each log has several files


class StoredPlay(NamedTuple):
    """``recorded`` has all transitions that were ever appended, from the list oracle. A reward is the step's number."""

    recorded: dict[str, np.ndarray]
    windows: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    """By generation, for its stored transitions: indices, environments, first and last positions of their frames."""
    frames_per_segment: int


def store_play(folder: Path, frame: FrameSpec | None = None, **settings) -> StoredPlay:
    """Play on three environments and commit a kept generation; play beyond the capacity and commit another."""
    memory = ShadowedMemory(CAPACITY, frame or FrameSpec(SHAPE), 5, stack=STACK, num_envs=NUM_ENVS, seed=0, **settings)
    random = np.random.default_rng(0)
    windows = {}
    with StoreWriter(folder, file_bytes=FILE_BYTES) as writer:
        writer.continue_from(None)
        for num_steps in (1_900, 700):
            play(memory, num_steps, random, len(memory.oracle.steps))
            commit = writer.commit(memory.inner.parts, kept=set(writer.generations), is_pinned=True)
            windows[commit.generation] = _windows(memory)
    return StoredPlay(_recorded(memory), windows, memory.inner.frames.frames_per_segment)


def play(memory: ReplayMemory, num_steps: int, random: np.random.Generator, first_reward: int = 0) -> None:
    """Record random steps of all environments, with episodes of about 50 steps and occasional resets.

    Rewards count up from ``first_reward``.
    """
    closed = np.flatnonzero(~memory.inner.steps.is_open)
    if len(closed):
        memory.begin(_noise(memory, random, len(closed)), closed)
    for step in range(num_steps):
        terminated, truncated, is_reset = random.random((3, NUM_ENVS)) < 0.01
        actions, rewards = (
            random.integers(0, 5, NUM_ENVS),
            first_reward + step * NUM_ENVS + np.arange(NUM_ENVS),
        )
        memory.append(actions, rewards, terminated, truncated, _noise(memory, random, NUM_ENVS))
        begun = np.flatnonzero(terminated | truncated | is_reset)
        if len(begun):
            memory.begin(_noise(memory, random, len(begun)), begun)


def assert_batch_is_what_was_recorded(batch: Batch, stored: StoredPlay) -> None:
    """Compare every field, bit for bit."""
    numbers = batch.reward.astype(np.int64)
    for name, values in stored.recorded.items():
        np.testing.assert_array_equal(values[numbers], getattr(batch, name), name)


def _noise(memory: ReplayMemory, random: np.random.Generator, count: int) -> np.ndarray:
    (spec,) = memory.inner.settings.frame.frame_specs
    pixels = random.integers(0, 256, (count, *spec.shape), dtype=np.uint8)
    if not spec.is_scaled:
        return pixels.astype(spec.dtype)
    frames = (pixels / np.float32(255)).astype(spec.dtype)
    frames[random.random(count) < 0.05] += 1  # as from an environment with another scaling now and then
    return frames


def _windows(memory: ReplayMemory) -> tuple[np.ndarray, ...]:
    indices = memory.sampleable_indices()
    env_ids, lasts, counts = memory.inner.steps.resolve_steps(indices)[0]
    return indices, env_ids, lasts - counts + 1, lasts


def _recorded(memory: ShadowedMemory) -> dict[str, np.ndarray]:
    oracle = memory.oracle
    indices = range(len(oracle.steps))
    return {
        "observation": np.stack([oracle.observation_of(index) for index in indices]),
        "next_observation": np.stack([oracle.next_observation_of(index) for index in indices]),
        "action": np.array([step.action for step in oracle.steps]),
        "reward": np.array([step.reward for step in oracle.steps], np.float32),
        "discount": np.array([oracle.discount_of(index) for index in indices], np.float32),
        "terminated": np.array([step.terminated for step in oracle.steps]),
        "truncated": np.array([step.truncated for step in oracle.steps]),
    }
