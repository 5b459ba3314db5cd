"""Compares a memory with the oracle, every sampleable transition of it."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.errors import InvalidStepError
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from oracles.list_memory import ListMemory


def assert_batch_is_what_the_oracle_holds(batch: Batch, oracle: ListMemory) -> None:
    for row, index in enumerate(batch.index.tolist()):
        step, last = oracle.steps[index], oracle.steps_of(index)[-1]
        expected = (oracle.reward_of(index), oracle.discount_of(index), last.terminated, last.truncated)
        actual = (
            batch.reward[row],
            batch.discount[row],
            batch.terminated[row],
            batch.truncated[row],
        )
        assert expected == actual, f"transition {index}"
        np.testing.assert_array_equal(step.action, batch.action[row], f"action of transition {index}")
        assert step.extras.keys() == batch.extras.keys(), f"transition {index}"
        for name, values in step.extras.items():
            assert values.dtype == batch.extras[name].dtype
            np.testing.assert_array_equal(values, batch.extras[name][row], f"{name} of transition {index}")
        np.testing.assert_array_equal(
            oracle.observation_of(index), batch.observation[row], f"observation of transition {index}"
        )
        np.testing.assert_array_equal(
            oracle.next_observation_of(index), batch.next_observation[row], f"next observation of transition {index}"
        )


def assert_memory_is_what_the_oracle_holds(memory: ReplayMemory, oracle: ListMemory) -> None:
    memory.inner.parts.check()
    indices = memory.sampleable_indices()
    assert oracle.held == indices.tolist()
    assert len(oracle.held) == len(memory)
    if len(indices):
        assert_batch_is_what_the_oracle_holds(memory.get(indices), oracle)
    seen = [oracle.observation(env_id) for env_id in range(len(memory.open_episodes))]
    if all(each is None for each in seen):
        with pytest.raises(InvalidStepError, match="no environment has begun an episode"):
            memory.observations()
        return
    for env_id, (expected, stack) in enumerate(zip(seen, memory.observations(), strict=True)):
        np.testing.assert_array_equal(
            np.zeros_like(stack) if expected is None else expected,
            stack,
            f"what the policy sees on environment {env_id}",
        )
