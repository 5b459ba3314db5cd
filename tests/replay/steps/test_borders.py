"""A border begins a stretch within an episode: windows never cross it, and nothing else ends there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow._core import BEGINS_EPISODE, BORDER, TERMINATED
from framestow.errors import DamagedDataError
from framestow.replay.eviction.retention import RandomRetention
from framestow.replay.steps.block_steps import BlockSteps
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import EPISODE_KEYS, StepSettings
from oracles.listed_steps import ACTION, DISCOUNT, FramedSteps, PlayedSteps

SEGMENT_FRAMES = 24
MAKERS = {"fifo": RingSteps, "random": lambda steps: BlockSteps(steps, RandomRetention(0))}
STEP_STORES = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def steps_of(num_envs: int, stack: int, n_step: int = 1, extra: int = 0) -> StepSettings:
    capacity = 24 * (num_envs + 6) + num_envs * stack + extra
    return StepSettings(capacity, num_envs, stack, ACTION, DISCOUNT, SEGMENT_FRAMES, n_step=n_step)


def play(step_store, borders: list[bool], ends: list[bool] | None = None) -> None:
    """Step environment 0 of an empty store once for each entry of ``borders``; episodes begin by themselves."""
    played = FramedSteps(step_store, SEGMENT_FRAMES)
    for is_border, has_ended in zip(borders, ends or [False] * len(borders), strict=True):
        if not step_store.is_open[0]:
            played.begin([0])
        played.append([0], [0], [1.0], [has_ended], [is_border])


def windows(step_store, **arguments) -> list[tuple[int, int]]:
    """First and last frame of each window."""
    _, lasts, counts = step_store.resolve(step_store.sampleable_indices(), **arguments)[0]
    return list(zip((lasts - counts + 1).tolist(), lasts.tolist(), strict=True))


@STEP_STORES
def test_a_stretch_begins_with_the_next_observation_of_a_border(make):
    step_store = make(steps_of(1, stack=3))

    play(step_store, [False, True, False, False])

    observations, next_observations = [(0, 0), (0, 1), (2, 2), (2, 3)], [(0, 1), (2, 2), (2, 3), (2, 4)]
    assert observations + next_observations == windows(step_store)
    assert [BEGINS_EPISODE, BORDER, 0, 0] == step_store.flags_of(np.arange(4)).tolist()
    assert ([0], [2], [4]) == (
        step_store.episode_starts.tolist(),
        step_store.stretch_starts.tolist(),
        step_store.newest_positions.tolist(),
    )


@STEP_STORES
def test_a_border_ends_no_episode_and_a_border_at_an_end_begins_none(make):
    step_store = make(steps_of(1, stack=3))

    play(step_store, [True, True, False], [False, True, False])

    assert [BEGINS_EPISODE | BORDER, TERMINATED | BORDER, BEGINS_EPISODE] == step_store.flags_of(
        np.array([0, 1, step_store.sampleable_indices()[-1]])
    ).tolist()
    indices = step_store.sampleable_indices()
    assert [indices[:2].tolist(), [indices[1], -1]] == step_store.follow(indices[:2], 2)[0].tolist()
    assert [2.0, 1.0, 1.0] == step_store.returns_to_go(indices, 1.0).tolist()


@STEP_STORES
@pytest.mark.parametrize("n_step", [1, 2, 3])
def test_windows_are_merged_only_without_a_border_in_any_transition(make, n_step):
    step_store = make(steps_of(1, stack=4, n_step=n_step))

    play(step_store, [False] * 6 + [True] + [False] * 6)

    indices = step_store.sampleable_indices()
    assert 2 * len(indices) == len(windows(step_store, merges_windows=True))
    before = indices[: 7 - n_step]  # up to the last transition without the border
    assert len(before) == len(step_store.resolve(before, merges_windows=True)[0][0])
    assert 2 * len(before) + 2 == len(step_store.resolve(indices[: len(before) + 1], merges_windows=True)[0][0])


@STEP_STORES
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    num_envs=st.integers(1, 4),
    stack=st.integers(1, 6),
    n_step=st.integers(1, 8),
    seed=st.integers(0, 10_000),
    end_chance=st.sampled_from([0.0, 0.05, 0.4]),
    border_chance=st.sampled_from([0.03, 0.3, 1.0]),
    num_steps=st.sampled_from([20, 150, 500]),
)
def test_transitions_are_the_played_ones_with_borders_anywhere(
    make, num_envs, stack, n_step, seed, end_chance, border_chance, num_steps
):
    played = PlayedSteps(make(steps_of(num_envs, stack, n_step)), SEGMENT_FRAMES, seed)
    played.play(num_steps, end_chance, border_chance)
    env_id = int(played.random.integers(num_envs))
    first = int(played.random.integers(played.newest[env_id] + 1))
    expected = [n for n in played.held_numbers() if not played.steps[n].references(env_id, first, first + 4)]

    played.step_store.lose(env_id, first, first + 4)

    assert expected == played.held_numbers()
    blocks = {key: played.step_store.step_block(key) for key in played.step_store.list_sealed_steps()}
    state = played.step_store.state()
    played.step_store = make(steps_of(num_envs, stack, n_step))
    assert 0 == played.step_store.restore(state, blocks.get)
    assert expected == played.held_numbers()
    played.play(60, end_chance, border_chance)
    played.held_numbers()


@STEP_STORES
@pytest.mark.parametrize("stack", [1, 3])
def test_episodes_are_told_from_stretches_by_the_steps_alone(make, stack):
    played = PlayedSteps(make(steps_of(2, stack, extra=900)), SEGMENT_FRAMES, seed=5)
    played.play(300, 0.1, 0.5)
    blocks = {key: played.step_store.step_block(key) for key in played.step_store.list_sealed_steps()}
    state = {name: array for name, array in played.step_store.state().items() if name not in EPISODE_KEYS}
    loaded = make(steps_of(2, stack, extra=900))

    loaded.restore(state, blocks.get)

    sampleable = played.step_store.sampleable_indices()
    assert len(sampleable) == len(played.steps)
    np.testing.assert_array_equal(played.step_store.follow(sampleable, 1)[1], loaded.follow(sampleable, 1)[1])
    np.testing.assert_array_equal(played.step_store.stretch_starts, loaded.stretch_starts)
    loaded.check()


@STEP_STORES
def test_stretch_starts_of_another_number_of_environments_are_refused(make):
    step_store = make(steps_of(2, stack=2))
    state = step_store.state() | {"steps.run_starts": np.zeros(3, np.int64)}

    with pytest.raises(DamagedDataError, match="run_starts has shape"):
        make(steps_of(2, stack=2)).restore(state, {}.get)


@STEP_STORES
def test_the_flags_of_a_step_that_is_not_stored_are_refused(make):
    with pytest.raises(IndexError, match="transition 3 is not stored"):
        make(steps_of(1, stack=2)).flags_of(np.array([3]))
