"""Random steps as CleanRL's scripts add them, and the logic of rainbow_atari.py's buffer."""

from collections import deque
from typing import NamedTuple

import numpy as np


class Step(NamedTuple):
    """One step of each environment: the arguments of rainbow_atari.py's ``rb.add``, and ``truncations``."""

    obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_obs: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray


class Play:
    """Stacks of four random frames. What ended is reset in the same step, as Gymnasium 0.29 does.

    ``next_obs`` is what the scripts make of it: the last observation of an episode that was truncated, but of one that
    terminated the first observation of the next.
    """

    def __init__(self, seed, num_envs=1, terminated=0.0, truncated=0.0, frame=(5, 6), values=256):
        self.generator = np.random.default_rng(seed)
        self.chances, self.frame_shape, self.values = (terminated, truncated), frame, values
        self.obs = np.stack([self.reset() for _ in range(num_envs)])
        self.steps = []

    def frame(self):
        return self.generator.integers(0, self.values, self.frame_shape, dtype=np.uint8)

    def reset(self):
        return np.stack([self.frame()] * 4)

    def step(self):
        n = len(self.obs)
        moved = np.stack([np.stack([*stack[1:], self.frame()]) for stack in self.obs])
        terminations, truncations = (self.generator.random((2, n)).T < self.chances).T
        truncations &= ~terminations
        following = moved.copy()
        for env in np.flatnonzero(terminations | truncations):
            following[env] = self.reset()
        step = Step(
            self.obs,
            self.generator.integers(0, 4, n),
            self.generator.integers(-1, 2, n).astype(np.float64),
            np.where(terminations[:, None, None, None], following, moved),
            terminations,
            truncations,
        )
        self.obs = following
        self.steps.append(step)
        return step


class AsInRainbow:
    """What ``PrioritizedReplayBuffer`` of CleanRL's rainbow_atari.py keeps and draws, for one environment.

    Transitions are tuples in a list; the tree's sums are ``float32``, the children of node i being 2 i + 1 and 2 i + 2.
    """

    def __init__(self, capacity, n_step, gamma, alpha, beta, eps):
        self.capacity, self.n_step, self.gamma = capacity, n_step, gamma
        self.alpha, self.beta, self.eps = alpha, beta, eps
        self.transitions, self.num_stored, self.largest = [None] * capacity, 0, 1.0
        self.sums = np.zeros(2 * capacity - 1, np.float32)
        self.waiting = deque(maxlen=n_step)

    @property
    def size(self):
        return min(self.num_stored, self.capacity)

    def add(self, step):
        self.waiting.append(step)
        if len(self.waiting) < self.n_step:
            return
        returned, last = 0.0, None
        for power, one in enumerate(self.waiting):
            returned += self.gamma**power * one.rewards[0]
            last = one
            if one.terminations[0]:
                break
        first, slot = self.waiting[0], self.num_stored % self.capacity
        done = bool(last.terminations[0])
        self.transitions[slot] = (first.obs[0], first.actions[0], np.float32(returned), last.next_obs[0], done)
        self.set_weight(slot, self.largest**self.alpha)
        self.num_stored += 1
        if done:
            self.waiting.clear()

    def set_weight(self, slot, weight):
        node = slot + self.capacity - 1
        self.sums[node] = weight
        while node:
            node = (node - 1) // 2
            self.sums[node] = self.sums[2 * node + 1] + self.sums[2 * node + 2]

    def slot_at(self, value):
        node = 0
        while node < self.capacity - 1:
            left = 2 * node + 1
            if value <= self.sums[left]:
                node = left
            else:
                value -= self.sums[left]
                node = left + 1
        return node - self.capacity + 1

    def draw(self, batch_size):
        part = self.sums[0] / batch_size
        slots = np.array([self.slot_at(np.random.uniform(part * i, part * (i + 1))) for i in range(batch_size)])
        return slots, self.weights(slots)

    def weights(self, slots):
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = (self.size * self.sums[slots + self.capacity - 1] / self.sums[0]) ** -self.beta
            return weights / weights.max()

    def update_priorities(self, slots, priorities):
        for slot, priority in zip(slots, np.abs(priorities) + self.eps, strict=True):
            self.largest = max(self.largest, priority)
            self.set_weight(slot, priority**self.alpha)


def true_transitions(steps, env, n_step, gamma):
    """The n-step transitions of one environment's steps in a plain list: number of the row, and what it must be.

    Those whose return cannot be known are left out: its steps are not there yet, or the episode was truncated before.
    """
    found = {}
    for row, first in enumerate(steps):
        returned = 0.0
        for power, last in enumerate(steps[row : row + n_step]):
            returned += gamma**power * last.rewards[env]
            is_whole, is_done = power == n_step - 1, bool(last.terminations[env])
            if is_whole or is_done:
                found[row] = (
                    first.obs[env],
                    first.actions[env],
                    np.float32(returned),
                    last.next_obs[env],
                    is_done,
                )
            if is_done or last.truncations[env]:
                break
    return found
