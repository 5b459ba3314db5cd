"""What ``repr`` prints of the drop-ins: their own number of transitions, and the size of the memory behind them."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from framestow.integrations import classic, cleanrl, stable_baselines3, torchrl

BOX, ACTIONS = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8), gymnasium.spaces.Discrete(4)
PAIR = np.zeros((2, 5, 84, 84), np.uint8)  # of two environments: an observation, and the frame after it


@pytest.mark.parametrize("module", [cleanrl, stable_baselines3], ids=["cleanrl", "stable_baselines3"])
def test_a_ring_of_rows_counts_the_transitions_of_all_environments(module):
    buffer = module.ReplayBuffer(1_000, BOX, ACTIONS, "cpu", n_envs=2)
    for _ in range(3):
        buffer.add(PAIR[:, :4], PAIR[:, 1:], np.zeros((2, 1), int), np.zeros(2), np.zeros(2), [{}, {}])

    assert re.fullmatch(r"ReplayBuffer\(6 of 1,000 transitions, [\d.]+ KiB, stack 4, 2 environments\)", repr(buffer)), (
        repr(buffer)
    )


def test_a_full_ring_has_its_capacity():
    buffer = cleanrl.ReplayBuffer(4, BOX, ACTIONS, "cpu")
    for _ in range(9):
        buffer.add(PAIR[:1, :4], PAIR[:1, 1:], np.zeros((1, 1), int), np.zeros(1), np.zeros(1), [{}])

    assert repr(buffer).startswith("ReplayBuffer(4 of 4 transitions, ")


def test_the_prioritized_buffer_of_cleanrl_adds_its_n_step():
    buffer = cleanrl.PrioritizedReplayBuffer(8, (4, 84, 84), "cpu", n_step=3, gamma=0.99)

    assert repr(buffer).startswith("PrioritizedReplayBuffer(0 of 8 transitions, ")
    assert repr(buffer).endswith(", 1 environment, n_step 3)")


def test_the_buffer_of_berkeley_has_a_repr_before_its_first_frame_and_after():
    buffer = classic.ReplayBuffer(1_000, 4)
    assert "ReplayBuffer(0 of 1,000 transitions, frame_history_len 4)" == repr(buffer)

    for _ in range(3):
        buffer.store_effect(buffer.store_frame(np.zeros((84, 84, 1), np.uint8)), 0, 1.0, False)
    assert re.fullmatch(r"ReplayBuffer\(2 of 1,000 transitions, [\d.]+ KiB, stack 4, 1 environment\)", repr(buffer))


def test_the_buffer_of_nnabla_has_a_repr_before_its_first_experience_and_after():
    buffer = classic.MemoryEfficientAtariBuffer(1_000)
    assert "MemoryEfficientAtariBuffer(0 of 1,000 experiences, stacked_frames 4)" == repr(buffer)

    buffer.append((PAIR[0, :4], 1, 0.0, 1.0, PAIR[0, 1:]))
    assert repr(buffer).startswith("MemoryEfficientAtariBuffer(1 of 1,000 transitions, ")


@pytest.mark.parametrize("frame_stack", [None, 4])
def test_the_storage_for_torchrl_shows_what_samples_have_before_its_first_step_and_after(frame_stack):
    storage = torchrl.FramestowStorage(1_000, frame_stack=frame_stack)
    stacked = "" if frame_stack is None else ", frame_stack 4"
    assert f"FramestowStorage(0 of 1,000 steps{stacked})" == repr(storage)

    pixels = torch.zeros(2, 4 if frame_stack is None else 1, 84, 84, dtype=torch.uint8)
    after = TensorDict({"pixels": pixels, "done": torch.zeros(2, 1, dtype=torch.bool)}, [2])
    storage.set(range(2), TensorDict({"pixels": pixels, "next": after}, [2]))
    shown = rf"FramestowStorage\(2 of 1,000 steps, [\d.]+ (KiB|MiB), pixels \(4, 84, 84\) uint8{stacked}\)"
    assert re.fullmatch(shown, repr(storage)), repr(storage)
