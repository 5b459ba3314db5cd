"""Every stored transition is equally likely, reproducibly."""

from __future__ import annotations

import numpy as np
import pytest

from oracles.chi_square import chi_square, chi_square_bound
from oracles.numbered_steps import numbered_memory, play_episode


@pytest.mark.parametrize(
    ("capacity", "num_envs", "num_episodes"),
    [(50, 1, 2), (50, 1, 40), (64, 3, 9), (1000, 2, 3)],
    ids=["not yet full", "wrapped", "three environments", "nearly every slot empty"],
)
def test_every_stored_transition_is_equally_likely(capacity, num_envs, num_episodes):
    memory = numbered_memory(capacity, num_envs, seed=3)
    for episode in range(num_episodes):
        for env_id in range(num_envs):
            play_episode(memory, episode, length=1 + (episode + env_id) % 5, env_id=env_id, truncated=True)

    drawn = np.concatenate([memory.sample(1000).index for _ in range(40)])

    held = memory.sampleable_indices()
    counts = np.bincount(drawn - held[0], minlength=len(held))
    assert len(held) == len(counts)
    assert chi_square(counts) < chi_square_bound(len(held) - 1)


def test_the_same_seed_draws_the_same_and_another_does_not():
    memories = [numbered_memory(100, seed=seed) for seed in (5, 5, 6)]
    for memory in memories:
        play_episode(memory, episode=0, length=80)

    first, same, other = (memory.sample(30).index.tolist() for memory in memories)

    assert first == same
    assert first != other


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
