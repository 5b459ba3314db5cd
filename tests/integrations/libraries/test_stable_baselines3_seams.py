"""Ends of episodes at which Stable-Baselines3's buffers are wrong and ours are right."""

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common import buffers

from framestow.integrations.stable_baselines3 import NStepReplayBuffer, ReplayBuffer

SPACE, ACTIONS = spaces.Box(0, 255, (2, 3, 3), np.uint8), spaces.Discrete(9)


def stack(*frames):
    """One environment's stack of two frames, each of one number."""
    return np.stack([np.full((3, 3), frame, np.uint8) for frame in frames])[None]


# Two episodes of frames 1 2 3 and 11 12 13: observation, next observation, reward, done, truncated.
FIRST = [(stack(0, 1), stack(1, 2), 1.0, False, False), (stack(1, 2), stack(2, 3), 10.0, True, True)]
SECOND = [(stack(0, 11), stack(11, 12), 100.0, False, False), (stack(11, 12), stack(12, 13), 1000.0, False, False)]


def added(buffer, steps):
    for observation, after, reward, done, is_truncated in steps:
        infos = [{"TimeLimit.truncated": is_truncated}]
        buffer.add(observation, after, np.array([4]), np.array([reward], np.float32), np.array([done]), infos)
    return buffer


def cut(steps):
    """The same without end flags: the algorithm resets its environment in mid-episode."""
    return [(*step[:3], False, False) for step in steps]


def sampled(buffer, row):
    sample = buffer._get_samples(np.array([row]))
    return sample.next_observations[0, :, 0, 0].tolist(), sample.dones.item(), sample.rewards.item()


def made(kind, optimizes=True, handles_timeouts=False, **settings):
    return kind(8, SPACE, ACTIONS, "cpu", 1, optimizes, handles_timeouts, **settings)


def test_the_next_observation_of_a_last_step_is_its_episodes_last_observation():
    theirs, ours = added(made(buffers.ReplayBuffer), FIRST + SECOND), added(made(ReplayBuffer), FIRST + SECOND)

    assert [0, 11] == sampled(theirs, 1)[0]
    assert [2, 3] == sampled(ours, 1)[0]


def test_optimize_memory_usage_and_timeout_handling_can_be_combined():
    with pytest.raises(ValueError, match="does not support optimize_memory_usage = True and handle_timeout"):
        made(buffers.ReplayBuffer, handles_timeouts=True)

    assert ([2, 3], 0.0, 10.0) == sampled(added(made(ReplayBuffer, handles_timeouts=True), FIRST + SECOND), 1)


def test_an_episode_cut_off_by_the_next_learn_does_not_terminate():
    theirs, ours = added(made(buffers.ReplayBuffer), cut(FIRST)), added(made(ReplayBuffer), cut(FIRST))
    for buffer in (theirs, ours):
        buffer.dones[(buffer.pos - 1) % buffer.buffer_size] = True  # as OffPolicyAlgorithm._setup_learn does
        added(buffer, SECOND)

    assert ([0, 11], 1.0, 10.0) == sampled(theirs, 1)
    assert ([2, 3], 0.0, 10.0) == sampled(ours, 1)


def test_a_cut_off_episode_ends_even_if_the_next_one_starts_with_its_last_observation():
    buffer = made(NStepReplayBuffer, optimizes=False, n_steps=2)
    same = stack(5, 5)
    added(buffer, [(same, same, 1.0, False, False)])
    buffer.dones[0] = True
    added(buffer, [(same, same, 10.0, False, False)])

    assert 1.0 == sampled(buffer, 0)[2]


def test_a_return_does_not_cross_a_reset_without_a_flag():
    n_step = {"optimizes": False, "n_steps": 3, "gamma": 0.5}
    theirs = added(made(buffers.NStepReplayBuffer, **n_step), cut(FIRST) + SECOND)
    ours = added(made(NStepReplayBuffer, **n_step), cut(FIRST) + SECOND)

    assert ([12, 13], 0.0, 10 + 50 + 250) == sampled(theirs, 1)
    assert ([2, 3], 0.0, 10.0) == sampled(ours, 1)
    assert 0.5 == ours._get_samples(np.array([1])).discounts.item()


class Looker:
    """Replaces a ``VecNormalize`` and records the buffer's timeouts while it samples."""

    def __init__(self, buffer):
        self.buffer, self.seen = buffer, []

    def normalize_reward(self, reward):
        self.seen.append(self.buffer.timeouts.sum())
        return reward

    def normalize_obs(self, observations):
        return observations


def test_sampling_never_changes_the_buffer():
    seen = {}
    for kind in (buffers.NStepReplayBuffer, NStepReplayBuffer):
        buffer = added(made(kind, optimizes=False, n_steps=2), SECOND)
        looker = Looker(buffer)
        buffer.sample(4, env=looker)
        seen[kind] = looker.seen

    assert {buffers.NStepReplayBuffer: [1.0], NStepReplayBuffer: [0.0]} == seen
