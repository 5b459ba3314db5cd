"""Sequences of steps equal those of plain lists: with either retention, with lost steps, and after saving."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow.replay.eviction.retention import RandomRetention
from framestow.replay.steps.block_steps import BlockSteps
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import EPISODE_KEYS, StepSettings
from oracles.listed_step_sequences import ListedStepSequences
from oracles.listed_steps import ACTION, PlayedSteps

MAKERS = {
    "fifo": lambda steps, seed: RingSteps(steps),
    "random": lambda steps, seed: BlockSteps(steps, RandomRetention(seed)),
}


def steps_for(num_envs: int, stack: int, extra: int = 0) -> StepSettings:
    return StepSettings(16 * (num_envs + 6) + num_envs * stack + extra, num_envs, stack, ACTION, 0.9, 16)


def play_sequence(retention: str, steps: StepSettings, seed: int, end_chance: float, num_steps: int) -> PlayedSteps:
    """Play episodes that end by a flag or are cut off; some have no step."""
    played = PlayedSteps(MAKERS[retention](steps, seed), 16, seed)
    for _ in range(0, num_steps, 40):
        played.play(40, end_chance)
        cut = np.flatnonzero(played.random.random(steps.num_envs) < 0.3).tolist()
        played.begin(cut)
        played.begin(cut[:1])
    return played


def assert_follows(played: PlayedSteps, length: int, stride: int) -> None:
    step_store = played.step_store
    sampleable = step_store.sampleable_indices()
    numbers = played.held_numbers()
    index_of = dict(zip(numbers, sampleable.tolist(), strict=True))
    lists = ListedStepSequences(played, set(numbers))
    for crosses in (False, True):
        indices, is_first = step_store.follow(sampleable, length, crosses)
        expected = [lists.following(number, length, crosses) for number in numbers]
        padded = [[index_of[number] for number in row] + [-1] * (length - len(row)) for row in expected]
        assert padded == indices.tolist()
        firsts = [[lists.start_of(number) == lists.position_of(number)[1] for number in row] for row in expected]
        assert [row + [False] * (length - len(row)) for row in firsts] == is_first.tolist()
    aligned = step_store.aligned_starts(sampleable, stride).tolist()
    assert [index_of[lists.aligned(number, stride)] for number in numbers] == aligned
    assert lists.spans() == sorted(zip(*(column.tolist() for column in step_store.readable_spans()), strict=True))
    returns = step_store.returns_to_go(sampleable, 0.9)
    np.testing.assert_array_equal([lists.return_to_go(number, 0.9) for number in numbers], returns)
    env_ids, positions = step_store.places(sampleable)
    assert [lists.position_of(number) for number in numbers] == list(
        zip(env_ids.tolist(), positions.tolist(), strict=True)
    )
    np.testing.assert_array_equal(sampleable, step_store.find_steps(env_ids, positions))
    np.testing.assert_array_equal(
        sampleable[sampleable > sampleable[len(sampleable) // 2]][:7],
        step_store.sampleable_after(sampleable[len(sampleable) // 2], 7),
    )


@pytest.mark.parametrize("retention", ["fifo", "random"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    num_envs=st.integers(1, 5),
    stack=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 1000),
    end_chance=st.sampled_from([0.0, 0.02, 0.1, 0.5]),
    num_steps=st.sampled_from([40, 200, 600]),
    num_lost=st.integers(0, 3),
    length=st.integers(1, 40),
    stride=st.integers(1, 12),
)
def test_sequences_of_steps_are_the_played_ones(
    retention, num_envs, stack, seed, end_chance, num_steps, num_lost, length, stride
):
    steps = steps_for(num_envs, stack)
    played = play_sequence(retention, steps, seed, end_chance, num_steps)
    for _ in range(num_lost):
        env_id = int(played.random.integers(num_envs))
        first = int(played.random.integers(played.newest[env_id] + 1))
        played.step_store.lose(env_id, first, first + 3)

    assert_follows(played, length, stride)

    blocks = {key: played.step_store.step_block(key) for key in played.step_store.list_sealed_steps()}
    state = played.step_store.state()
    loaded = MAKERS[retention](steps, seed)
    assert 0 == loaded.restore(state, blocks.get)
    for before, after in zip(played.step_store.starts(), loaded.starts(), strict=True):
        assert before.tolist() == after.tolist()
    played.step_store = loaded
    assert_follows(played, length, stride)
    played.play(60, end_chance)
    assert_follows(played, length, stride)


@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("stack", [1, 3])
def test_episode_starts_are_derived_from_the_steps_of_a_store_without_them(retention, stack):
    steps = steps_for(2, stack, extra=900)
    played = play_sequence(retention, steps, 5, 0.1, 400)
    blocks = {key: played.step_store.step_block(key) for key in played.step_store.list_sealed_steps()}
    state = {name: array for name, array in played.step_store.state().items() if name not in EPISODE_KEYS}
    loaded = MAKERS[retention](steps, 5)

    loaded.restore(state, blocks.get)

    sampleable = played.step_store.sampleable_indices()
    assert len(sampleable) == len(played.steps)
    np.testing.assert_array_equal(played.step_store.follow(sampleable, 1)[1], loaded.follow(sampleable, 1)[1])


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_the_number_of_known_episodes_does_not_grow_with_evicted_ones(retention):
    played = PlayedSteps(MAKERS[retention](steps_for(2, 2), 0), 16, 0)
    played.play(3000, 0.3)

    counts, _ = played.step_store.starts()

    assert played.step_store.capacity > counts.sum()
