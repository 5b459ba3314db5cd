"""A memory of either retention and its oracle, played on as hard as sequences have it: short and long episodes."""

from __future__ import annotations

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.bordered_steps import append_with_borders
from oracles.evicting_memory import EvictingListMemory, ObservedMemory
from oracles.list_memory import ListMemory
from oracles.listed_sequences import ListedSequences

SHAPE = (2, 3)
NUM_ACTIONS = 5
COLUMN = {"state": (np.float32, (2,))}


class SequenceWorkload:
    """Rewards are the numbers of the steps, so that every step of a batch says which it is."""

    def __init__(self, retention: str, num_envs: int, stack: int, seed: int = 0, **settings) -> None:
        self.random = np.random.default_rng(seed)
        self.retention, self.num_envs = retention, num_envs
        self.border_chance = settings.pop("border_chance", 0.05)
        self.borders = np.random.default_rng(seed)
        capacity = max(16, 4 * stack) * (num_envs + 16) + num_envs * stack
        shape = {"num_envs": num_envs, "stack": stack, "discount": 0.9}
        shape["stack_padding"] = settings.pop("stack_padding", "first_frame")
        shape["n_step"] = settings.pop("n_step", 1)
        settings = {"seed": seed, "retention": retention, "extras": COLUMN} | settings
        kinds = (ObservedMemory, EvictingListMemory) if retention == "random" else (ReplayMemory, ListMemory)
        self.memory = kinds[0](capacity, FrameSpec(SHAPE), NUM_ACTIONS, **shape, **settings)
        self.oracle = kinds[1](capacity, **shape)
        if retention == "random":
            self.memory.observe_evictions(self.oracle.frames_evicted)
        self.num_frames = 0

    def new_frames(self, count: int) -> np.ndarray:
        """Frames of which no two are alike; 0 stands in none."""
        numbers = np.arange(self.num_frames, self.num_frames + count)[:, None]
        self.num_frames += count
        digits = numbers // 255 ** np.arange(6) % 255 + 1
        return digits.astype(np.uint8).reshape(count, *SHAPE)

    def begin(self, env_ids: list[int]) -> None:
        if env_ids:
            frames = self.new_frames(len(env_ids))
            self.memory.begin(frames, env_ids)
            self.oracle.begin(frames, env_ids)

    def play(self, num_steps: int, end_chance: float = 0.05) -> None:
        for _ in range(num_steps):
            self.begin([env_id for env_id in range(self.num_envs) if not self.oracle.is_open[env_id]])
            env_ids = np.flatnonzero(self.random.random(self.num_envs) < 0.8).tolist() or [0]
            first = len(self.oracle.steps)
            numbers = np.arange(first, first + len(env_ids))
            flags = self.random.random((2, len(env_ids))) < end_chance / 2
            extras = {"state": np.stack([numbers, numbers + 0.5], 1).astype(np.float32)}
            step = (numbers % NUM_ACTIONS, numbers.astype(np.float64), *flags, self.new_frames(len(env_ids)), env_ids)
            borders = self.borders.random(len(env_ids)) < self.border_chance
            append_with_borders(self.memory, step[:-1], env_ids, borders, extras)
            self.oracle.append(*step, extras, borders)
            if self.random.random() < 0.02:  # cut off in mid-episode, once more at once
                self.begin([env_ids[0]])
                self.begin([env_ids[0]])

    def lists(self) -> ListedSequences:
        kept = self.oracle.sampleable if self.retention == "random" else self.oracle.kept  # pending ones too
        return ListedSequences(self.oracle, set(kept))

    def save_and_load(self, folder) -> None:
        self.memory.save(folder)
        self.memory = type(self.memory).load(folder)
        if self.retention == "random":
            self.memory.observe_evictions(self.oracle.frames_evicted)
