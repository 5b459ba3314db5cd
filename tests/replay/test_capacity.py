"""The ring's wrap: exactly the newest transitions are kept, with the history that was acted on."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.errors import InvalidSettingsError, NothingToSampleError
from oracles.numbered_steps import numbered_frame, numbered_memory, play_episode, steps_of

CAPACITY = 12


@pytest.mark.parametrize("num_steps", [1, 5, CAPACITY - 1, CAPACITY, CAPACITY + 1, 2 * CAPACITY - 1, 2 * CAPACITY + 5])
def test_the_newest_transitions_are_kept_with_the_stack_that_was_acted_on(num_steps):
    memory = numbered_memory(CAPACITY, stack=4)
    play_episode(memory, episode=0, length=num_steps)

    batch = memory.get(memory.sampleable_indices())

    newest = range(max(0, num_steps - CAPACITY), num_steps)
    expected = [[max(0, step - back) for back in (3, 2, 1, 0)] for step in newest]
    assert expected == [steps_of(observation) for observation in batch.observation]
    assert [step + 1 for step in newest] == [steps_of(stack)[-1] for stack in batch.next_observation]


@pytest.mark.parametrize(("capacity", "num_envs"), [(10, 3), (7, 4), (5, 5), (100, 7)])
def test_a_capacity_that_is_no_multiple_of_num_envs_is_exact(capacity, num_envs):
    memory = numbered_memory(capacity, num_envs)
    frames = np.stack([numbered_frame(env_id, 0, 0) for env_id in range(num_envs)])
    memory.begin(frames)
    flags = np.zeros(num_envs, bool)

    for step in range(capacity):
        memory.append(np.full(num_envs, step), np.zeros(num_envs), flags, flags, frames)

        assert min(capacity, (step + 1) * num_envs) == len(memory)


def test_an_index_is_never_reused_and_names_the_same_transition_while_it_is_stored():
    memory = numbered_memory(5)
    seen: dict[int, int] = {}

    for episode in range(6):
        play_episode(memory, episode, length=4, truncated=True)
        batch = memory.get(memory.sampleable_indices())
        for index, observation in zip(batch.index.tolist(), batch.observation, strict=True):
            identity = 10 * int(observation[-1, 0, 1]) + int(observation[-1, 0, 2])
            assert identity == seen.setdefault(index, identity)

    assert list(range(24)) == sorted(seen)


def test_an_evicted_transition_is_refused_by_its_index():
    memory = numbered_memory(5)
    play_episode(memory, episode=0, length=9)

    with pytest.raises(NothingToSampleError, match="transition 3 is not stored: it was evicted or never appended"):
        memory.get([5, 3])


def test_an_empty_memory_says_that_there_is_nothing_to_sample():
    memory = numbered_memory(5)
    memory.begin(numbered_frame(0, 0, 0)[None])

    with pytest.raises(NothingToSampleError, match="has no transition"):
        memory.sample(1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"capacity": 0}, "capacity is 0"),
        (
            {"capacity": 2, "num_envs": 3},
            "capacity is 2: one transition of each of the 3 environments must fit; raise it to 3",
        ),
        ({"capacity": 5, "num_envs": 0}, "num_envs is 0"),
        ({"capacity": 5, "stack": 0}, "stack is 0"),
        ({"capacity": 5, "discount": 1.5}, "discount is 1.5"),
        (
            {"capacity": 5, "stack_padding": "edge"},
            "stack_padding is 'edge': it must be one of 'first_frame', 'zeros'; take 'first_frame'",
        ),
        ({"capacity": 5, "storage": "zip"}, "storage is 'zip': it must be one of 'packed', 'raw'"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_construction(settings, message):
    with pytest.raises(InvalidSettingsError, match=message):
        numbered_memory(**settings)
