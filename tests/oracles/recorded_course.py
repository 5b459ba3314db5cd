"""A course of steps that is always the same, so that a memory's last transition tells all that it has to hold."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory
from oracles.list_memory import ListMemory

SHAPE = (6, 5)
NUM_STREAMS, STACK, DISCOUNT = 2, 3, 0.5
FIELDS = ("observation", "next_observation", "action", "reward", "discount", "terminated", "truncated")


class RecordedCourse:
    """``num_steps`` steps of two streams; before each step of ``reopened_at`` all episodes begin anew.

    The reward of a transition is its number in the course, so each says which one it is.
    """

    def __init__(self, num_steps: int, reopened_at: Collection[int] = ()) -> None:
        self.num_steps, self.reopened_at = num_steps, set(reopened_at)
        self.oracle = ListMemory(10**9, NUM_STREAMS, STACK, DISCOUNT)
        self._open: list[list[bool]] = []
        for step in range(num_steps):
            if step in self.reopened_at:
                self.oracle.is_open = [False] * NUM_STREAMS
            self._open.append(list(self.oracle.is_open))
            self._play(self.oracle, step)
        transitions = range(len(self.oracle.steps))
        self.expected = {
            "observation": np.stack([self.oracle.observation_of(index) for index in transitions]),
            "next_observation": np.stack([self.oracle.next_observation_of(index) for index in transitions]),
            "discount": np.array([self.oracle.discount_of(index) for index in transitions]),
        } | {
            name: np.array([getattr(step, name) for step in self.oracle.steps])
            for name in ("action", "reward", "terminated", "truncated")
        }

    def record(self, memory: ReplayMemory, start: int, stop: int) -> None:
        """Play the steps from ``start`` to ``stop`` to a memory that was played those before."""
        for step in range(start, stop):
            self._play(memory, step)

    def check(self, batch: Batch) -> None:
        """Raise unless every transition of ``batch`` is, bit for bit, the one whose number is its reward."""
        numbers = batch.reward.astype(np.int64)
        for name in FIELDS:
            np.testing.assert_array_equal(self.expected[name][numbers], getattr(batch, name), name)

    def check_newest(self, memory: ReplayMemory) -> int:
        """Raise unless a fifo memory holds the newest transitions up to some step; return the number of that step."""
        indices = memory.sampleable_indices()
        if not len(indices):
            return 0
        batch = memory.transitions(indices)
        self.check(batch)
        stop = int(batch.reward[-1]) + 1
        assert stop % NUM_STREAMS == 0, "half of a step is there"
        assert np.arange(max(0, stop - memory.capacity), stop).tolist() == batch.reward.tolist()
        return stop // NUM_STREAMS

    def _play(self, memory: ReplayMemory | ListMemory, step: int) -> None:
        first, frames, actions, terminated, truncated = _drawn(step)
        closed = [stream for stream in range(NUM_STREAMS) if not self._open[step][stream]]
        if closed:
            memory.begin(first[closed], closed)
        rewards = np.arange(NUM_STREAMS) + step * NUM_STREAMS
        memory.append(actions, rewards, terminated, truncated, frames, list(range(NUM_STREAMS)))


def course_memory(capacity: int, **settings) -> ReplayMemory:
    """A memory for such a course."""
    arguments = {"stack": STACK, "num_streams": NUM_STREAMS, "discount": DISCOUNT, "seed": 0} | settings
    return ReplayMemory(capacity, FrameSpec(SHAPE), 4, **arguments)


@lru_cache(100_000)
def _drawn(step: int) -> tuple[np.ndarray, ...]:
    """First frames, frames, actions and flags of a step: mostly like those of the step before, so that they pack."""
    random = np.random.default_rng([7, step])
    picture = np.random.default_rng([8, step // 16]).integers(0, 256, (NUM_STREAMS, *SHAPE), dtype=np.uint8)
    first, frames = picture.copy(), picture.copy()
    first[:, 0, :2] = 255, step % 256
    frames[:, 0, :3] = step % 256, step // 256, random.integers(256)
    terminated, truncated = random.random((2, NUM_STREAMS)) < 0.03
    return first, frames, random.integers(0, 4, NUM_STREAMS), terminated, truncated
