"""Compares what the reader in plain Python finds in a store with what a memory of it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from framestow.replay.memory import ReplayMemory
from oracles.plain_store import PlainStore


def assert_a_plain_reader_finds_the_transitions_of(memory: ReplayMemory, store: Path) -> None:
    """Every transition, oldest first. Flags and rewards are those of one step, so ``n_step`` above 1 omits them."""
    plain = PlainStore(store)
    steps = plain.steps()

    assert len(memory) == len(steps)
    if not steps:
        return
    batch = memory.get(memory.sampleable_indices())
    assert np.array_equal(np.stack([step.action for step in steps]), batch.action)
    observations = [("observation", batch.observation)]
    if plain.settings["n_step"] == 1:
        assert [step.reward for step in steps] == batch.reward.tolist()
        assert [step.terminated for step in steps] == batch.terminated.tolist()
        assert [step.truncated for step in steps] == batch.truncated.tolist()
        observations.append(("next_observation", batch.next_observation))
    for name, values in batch.extras.items():
        assert np.array_equal(np.stack([step.extras[name] for step in steps]), values)
    for name, arrays in observations:
        for array, stacks in enumerate(arrays_of(arrays)):
            for step, stack in zip(steps, stacks, strict=True):
                shown = getattr(step, name)[array]
                assert (shown.shape, shown.dtype) == (stack.shape, stack.dtype)
                assert shown.tobytes() == np.ascontiguousarray(stack).tobytes()
    assert {step.env_id for step in steps} <= set(range(memory.num_envs))


def arrays_of(observations: Any) -> list[Any]:
    """The arrays of a batch's observations, of a dict in the order of its keys."""
    if isinstance(observations, dict | tuple):
        parts = observations.values() if isinstance(observations, dict) else observations
        return [array for part in parts for array in arrays_of(part)]
    return [observations]
