"""A saved step store: sealed blocks that never change, and a small state."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from framestow.errors import DamagedDataError
from framestow.replay.eviction.retention import RandomRetention
from framestow.replay.steps.block_steps import BlockSteps
from framestow.replay.steps.ring_steps import STEPS_PER_BLOCK, RingSteps
from framestow.replay.steps.step_store import StepSettings
from oracles.listed_steps import ACTION, DISCOUNT, PlayedSteps

STACK, NUM_ENVS, SEGMENT_FRAMES, CAPACITY = 4, 3, 16, 3500


def steps(n_step: int) -> StepSettings:
    return StepSettings(CAPACITY, NUM_ENVS, STACK, ACTION, DISCOUNT, SEGMENT_FRAMES, n_step=n_step)


def ring(n_step: int = 1) -> RingSteps:
    return RingSteps(steps(n_step))


def blocks(n_step: int = 1) -> BlockSteps:
    return BlockSteps(steps(n_step), RandomRetention(0))


STEP_STORES = [ring, blocks, partial(ring, 5), partial(blocks, 5), partial(blocks, 30)]


class Store:
    """Save blocks and state, and check that no block ever changes."""

    def __init__(self) -> None:
        self.blocks: dict[tuple[int, int], bytes] = {}
        self.state: dict[str, np.ndarray] = {}

    def commit(self, step_store) -> None:
        keys = step_store.list_sealed_steps()
        assert len(set(keys)) == len(keys)
        blocks = {key: step_store.step_block(key) for key in keys}
        for key in set(blocks) & set(self.blocks):
            assert self.blocks[key] == blocks[key], f"block {key} changed"
        self.blocks, self.state = blocks, {name: array.copy() for name, array in step_store.state().items()}


def restored(make, store: Store):
    step_store = make()
    num_lost = step_store.restore(store.state, store.blocks.get)
    step_store.check()
    return step_store, num_lost


def assert_same(played: PlayedSteps, step_store) -> None:
    sampleable = played.step_store.sampleable_indices()
    np.testing.assert_array_equal(sampleable, step_store.sampleable_indices())
    for expected, actual in zip(played.step_store.resolve(sampleable), step_store.resolve(sampleable), strict=True):
        for one, other in zip(expected, actual, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("make", STEP_STORES)
def test_state_and_sealed_blocks_restore_everything_and_blocks_never_change(make):
    played, store = PlayedSteps(make(), SEGMENT_FRAMES, seed=0), Store()
    for _ in range(14):
        played.play(200)
        store.commit(played.step_store)

        step_store, num_lost = restored(make, store)

        assert 0 == num_lost
        assert_same(played, step_store)
        played.step_store = step_store  # continue with the restored step store
    assert len(store.blocks) >= 2


@pytest.mark.parametrize("make", STEP_STORES)
def test_the_state_without_sealed_blocks_is_small(make):
    played = PlayedSteps(make(), SEGMENT_FRAMES, seed=0)
    played.play(2500)
    step_store = played.step_store

    outside = len(step_store.state()["steps.env_id"])

    assert outside <= max(2 * STEPS_PER_BLOCK, NUM_ENVS * 2 * SEGMENT_FRAMES)


@pytest.mark.parametrize("make", STEP_STORES)
def test_a_missing_or_damaged_block_loses_exactly_its_transitions(make):
    played, store = PlayedSteps(make(), SEGMENT_FRAMES, seed=2), Store()
    played.play(2500)
    store.commit(played.step_store)
    whole = set(played.step_store.sampleable_indices().tolist())
    *_, cut, missing = store.blocks  # the newest, so that earlier n-step returns include them
    blocks = dict(store.blocks)
    del store.blocks[missing]
    store.blocks[cut] = store.blocks[cut][:-1]

    step_store, num_lost = restored(make, store)

    lost = whole - set(step_store.sampleable_indices().tolist())
    assert num_lost == len(lost) > 0
    rewards = {block: np.frombuffer(blocks[block], slot_dtype(step_store)) for block in (missing, cut)}
    gone = {int(reward) for slots in rewards.values() for reward in slots["reward"].tolist()}
    for number in played.numbers_of(np.array(sorted(lost))):
        assert gone & {int(step.reward) for step in played.steps[number].steps}, f"transition {number}"
    for number in played.numbers_of(step_store.sampleable_indices()):
        assert not gone & {int(step.reward) for step in played.steps[number].steps}, f"transition {number}"
    played.step_store = step_store
    played.play(3000)  # lost transitions are evicted like all others
    assert CAPACITY - 3 * STEPS_PER_BLOCK < len(step_store) <= CAPACITY
    played.held_numbers()


@pytest.mark.parametrize("make", STEP_STORES)
def test_lost_transitions_stay_lost_after_saving_and_are_not_counted_again(make):
    played, store = PlayedSteps(make(), SEGMENT_FRAMES, seed=3), Store()
    played.play(2500)
    played.step_store.lose(0, played.newest[0] - 40, played.newest[0] - 20)
    store.commit(played.step_store)
    store.blocks.pop(next(iter(store.blocks)))
    once, _ = restored(make, store)
    again = Store()
    again.commit(once)

    twice, num_lost = restored(make, again)

    assert 0 == num_lost
    np.testing.assert_array_equal(once.sampleable_indices(), twice.sampleable_indices())
    assert set(again.blocks) <= set(store.blocks)
    played.step_store = twice
    played.play(20)
    played.held_numbers()


@pytest.mark.parametrize("make", STEP_STORES)
def test_open_episodes_continue_after_restoring(make):
    played, store = PlayedSteps(make(), SEGMENT_FRAMES, seed=4), Store()
    played.play(100, end_chance=0.0)
    store.commit(played.step_store)
    played.step_store, _ = restored(make, store)

    played.play(100, end_chance=0.0)

    numbers = played.held_numbers()
    assert len(played.steps) == len(numbers) + len(played.step_store.pending)


@pytest.mark.parametrize("make", STEP_STORES)
def test_a_block_that_is_not_sealed_is_refused(make):
    played = PlayedSteps(make(), SEGMENT_FRAMES, seed=0)
    played.play(10)

    with pytest.raises(IndexError, match="use a key from list_sealed_steps"):
        played.step_store.step_block((0, 0))


@pytest.mark.parametrize("make", STEP_STORES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps.newest_positions", np.zeros(NUM_ENVS + 1, np.int64)),
        ("steps.position", np.zeros(3, np.uint32)),
        ("steps.env_id", np.full(3, NUM_ENVS, np.uint8)),
    ],
)
def test_arrays_of_another_step_store_are_refused(make, name, value):
    played = PlayedSteps(make(), SEGMENT_FRAMES, seed=0)
    played.play(10)

    with pytest.raises(DamagedDataError, match="load an older save"):
        make().restore(played.step_store.state() | {name: value}, lambda key: None)


def slot_dtype(step_store) -> np.dtype:
    state = step_store.state()
    fields = ("position", "reward", "flags", "history", "env_id", "action")
    return np.dtype(
        [
            (name, state[f"{'steps' if name in ('position', 'history', 'env_id') else 'columns'}.{name}"].dtype)
            for name in fields
        ]
    )
