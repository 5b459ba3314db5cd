"""The ring's wrap: exactly the newest transitions are kept, with the history that was acted on."""

from __future__ import annotations

import pytest

from framestow.errors import NothingToSampleError
from oracles.numbered_steps import numbered_frame, numbered_memory, play_episode


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
