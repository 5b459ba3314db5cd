"""What ``repr`` prints of batches as tensors, loaders and shifts."""

from __future__ import annotations

import numpy as np

from framestow import FrameSpec, ReplayMemory
from framestow import torch as face


def test_a_batch_of_tensors_shows_shapes_dtypes_and_device_instead_of_numbers():
    memory = ReplayMemory(10, FrameSpec((2, 2)), 4, stack=3)
    memory.begin(np.zeros((1, 2, 2), np.uint8))
    memory.append([3], [0.5], [False], [True], np.ones((1, 2, 2), np.uint8))

    assert "Batch(1 transition, observation (1, 3, 2, 2) uint8, action (1,) int64, on cpu)" == repr(
        face.to_tensors(memory.sample(1))
    )
    sequences = face.to_tensors(memory.sample_sequences(1, 1))
    arrays = "observation (1, 1, 3, 2, 2) uint8, action (1, 1) int64"
    assert f"SequenceBatch(1 sequence of 1 step, {arrays}, on cpu)" == repr(sequences)


def test_a_loader_says_where_its_batches_are_and_what_prepares_them():
    memory = ReplayMemory(10, FrameSpec((2, 2)), 4, stack=3)
    with face.BatchLoader(memory, 4) as loader, face.SequenceLoader(memory, 4, 2, ahead=1, threads=2) as other:
        assert "BatchLoader(batches on cpu, 2 ahead, 1 thread)" == repr(loader)
        assert "SequenceLoader(batches on cpu, 1 ahead, 2 threads)" == repr(other)


def test_a_random_shift_is_shown_as_the_call_that_builds_it():
    assert "RandomShift(pad=4, channels_last=False)" == repr(face.RandomShift())
