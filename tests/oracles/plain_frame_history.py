"""Berkeley's published ReplayBuffer, and its correct results, in a list without eviction."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

Effect = tuple[int, float, bool]


class PlainFrameHistory:
    """The published ring: one slot per frame with its effect; missing effects are 0."""

    def __init__(self, size: int, history: int) -> None:
        self.size, self.history, self.num_frames = size, history, 0
        self.frames: list[np.ndarray] = [None] * size
        self.effects: list[Effect] = [(0, 0.0, False)] * size

    @property
    def num_in_buffer(self) -> int:
        return min(self.num_frames, self.size)

    def store_frame(self, frame: np.ndarray) -> int:
        slot = self.num_frames % self.size
        self.frames[slot] = frame.copy()
        self.num_frames += 1
        return slot

    def store_effect(self, slot: int, action: int, reward: float, done: bool) -> None:
        self.effects[slot] = (action, reward, done)

    def encode_recent_observation(self) -> np.ndarray:
        return self.encoded((self.num_frames - 1) % self.size)

    def can_sample(self, batch_size: int) -> bool:
        return batch_size < self.num_in_buffer

    def drawn(self, batch_size: int) -> list[int]:
        slots: list[int] = []
        while len(slots) < batch_size:
            slot = random.randint(0, self.num_in_buffer - 2)
            if slot not in slots:
                slots.append(slot)
        return slots

    def sample(self, batch_size: int) -> tuple[np.ndarray, ...]:
        assert self.can_sample(batch_size)
        return self.transitions(self.drawn(batch_size))

    def transitions(self, slots: list[int]) -> tuple[np.ndarray, ...]:
        return (
            np.stack([self.encoded(slot) for slot in slots]),
            np.array([self.effects[slot][0] for slot in slots], np.int32),
            np.array([self.effects[slot][1] for slot in slots], np.float32),
            np.stack([self.encoded(slot + 1) for slot in slots]),
            np.array([self.effects[slot][2] for slot in slots], np.float32),
        )

    def encoded(self, slot: int) -> np.ndarray:
        if self.frames[0].ndim == 1:
            return self.frames[slot]
        first = slot - self.history + 1
        if first < 0 and self.num_in_buffer < self.size:
            first = 0
        for before in range(first, slot):
            if self.effects[before % self.size][2]:
                first = before + 1
        shown = [self.frames[each % self.size] for each in range(first, slot + 1)]
        return concatenated(shown, self.history)


class ListedFrames:
    """All frames, effects and starts of episodes: the true transition of each step number."""

    def __init__(self, history: int) -> None:
        self.history = history
        self.frames: list[np.ndarray] = []
        self.begins: list[bool] = []
        self.effects: list[tuple[Any, ...] | None] = []

    def store_frame(self, frame: np.ndarray) -> None:
        before = self.effects[-1] if self.effects else None
        self.begins.append(before is None or before[2] or before[3])
        self.frames.append(frame.copy())
        self.effects.append(None)

    def store_effect(self, action, reward, done, truncated=False, last_frame=None) -> None:
        self.effects[-1] = (action, reward, done, truncated, last_frame)

    def stack(self, number: int, further: np.ndarray | None = None) -> np.ndarray:
        """Return the observation at frame ``number``, or the next one with ``further``."""
        if self.frames[0].ndim == 1:
            return self.frames[number] if further is None else further
        first = number
        while not self.begins[first] and number - first < self.history:
            first -= 1
        shown = self.frames[first : number + 1] + ([] if further is None else [further])
        return concatenated(shown[-self.history :], self.history)

    @property
    def steps(self) -> list[int]:
        """Return the numbers of complete steps whose next frame is stored."""
        known = []
        for number, effect in enumerate(self.effects[:-1]):
            if effect is not None and not (effect[3] and not effect[2] and effect[4] is None):
                known.append(number)
        return known

    def transition(self, number: int) -> tuple[Any, ...]:
        action, reward, done, truncated, last_frame = self.effects[number]
        if truncated and not done:
            after = self.stack(number, last_frame)
        elif done and last_frame is not None:
            after = concatenated([last_frame], self.history)
        else:  # after done: the next episode's first frame
            after = self.stack(number + 1) if not done else concatenated([self.frames[number + 1]], self.history)
        return self.stack(number), action, np.float32(reward), after, np.float32(done)


def concatenated(shown: list[np.ndarray], history: int) -> np.ndarray:
    if shown[0].ndim == 1:
        return shown[-1]
    return np.concatenate([np.zeros_like(shown[0])] * (history - len(shown)) + shown, axis=2)
