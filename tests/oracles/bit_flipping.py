"""The bit-flipping game of Andrychowicz et al. (2017, section 3.1), and a small learner of it.

A state of ``n`` bits and a goal of ``n`` bits, both drawn at random; an action flips one bit. Every step costs 1 until
the state is the goal, which no undirected search finds: of 2^n states it is one.
"""

from __future__ import annotations

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory

DISCOUNT = 0.95


def reward_of(achieved, desired, info=None):
    return -(achieved != desired).any(-1).astype(np.float32)


def is_reached(achieved, desired, info=None):
    return (achieved == desired).all(-1)


class BitFlipping:
    """``num_envs`` games beside one another, recorded by a memory; an episode has at most ``n`` steps."""

    def __init__(self, num_bits: int, num_envs: int, seed: int) -> None:
        bits = FrameSpec((num_bits,), np.dtype(np.float32))
        self.num_bits, self.num_envs, self.random = num_bits, num_envs, np.random.default_rng(seed)
        self.memory = ReplayMemory(
            20_000,
            {"achieved_goal": bits, "desired_goal": bits},
            num_bits,
            stack=1,
            num_envs=num_envs,
            discount=DISCOUNT,
            seed=seed,
        )
        self.state, self.goal = np.zeros((2, num_envs, num_bits), np.float32)
        self.begin(np.arange(num_envs))

    def begin(self, env_ids: np.ndarray) -> None:
        self.age = 0
        self.state[env_ids], self.goal[env_ids] = self.random.integers(0, 2, (2, len(env_ids), self.num_bits))
        self.memory.begin({"achieved_goal": self.state[env_ids], "desired_goal": self.goal[env_ids]}, env_ids)

    def play(self, q: Network, exploration: float) -> float:
        """One episode of ``n`` steps of every environment; gives the share of them that were at their goal."""
        was_there = is_reached(self.state, self.goal)
        for step in range(self.num_bits):
            actions = q.values(self.state, self.goal).argmax(-1)
            explores = self.random.random(self.num_envs) < exploration
            actions[explores] = self.random.integers(0, self.num_bits, int(explores.sum()))
            self.state[np.arange(self.num_envs), actions] = 1 - self.state[np.arange(self.num_envs), actions]
            reached = is_reached(self.state, self.goal)
            was_there |= reached
            ends = np.full(self.num_envs, step == self.num_bits - 1)
            frames = {"achieved_goal": self.state, "desired_goal": self.goal}
            self.memory.append(actions, reward_of(self.state, self.goal), reached & ends, ends, frames)
        self.begin(np.arange(self.num_envs))
        return float(was_there.mean())


class Network:
    """A layer of rectified units and a linear one, by NumPy, with Adam (Kingma & Ba 2015)."""

    def __init__(self, num_bits: int, num_units: int, seed: int, step_size: float = 1e-3) -> None:
        random = np.random.default_rng(seed)
        shapes = [(2 * num_bits, num_units), (num_units,), (num_units, num_bits), (num_bits,)]
        self.weights = [random.normal(0, np.sqrt(2 / shape[0]), shape) * (len(shape) > 1) for shape in shapes]
        self.target = [weight.copy() for weight in self.weights]
        self.means, self.squares = ([np.zeros(shape) for shape in shapes] for _ in range(2))
        self.step_size, self.num_updates = step_size, 0

    def values(self, state: np.ndarray, goal: np.ndarray, weights: list[np.ndarray] | None = None) -> np.ndarray:
        first, bias, last, offset = self.weights if weights is None else weights
        self.inputs = 2.0 * np.concatenate([state, goal], axis=1) - 1.0
        self.hidden = np.maximum(self.inputs @ first + bias, 0)
        return self.hidden @ last + offset

    def learn(self, batch) -> None:
        """One step of Q-learning towards the target network, which follows slowly."""
        (state, goal), (later, same_goal) = (
            (part["achieved_goal"][:, 0], part["desired_goal"][:, 0])
            for part in (batch.observation, batch.next_observation)
        )
        best = self.values(later, same_goal, self.target).max(1)
        wanted = np.clip(batch.reward + batch.discount * best, -1 / (1 - DISCOUNT), 0)
        rows = np.arange(len(batch))
        error = np.zeros_like(values := self.values(state, goal))
        error[rows, batch.action] = (values[rows, batch.action] - wanted) / len(batch)
        into_hidden = (error @ self.weights[2].T) * (self.hidden > 0)
        self.descend([self.inputs.T @ into_hidden, into_hidden.sum(0), self.hidden.T @ error, error.sum(0)])

    def descend(self, gradients: list[np.ndarray]) -> None:
        self.num_updates += 1
        for layer, gradient in enumerate(gradients):
            self.means[layer] += 0.1 * (gradient - self.means[layer])
            self.squares[layer] += 0.001 * (gradient**2 - self.squares[layer])
            mean = self.means[layer] / (1 - 0.9**self.num_updates)
            square = self.squares[layer] / (1 - 0.999**self.num_updates)
            self.weights[layer] -= self.step_size * mean / (np.sqrt(square) + 1e-8)
            self.target[layer] += 0.02 * (self.weights[layer] - self.target[layer])


def share_solved(num_bits: int, num_rounds: int, sampler_of, seed: int = 0, updates_a_round: int = 40) -> float:
    """Learn from what ``sampler_of(memory)`` samples; the share of goals reached without exploration in the end."""
    game, q = BitFlipping(num_bits, 16, seed), Network(num_bits, 128, seed)
    sampler = sampler_of(game.memory)
    for _ in range(num_rounds):
        game.play(q, exploration=0.2)
        for _ in range(updates_a_round):
            q.learn(sampler.sample(128))
    return float(np.mean([game.play(q, exploration=0.0) for _ in range(10)]))
