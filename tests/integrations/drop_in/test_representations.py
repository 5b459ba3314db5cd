"""What ``repr`` prints of the drop-ins, before the first step and after: one line with their number of steps."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from framestow.integrations import classic, cleanrl, stable_baselines3, torchrl

BOX, ACTIONS = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8), gymnasium.spaces.Discrete(4)
BEFORE, AFTER = np.zeros((2, 4, 84, 84), np.uint8), np.zeros((2, 4, 84, 84), np.uint8)  # of two environments
ZEROS = np.zeros(2)


def rows(module):
    buffer = module.ReplayBuffer(1_000, BOX, ACTIONS, "cpu", n_envs=2)
    return buffer, lambda: buffer.add(BEFORE, AFTER, np.zeros((2, 1), int), ZEROS, ZEROS, [{}, {}])


def prioritized():
    buffer = cleanrl.PrioritizedReplayBuffer(1_000, BOX.shape, "cpu", n_step=1, gamma=0.99, num_envs=2)
    return buffer, lambda: buffer.add(BEFORE, [0, 0], ZEROS, AFTER, [False, True])


def berkeley():
    buffer = classic.ReplayBuffer(1_000, 4)
    frame = np.zeros((84, 84, 1), np.uint8)
    return buffer, lambda: [buffer.store_effect(buffer.store_frame(frame), 0, 1.0, False) for _ in range(3)]


def nnabla():
    buffer = classic.MemoryEfficientAtariBuffer(1_000)
    return buffer, lambda: [buffer.append((BEFORE[0], 1, 0.0, 1.0, AFTER[0])) for _ in range(2)]


def of_torchrl(channels, frame_stack):
    storage, pixels = torchrl.FramestowStorage(1_000, frame_stack=frame_stack), torch.zeros(2, channels, 84, 84).byte()
    after = TensorDict({"pixels": pixels, "done": torch.zeros(2, 1, dtype=torch.bool)}, [2])
    return storage, lambda: storage.set(range(2), TensorDict({"pixels": pixels, "next": after}, [2]))


MAKERS = [lambda: rows(cleanrl), lambda: rows(stable_baselines3), prioritized, berkeley, nnabla]
MAKERS += [lambda: of_torchrl(4, None), lambda: of_torchrl(1, 4)]


@pytest.mark.parametrize("make", MAKERS)
def test_a_drop_in_counts_its_steps(make):
    buffer, add_two = make()
    empty = repr(buffer)

    add_two()

    for line, count in ((empty, 0), (repr(buffer), 2)):
        assert re.fullmatch(rf"{type(buffer).__name__}\({count} of 1,000 .*\)", line)
        assert "unknown" not in line
