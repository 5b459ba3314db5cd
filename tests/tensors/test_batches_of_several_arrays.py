"""Batches of Dict and Tuple observations become dicts and tuples of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from framestow import ReplayMemory
from framestow.torch.batch_loader import BatchLoader
from framestow.torch.tensor_batch import to_tensors
from oracles.observations_of_bytes import NUM_BYTES, SPACE, MemoryOfBytes, join

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
    ),
]


def filled() -> ReplayMemory:
    memory = MemoryOfBytes(ReplayMemory(100, SPACE, 4, stack=3, num_envs=2, seed=0))
    frames = np.random.default_rng(0).integers(0, 256, (60, 2, NUM_BYTES), dtype=np.uint8)
    memory.begin(frames[0])
    for step in range(1, 60):
        memory.append([1, 2], [step, 0], [False] * 2, [False] * 2, frames[step])
    return memory.inner


def as_arrays(tensors: Any) -> Any:
    if isinstance(tensors, dict):
        return {key: as_arrays(part) for key, part in tensors.items()}
    if isinstance(tensors, tuple):
        return tuple(as_arrays(part) for part in tensors)
    return tensors.cpu().numpy()


@pytest.mark.parametrize("device", DEVICES)
def test_every_array_of_a_nested_batch_becomes_a_tensor(device):
    batch = filled().sample(16)

    tensors = to_tensors(batch, device)

    np.testing.assert_array_equal(join(batch.observation), join(as_arrays(tensors.observation)))
    np.testing.assert_array_equal(join(batch.next_observation), join(as_arrays(tensors.next_observation)))
    assert {device} == {tensors.observation["camera"].device.type, tensors.next_observation["arm"][1].device.type}


@pytest.mark.parametrize("device", DEVICES)
def test_a_loader_gives_what_sample_gives_by_key(device):
    sampled = filled()

    with BatchLoader(filled(), 16, device, threads=2) as loader:
        for _ in range(5):
            expected, batch = sampled.sample(16), next(loader)
            np.testing.assert_array_equal(expected.index, batch.index.numpy())
            np.testing.assert_array_equal(join(expected.observation), join(as_arrays(batch.observation)))
            np.testing.assert_array_equal(join(expected.next_observation), join(as_arrays(batch.next_observation)))
