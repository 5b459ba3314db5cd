"""The obvious replay memory: NumPy arrays of uncompressed stacks, observation and next observation of each transition.

It draws the same transitions as ``ReplayMemory`` from the same generator, by arithmetic of its own: a rank for uniform
draws, a cumulative sum of all weights for prioritized ones. The tests and ``same_training.py`` train with both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framestow.envs import find_preset
from framestow.replay.reading.batch import Batch
from framestow.training.run import Run
from framestow.training.settings import Settings

EPSILON = 1e-6  # added to each error


class PlainReplay:
    """The methods of ``ReplayMemory`` that training uses, for the recipes with ``priority_exponent`` 0 or 0.5.

    A step gets the next number when it is appended, and its slot is that number modulo the capacity. It can be sampled
    once its n-step return is complete.

    A priority exponent of 0.5 is a square root, which every library rounds in the same way.
    """

    def __init__(self, settings: Settings, frame_shape: tuple[int, ...], generator: np.random.Generator) -> None:
        is_root = settings.priority_exponent == settings.priority_beta == 0.5 and settings.priority_beta_steps is None
        if settings.priority_exponent and not is_root:
            raise ValueError("a plain replay has priority_exponent 0, or 0.5 with a constant priority_beta of 0.5")
        self.capacity, self.stack, self.num_envs = settings.memory, settings.stack, settings.num_envs
        self.n_step, self.gamma = settings.n_step, settings.discount
        self.is_prioritized = settings.priority_exponent > 0
        self.pads_with_zeros = find_preset(settings.preset).stack_padding == "zeros"
        self.generator = generator
        self.num_steps = 0  # appended so far

        stacks = self.stack, *frame_shape
        self.stacks = np.zeros((self.num_envs, *stacks), np.uint8)
        self.observation = np.zeros((self.capacity, *stacks), np.uint8)
        self.next_observation = np.zeros((self.capacity, *stacks), np.uint8)
        self.action = np.zeros(self.capacity, np.int64)
        self.reward = np.zeros(self.capacity, np.float32)
        self.discount = np.zeros(self.capacity, np.float32)
        self.terminated = np.zeros(self.capacity, np.bool_)
        self.truncated = np.zeros(self.capacity, np.bool_)
        self.weight = np.zeros(self.capacity, np.float32)  # root of the priority; 0 if it cannot be sampled
        self.largest_weight = np.float32(1)
        # Per environment: number and reward of the steps whose returns are incomplete.
        self.pending: list[deque[tuple[int, float]]] = [deque() for _ in range(self.num_envs)]

    def __len__(self) -> int:
        return min(self.num_steps, self.capacity) - sum(map(len, self.pending))

    @property
    def nbytes(self) -> int:
        """Number of bytes of all arrays."""
        return sum(array.nbytes for array in vars(self).values() if isinstance(array, np.ndarray))

    @property
    def oldest(self) -> int:
        """Number of the oldest step that is stored."""
        return max(0, self.num_steps - self.capacity)

    def begin(self, frames: NDArray[np.uint8], env_ids: Sequence[int] | NDArray[Any] | None = None) -> None:
        """Start an episode of each of ``env_ids``; the returns of an open one are complete."""
        for env_id, frame in zip(range(self.num_envs) if env_ids is None else env_ids, frames, strict=True):
            self._store_all(env_id, False, True)
            self.stacks[env_id] = 0 if self.pads_with_zeros else frame
            self.stacks[env_id, -1] = frame

    def append(
        self,
        actions: NDArray[Any],
        rewards: NDArray[Any],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        frames: NDArray[np.uint8],
        env_ids: Sequence[int] | NDArray[Any] | None = None,
    ) -> None:
        """Store a step of each of ``env_ids``, with the frame that it led to."""
        for row, env_id in enumerate(range(self.num_envs) if env_ids is None else env_ids):
            slot = self.num_steps % self.capacity
            self.observation[slot] = self.stacks[env_id]
            self.action[slot] = actions[row]
            self.weight[slot] = 0
            self.pending[env_id].append((self.num_steps, float(np.float32(rewards[row]))))
            self.num_steps += 1
            self.stacks[env_id, :-1] = self.stacks[env_id, 1:]
            self.stacks[env_id, -1] = frames[row]
            if terminated[row] or truncated[row]:
                self._store_all(env_id, terminated[row], truncated[row])
            elif len(self.pending[env_id]) == self.n_step:
                self._store_oldest(env_id, False, False)

    def _store_all(self, env_id: int, terminated: bool, truncated: bool) -> None:
        while self.pending[env_id]:
            self._store_oldest(env_id, terminated, truncated)

    def _store_oldest(self, env_id: int, terminated: bool, truncated: bool) -> None:
        """Complete the oldest pending transition of an environment with all rewards since."""
        pending = self.pending[env_id]
        discounted_sum = 0.0
        for power, (_, reward) in enumerate(pending):
            discounted_sum += self.gamma**power * reward
        slot = pending[0][0] % self.capacity
        self.reward[slot] = discounted_sum
        self.discount[slot] = 0.0 if terminated else self.gamma ** len(pending)
        self.terminated[slot], self.truncated[slot] = terminated, truncated
        self.next_observation[slot] = self.stacks[env_id]
        self.weight[slot] = self.largest_weight
        pending.popleft()

    def observations(self) -> NDArray[np.uint8]:
        """Return the current stack of each environment."""
        return self.stacks.copy()

    def sample(self, batch_size: int) -> Batch:
        """Sample transitions uniformly or by priority."""
        random = self.generator.random(batch_size)
        steps, weights = self._draw_prioritized(random) if self.is_prioritized else self._draw_uniformly(random)
        slots = steps % self.capacity
        return Batch(
            observation=self.observation[slots],
            action=self.action[slots],
            reward=self.reward[slots],
            discount=self.discount[slots],
            next_observation=self.next_observation[slots],
            index=steps,
            weight=weights,
            terminated=self.terminated[slots],
            truncated=self.truncated[slots],
        )

    def _draw_uniformly(self, random: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Scale random numbers to ranks among the complete transitions, oldest first."""
        steps = self.oldest + (random * len(self)).astype(np.int64)
        for incomplete in sorted(number for pending in self.pending for number, _ in pending):
            steps[steps >= incomplete] += 1
        return steps, np.ones(len(random), np.float32)

    def _draw_prioritized(self, random: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Draw one transition from each of ``len(random)`` equal parts of the sum of all weights.

        All weights are multiples of the smallest one's last bit. While their sum has at most 53 such bits, float64 adds
        and subtracts them without rounding, in any order. So a cumulative sum finds what a sum tree finds.
        """
        stored = np.flatnonzero(self.weight)
        smallest = self.weight[stored].min()
        cumulative = np.cumsum(self.weight, dtype=np.float64)
        if cumulative[-1] >= 2**53 * float(np.spacing(smallest)):
            raise ArithmeticError(f"sums of weights from {smallest} to {cumulative[-1]} round in float64")
        targets = (np.arange(len(random)) + random) * (cumulative[-1] / len(random))
        slots = np.minimum(np.searchsorted(cumulative, targets, side="right"), stored[-1])
        newest = self.num_steps - 1
        return newest - (newest - slots) % self.capacity, np.sqrt(smallest / self.weight[slots])

    def update_priorities(self, indices: NDArray[np.int64], priorities: NDArray[np.floating[Any]]) -> None:
        """Set priorities from errors; the last one of a repeated transition counts, evicted ones are ignored."""
        is_stored = indices >= self.oldest
        slots = indices[is_stored] % self.capacity
        magnitudes = np.abs(priorities[is_stored].astype(np.float64)) + EPSILON
        self.weight[slots] = np.sqrt(magnitudes.astype(np.float32))
        self.largest_weight = max(self.largest_weight, self.weight[slots].max(initial=0))


def use_plain_replay(run: Run) -> PlainReplay:
    """Replace the memory of a run that has made no step yet, and return the new memory with the same generator."""
    frames = run.memory.observations()[:, -1]
    plain: Any = PlainReplay(run.settings, frames.shape[1:], run.memory.inner.parts.generator)
    plain.begin(frames)
    run.memory = run.env.memory = plain
    run.learner = run._new_learner()
    return plain
