"""Every stored transition is equally likely, reproducibly."""

from __future__ import annotations

import numpy as np

from oracles.numbered_steps import numbered_memory, play_episode


def test_memories_without_a_seed_differ():
    memories = [numbered_memory(100, seed=None) for _ in range(2)]
    for memory in memories:
        play_episode(memory, episode=0, length=80)

    first, second = (memory.sample(30).index.tolist() for memory in memories)

    assert first != second


def test_a_batch_has_the_shapes_and_dtypes_of_its_docstring():
    memory = numbered_memory(100, stack=3)
    play_episode(memory, episode=0, length=20)

    batch = memory.sample(7)

    promised = {
        "observation": ((7, 3, 2, 3), np.uint8),
        "action": ((7,), np.int64),
        "reward": ((7,), np.float32),
        "discount": ((7,), np.float32),
        "next_observation": ((7, 3, 2, 3), np.uint8),
        "index": ((7,), np.int64),
        "weight": ((7,), np.float32),
        "terminated": ((7,), np.bool_),
        "truncated": ((7,), np.bool_),
    }
    assert promised == {name: (getattr(batch, name).shape, getattr(batch, name).dtype) for name in promised}
    assert 7 == len(batch)
    assert (batch.weight == 1).all()
