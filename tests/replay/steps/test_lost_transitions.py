"""Lost frames make exactly the transitions lost that reference them."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.replay.eviction.retention import RandomRetention
from framestow.replay.steps.block_steps import BlockSteps
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import StepSettings
from oracles.listed_steps import ACTION, DISCOUNT, PlayedSteps

STACK, NUM_ENVS, SEGMENT_FRAMES = 4, 3, 16


def steps(capacity: int, n_step: int) -> StepSettings:
    return StepSettings(capacity, NUM_ENVS, STACK, ACTION, DISCOUNT, SEGMENT_FRAMES, n_step=n_step)


def ring(capacity: int, n_step: int = 1) -> RingSteps:
    return RingSteps(steps(capacity, n_step))


def blocks(capacity: int, n_step: int = 1) -> BlockSteps:
    return BlockSteps(steps(capacity, n_step), RandomRetention(0))


STEP_STORES = [ring, blocks]


@pytest.mark.each_value
@pytest.mark.parametrize("make", STEP_STORES)
@pytest.mark.parametrize(("seed", "n_step"), [(0, 1), (1, 1), (2, 1), (3, 2), (4, 3), (5, 10), (6, 40)])
def test_exactly_the_transitions_that_reference_lost_frames_are_not_sampleable(make, seed, n_step):
    played = PlayedSteps(make(500, n_step), SEGMENT_FRAMES, seed)
    random = np.random.default_rng(100 + seed)
    played.play(100)
    lost = []
    for _ in range(25):
        played.play(20)
        played.begin(random.permutation(NUM_ENVS)[: random.integers(3)].tolist())  # cuts off some episodes
        env_id = int(random.integers(NUM_ENVS))
        first = int(random.integers(max(0, played.newest[env_id] - 200), played.newest[env_id] + 1))
        before = int(random.integers(first + 1, played.newest[env_id] + 2))
        before = min(before, first + 30)
        sampleable = played.held_numbers()

        num_lost = played.step_store.lose(env_id, first, before)

        lost.append((env_id, first, before))
        expected = [number for number in sampleable if not played.steps[number].references(env_id, first, before)]
        assert expected == played.held_numbers()
        assert len(sampleable) - len(expected) == num_lost
    played.play(40)

    remaining = [played.steps[number] for number in played.held_numbers()]
    assert not any(step.references(*frames) for step in remaining for frames in lost)
    newest = range(len(played.steps) - 500, len(played.steps)) if make is ring else range(len(played.steps))
    gone = lost if make is ring else lost + played.evicted
    here = [number for number in played.whole_numbers() if number in newest]
    assert [n for n in here if not any(played.steps[n].references(*frames) for frames in gone)] == sorted(
        played.held_numbers()
    )


@pytest.mark.parametrize("make", STEP_STORES)
def test_a_later_step_that_references_lost_frames_is_never_sampleable(make):
    played = PlayedSteps(make(500), SEGMENT_FRAMES, seed=0)
    played.play(50, end_chance=0.0)
    newest = played.newest[1]
    played.step_store.lose(1, newest - 1, newest)  # but not the newest frame itself

    played.play(20, end_chance=0.0)

    of_env = [step for step in map(played.steps.__getitem__, played.held_numbers()) if step.env_id == 1]
    assert {newest} == {step.first for step in of_env if step.last > newest} & set(range(newest + 1))


@pytest.mark.parametrize("make", STEP_STORES)
def test_ranks_exclude_exactly_the_lost_transitions(make):
    played = PlayedSteps(make(500), SEGMENT_FRAMES, seed=1)
    played.play(200)
    for first in (10, 12, 50, 90, 91):
        played.step_store.lose(0, first, first + 3)
    step_store = played.step_store

    by_rank = step_store.sampleable_at(np.arange(len(step_store)))

    assert step_store.sampleable_indices().tolist() == by_rank.tolist()
    assert step_store.is_sampleable(by_rank).all()
    everything = np.arange(by_rank[-1] + 50)
    assert by_rank.tolist() == everything[step_store.is_sampleable(everything)].tolist()
    with pytest.raises(IndexError, match=f"rank {len(by_rank)} is not one of the {len(by_rank)} sampleable"):
        step_store.sampleable_at(np.array([len(by_rank)]))
    not_sampleable = everything[~step_store.is_sampleable(everything)]
    with pytest.raises(IndexError, match=f"transition {not_sampleable[-1]} is not stored"):
        step_store.resolve(not_sampleable[-1:])


@pytest.mark.parametrize("make", STEP_STORES)
def test_losing_frames_of_an_unknown_environment_is_refused(make):
    step_store = make(500)

    with pytest.raises(IndexError, match="environment is 3: it must be 0 to 2"):
        step_store.lose(3, 0, 5)
    assert 0 == step_store.lose(1, 5, 5)
