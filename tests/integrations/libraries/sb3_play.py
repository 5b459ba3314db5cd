"""Random steps as Stable-Baselines3's algorithms add them, for its buffers and ours."""

import copy

import numpy as np
import torch
from gymnasium import spaces


class Play:
    """Steps of several environments with random observations of ``space``; pictures move on as in a ``VecFrameStack``.

    Elements have few values, so that frames and observations are often equal by chance.
    """

    def __init__(self, seed, space, action_space, num_envs, stack=1, end_chance=0.2):
        self.generator = np.random.default_rng(seed)
        self.space, self.action_space, self.num_envs = space, copy.deepcopy(action_space), num_envs
        self.action_space.seed(seed)
        self.stack, self.end_chance = stack, end_chance
        self.observations = self.rows_of(lambda part: self.begun(part, num_envs))

    def rows_of(self, make):
        if isinstance(self.space, spaces.Dict):
            return {key: make(part) for key, part in self.space.spaces.items()}
        return make(self.space)

    def values(self, space, n):
        shape = () if isinstance(space, spaces.Discrete) else space.shape
        return self.generator.integers(0, 3, (n, *shape)).astype(space.dtype)

    def begun(self, space, n):
        observations = self.values(space, n)
        if self.is_stack(space):
            self.older(space, observations)[:] = 0
        return observations

    def is_stack(self, space):
        return self.stack > 1 and len(space.shape) == 3

    def channels(self, space):
        """The channel axis, counted with the axis of the environments."""
        return 1 if space.shape[0] < space.shape[-1] else 3

    def older(self, space, observations):
        return np.moveaxis(observations, self.channels(space), 1)[:, :-1]

    def after(self, space, observations):
        following = self.values(space, self.num_envs)
        if self.is_stack(space):
            self.older(space, following)[:] = np.moveaxis(observations, self.channels(space), 1)[:, 1:]
        return following

    def action(self):
        if isinstance(self.action_space, spaces.Box):  # scaled to -1 to 1, whatever the bounds are
            return self.generator.uniform(-1, 1, (self.num_envs, *self.action_space.shape)).astype(np.float32)
        return np.array([self.action_space.sample() for _ in range(self.num_envs)])

    def step(self):
        """Return the arguments of ``add``, as in ``OffPolicyAlgorithm._store_transition``."""
        n = self.num_envs
        now = self.observations
        after = (
            {key: self.after(part, now[key]) for key, part in self.space.spaces.items()}
            if isinstance(now, dict)
            else self.after(self.space, now)
        )
        dones = self.generator.random(n) < self.end_chance
        timeouts = dones & (self.generator.random(n) < 0.5)
        infos = [{"TimeLimit.truncated": bool(timeout)} for timeout in timeouts]
        rewards = self.generator.normal(size=n).astype(np.float32)
        fresh = self.rows_of(lambda part: self.begun(part, n))
        self.observations = _chosen(dones, fresh, after)
        return now, after, self.action(), rewards, dones, infos


def _chosen(mask, fresh, after):
    if isinstance(fresh, dict):
        return {key: _chosen(mask, fresh[key], after[key]) for key in fresh}
    return np.where(mask.reshape(-1, *[1] * (fresh.ndim - 1)), fresh, after)


def assert_equal_samples(theirs, ours, but=()):
    """Check that all fields except the named ones are equal tensors, bit for bit."""
    assert type(theirs) is type(ours)
    for name, expected, actual in zip(theirs._fields, theirs, ours, strict=True):
        if name in but:
            continue
        if expected is None:
            assert actual is None, name
            continue
        parts = (
            zip(expected.values(), actual.values(), strict=True) if isinstance(expected, dict) else [(expected, actual)]
        )
        assert not isinstance(expected, dict) or list(expected) == list(actual)
        for part, other in parts:
            assert (part.dtype, part.shape, part.stride(), part.device) == (
                other.dtype,
                other.shape,
                other.stride(),
                other.device,
            ), name
            assert torch.equal(part.view(torch.uint8), other.view(torch.uint8)), name


def assert_same_weights(theirs, ours):
    expected, actual = theirs.policy.state_dict(), ours.policy.state_dict()
    assert list(expected) == list(actual)
    for name, weights in expected.items():
        assert torch.equal(weights, actual[name]), name
