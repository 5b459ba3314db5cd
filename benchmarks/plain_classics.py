"""Plain versions of the two older buffers that framestow.integrations.classic replaces, as fast as the originals.

Our own code after their published behaviour: neither is on PyPI. The tests compare with still plainer ones of lists.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray


class PlainFrameHistory:
    """The Berkeley course's buffer: a NumPy ring of frames ``(H, W, C)`` whose windows are transposed one by one."""

    def __init__(self, size: int, history: int, frame_shape: tuple[int, ...]) -> None:
        self.size, self.history, self.num_frames = size, history, 0
        self.frames = np.empty((size, *frame_shape), np.uint8)
        self.actions = np.zeros(size, np.int32)
        self.rewards = np.zeros(size, np.float32)
        self.done = np.zeros(size, np.bool_)

    @property
    def num_in_buffer(self) -> int:
        """Slots in use."""
        return min(self.num_frames, self.size)

    def store_frame(self, frame: NDArray[np.uint8]) -> int:
        """Store a frame and return its slot."""
        slot = self.num_frames % self.size
        self.frames[slot] = frame
        self.num_frames += 1
        return slot

    def store_effect(self, slot: int, action: int, reward: float, done: bool) -> None:
        """Store action, reward and end of the frame in ``slot``."""
        self.actions[slot], self.rewards[slot], self.done[slot] = action, reward, done

    def encode_recent_observation(self) -> NDArray[np.uint8]:
        """Return the policy's observation at the newest frame."""
        return self.encoded((self.num_frames - 1) % self.size)

    def sample(self, batch_size: int) -> tuple[NDArray[Any], ...]:
        """Sample distinct slots, except the last one."""
        slots: list[int] = []
        while len(slots) < batch_size:
            slot = random.randint(0, self.num_in_buffer - 2)
            if slot not in slots:
                slots.append(slot)
        return self.transitions(slots)

    def transitions(self, slots: list[int]) -> tuple[NDArray[Any], ...]:
        """Return observations, actions, rewards, next observations and the done mask of these slots."""
        return (
            np.concatenate([self.encoded(slot)[None] for slot in slots]),
            self.actions[slots],
            self.rewards[slots],
            np.concatenate([self.encoded(slot + 1)[None] for slot in slots]),
            self.done[slots].astype(np.float32),
        )

    def encoded(self, slot: int) -> NDArray[np.uint8]:
        """Return the observation at the frame in ``slot``."""
        first = slot + 1 - self.history
        if first < 0 and self.num_in_buffer < self.size:
            first = 0
        for before in range(first, slot):
            if self.done[before % self.size]:
                first = before + 1
        num_shown = slot + 1 - first
        if first < 0 or num_shown < self.history:
            blanks = [np.zeros_like(self.frames[0])] * (self.history - num_shown)
            return np.concatenate(blanks + [self.frames[each % self.size] for each in range(first, slot + 1)], axis=2)
        height, width = self.frames.shape[1:3]
        return self.frames[first : slot + 1].transpose(1, 2, 0, 3).reshape(height, width, -1)


class PlainPixelPairs:
    """nnabla-rl's buffer: a list of steps with the newest frames of ``s`` and ``s_next``, searched for each stack."""

    def __init__(self, capacity: int, stacked_frames: int) -> None:
        self.capacity, self.stacked_frames = capacity, stacked_frames
        self.steps: list[Any] = [None] * capacity
        self.evicted: deque[Any] = deque(maxlen=stacked_frames - 1)
        self.num_steps, self.is_first = 0, True
        self.generator = np.random.default_rng(0)

    def __len__(self) -> int:
        return min(self.num_steps, self.capacity)

    def append(self, experience: tuple[Any, ...]) -> None:
        """Store the newest frames of both observations as pixels."""
        s, a, r, non_terminal, s_next, info = experience
        pixels, next_pixels = ((part[-1] * 255.0).astype(np.uint8) for part in (s, s_next))
        slot = self.num_steps % self.capacity
        if self.steps[slot] is not None:
            self.evicted.append(self.steps[slot])
        self.steps[slot] = (pixels, a, r, non_terminal, next_pixels, info, self.is_first)
        self.num_steps += 1
        self.is_first = non_terminal == 0

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        oldest = self.num_steps - len(self)
        stack = np.zeros((self.stacked_frames, *self.steps[0][0].shape), np.uint8)
        for back in range(self.stacked_frames):
            before = index - back
            step = self.steps[(oldest + before) % self.capacity] if before >= 0 else self.evicted[before]
            if step[-1]:
                stack[: self.stacked_frames - back] = step[0]
                break
            stack[self.stacked_frames - back - 1] = step[0]
        s = stack.astype(np.float32) / 255.0
        _, a, r, non_terminal, next_pixels, info, _ = self.steps[(oldest + index) % self.capacity]
        return s, a, r, non_terminal, np.concatenate((s[1:], next_pixels[None].astype(np.float32) / 255.0)), info

    def sample(self, num_samples: int) -> list[tuple[Any, ...]]:
        """Sample distinct experiences."""
        return [self[index] for index in self.generator.choice(len(self), size=num_samples, replace=False)]
