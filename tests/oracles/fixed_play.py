"""A fixed sequence of steps: a memory's last transition determines its whole expected content."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from oracles.list_memory import ListMemory

SHAPE = (6, 5)
NUM_ENVS, STACK, DISCOUNT = 2, 3, 0.5
FIELDS = ("observation", "next_observation", "action", "reward", "discount", "terminated", "truncated")


class FixedPlay:
    """``num_steps`` steps of two environments. The reward of a transition is its number, which identifies it."""

    def __init__(self, num_steps: int) -> None:
        self.oracle = ListMemory(10**9, NUM_ENVS, STACK, DISCOUNT)
        self._open: list[list[bool]] = []  # before each step, of each environment
        self._parts: dict[str, list[np.ndarray]] = {name: [] for name in FIELDS}
        self.extend(num_steps)

    @property
    def num_steps(self) -> int:
        return len(self._open)

    def extend(self, num_steps: int) -> None:
        """Add steps until there are ``num_steps``."""
        first = len(self.oracle.steps)
        for step in range(self.num_steps, num_steps):
            self._open.append(list(self.oracle.is_open))
            self._play(self.oracle, step)
        new = range(first, len(self.oracle.steps))
        if new:
            self._append("observation", [self.oracle.observation_of(index) for index in new])
            self._append("next_observation", [self.oracle.next_observation_of(index) for index in new])
            self._append("discount", [self.oracle.discount_of(index) for index in new])
            for name in ("action", "reward", "terminated", "truncated"):
                self._append(name, [getattr(self.oracle.steps[index], name) for index in new])

    def reopen(self, step: int) -> None:
        """Continue with ``step``, with all episodes begun again, as after a crash."""
        self.extend(step)
        del self._open[step:], self.oracle.steps[step * NUM_ENVS :]
        if step:
            self._parts = {name: [self.expected(name)[: step * NUM_ENVS]] for name in FIELDS}
        else:
            self._parts = {name: [] for name in FIELDS}
        self.oracle.is_open = [False] * NUM_ENVS

    def expected(self, name: str) -> np.ndarray:
        """Return a field of every transition of the play."""
        self._parts[name] = [np.concatenate(self._parts[name])]
        return self._parts[name][0]

    def record(self, memory: ReplayMemory, start: int, stop: int) -> None:
        """Record the steps from ``start`` to ``stop``; the memory has the steps before."""
        self.extend(stop)
        for step in range(start, stop):
            self._play(memory, step)

    def check(self, batch: Batch) -> None:
        """Raise unless every transition of ``batch`` equals, bit for bit, the one with its number."""
        numbers = batch.reward.astype(np.int64)
        self.extend(int(numbers.max()) // NUM_ENVS + 1)
        for name in FIELDS:
            np.testing.assert_array_equal(self.expected(name)[numbers], getattr(batch, name), name)

    def check_newest(self, memory: ReplayMemory) -> int:
        """Raise unless a fifo memory has the newest transitions up to some step; return the number of steps."""
        indices = memory.sampleable_indices()
        if not len(indices):
            return 0
        batch = memory.get(indices)
        self.check(batch)
        stop = int(batch.reward[-1]) + 1
        assert stop % NUM_ENVS == 0, "only some environments of a step are stored"
        assert np.arange(max(0, stop - memory.capacity), stop).tolist() == batch.reward.tolist()
        return stop // NUM_ENVS

    def check_any(self, memory: ReplayMemory) -> list[int]:
        """Raise unless every transition of a memory belongs to the play; return their numbers."""
        indices = memory.sampleable_indices()
        if not len(indices):
            return []
        batch = memory.get(indices)
        self.check(batch)
        numbers: list[int] = sorted(batch.reward.astype(int).tolist())
        assert len(set(numbers)) == len(numbers), "a transition is stored twice"
        return numbers

    def _append(self, name: str, values: list) -> None:
        self._parts[name].append(np.array(values))

    def _play(self, memory: ReplayMemory | ListMemory, step: int) -> None:
        first, frames, actions, terminated, truncated = _drawn(step)
        closed = [env_id for env_id in range(NUM_ENVS) if not self._open[step][env_id]]
        if closed:
            memory.begin(first[closed], closed)
        rewards = np.arange(NUM_ENVS) + step * NUM_ENVS
        memory.append(actions, rewards, terminated, truncated, frames, list(range(NUM_ENVS)))


def memory_of_play(capacity: int, **settings) -> ReplayMemory:
    """Return a memory for such a play."""
    arguments = {"stack": STACK, "num_envs": NUM_ENVS, "discount": DISCOUNT, "seed": 0} | settings
    return ReplayMemory(capacity, FrameSpec(SHAPE), 4, **{"stack": 4} | arguments)


@lru_cache(100_000)
def _drawn(step: int) -> tuple[np.ndarray, ...]:
    """Return first frames, frames, actions and flags of a step. Frames change little, so that they pack well."""
    random = np.random.default_rng([7, step])
    picture = np.random.default_rng([8, step // 16]).integers(0, 256, (NUM_ENVS, *SHAPE), dtype=np.uint8)
    first, frames = picture.copy(), picture.copy()
    first[:, 0, :2] = 255, step % 256
    frames[:, 0, :3] = step % 256, step // 256 % 256, random.integers(256)
    terminated, truncated = random.random((2, NUM_ENVS)) < 0.03
    return first, frames, random.integers(0, 4, NUM_ENVS), terminated, truncated
