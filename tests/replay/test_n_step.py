"""Returns of n steps: at every kind of end, at the cursor, while they wait, and after loading."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.errors import InvalidSettingsError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.numbered_steps import SHAPE, numbered_frame, numbered_memory, play_episode, steps_of
from oracles.shadowed_memory import ShadowedMemory

ALL_N = range(1, 11)


def shadowed(capacity: int, n_step: int, num_envs: int = 1, **settings) -> ShadowedMemory:
    settings = {"seed": 0, "stack": 3, "discount": 0.9, "num_envs": num_envs} | settings
    return ShadowedMemory(capacity, FrameSpec(SHAPE), 256, n_step=n_step, **settings)


def step(memory: ReplayMemory, number: int, env_id: int = 0, *, terminated=False, truncated=False) -> None:
    frame = numbered_frame(env_id, 0, number + 1)[None]
    memory.append([number], [number + 0.1], [terminated], [truncated], frame, [env_id])


@pytest.mark.each_value
@pytest.mark.parametrize("n_step", ALL_N)
@pytest.mark.parametrize("ending", ["terminated", "truncated", "both", "cut off", "open"])
def test_episodes_of_every_length_and_end_equal_the_oracle(n_step, ending):
    for length in (1, 2, n_step - 1, n_step, n_step + 1, 2 * n_step + 1):
        memory = shadowed(80, n_step)
        flags = {"terminated": ending in ("terminated", "both"), "truncated": ending in ("truncated", "both")}
        for episode in range(3):
            play_episode(memory, episode, length, **flags)
        if ending == "cut off":
            memory.begin(numbered_frame(0, 3, 0)[None])

        assert_memory_is_what_the_oracle_holds(memory, memory.oracle)
        num_waiting = min(n_step - 1, length) if ending == "open" else 0
        assert 3 * length - num_waiting == len(memory)


@pytest.mark.parametrize("n_step", ALL_N)
def test_the_write_cursor_never_changes_a_stored_transition(n_step):
    memory = shadowed(40, n_step, num_envs=3)
    random, first_seen = np.random.default_rng(n_step), {}
    memory.begin(np.stack([numbered_frame(env_id, 0, 0) for env_id in range(3)]))
    for number in range(120):
        for env_id in random.permutation(3)[: random.integers(1, 4)].tolist():
            ends = random.random() < 0.08
            step(memory, number, env_id, terminated=ends, truncated=random.random() < 0.04)
            if not memory.open_episodes[env_id] or random.random() < 0.02:
                memory.begin(numbered_frame(env_id, 0, 0)[None], [env_id])
        if number % 5 == 0:
            assert_memory_is_what_the_oracle_holds(memory, memory.oracle)
        if len(memory):
            batch = memory.get(memory.sampleable_indices())
            for row, index in enumerate(batch.index.tolist()):
                seen = (batch.reward[row], batch.discount[row], batch.next_observation[row].tobytes())
                assert seen == first_seen.setdefault(index, seen), f"transition {index}"


def test_a_pending_transition_is_neither_counted_nor_sampled():
    memory = numbered_memory(20, n_step=3)
    play_episode(memory, 0, length=2)

    assert 0 == len(memory)
    with pytest.raises(NothingToSampleError, match="has no transition"):
        memory.sample(1)
    with pytest.raises(NothingToSampleError, match="transition 0 is pending: its return lacks later steps"):
        memory.get([0])

    step(memory, 2)

    assert [0] == memory.sampleable_indices().tolist()
    assert [0] == memory.sample(1).index.tolist()


def test_observations_share_their_frames_if_every_return_of_the_batch_has_all_its_steps():
    memory = numbered_memory(50, n_step=3, stack=4)
    play_episode(memory, 0, length=20, terminated=True)

    whole, with_an_ended_one = memory.get([2, 9]), memory.get([9, 18])

    assert np.shares_memory(whole.observation, whole.next_observation)
    assert not np.shares_memory(with_an_ended_one.observation, with_an_ended_one.next_observation)
    assert [[0, 0, 1, 2], [6, 7, 8, 9]] == [steps_of(stack) for stack in whole.observation]
    assert [[2, 3, 4, 5], [9, 10, 11, 12]] == [steps_of(stack) for stack in whole.next_observation]
    assert [[6, 7, 8, 9], [15, 16, 17, 18]] == [steps_of(stack) for stack in with_an_ended_one.observation]
    assert [[9, 10, 11, 12], [17, 18, 19, 20]] == [steps_of(stack) for stack in with_an_ended_one.next_observation]


def test_rewards_are_summed_in_double():
    memory = numbered_memory(20, n_step=3, discount=1.0)
    memory.begin(numbered_frame(0, 0, 0)[None])
    for number, reward in enumerate((2.0**24, 1.0, -(2.0**24))):  # in float32, 2**24 + 1 is 2**24
        memory.append([0], [reward], [False], [False], numbered_frame(0, 0, number + 1)[None])

    assert [1.0] == memory.get([0]).reward.tolist()


def test_pending_steps_are_reported_and_exported_with_their_episode():
    memory = numbered_memory(50, n_step=4)
    play_episode(memory, 0, length=5, terminated=True)
    play_episode(memory, 1, length=6)

    ended, going_on = memory.episodes()

    assert [0.0, 1.0, 2.0, 3.0, 4.0] == ended.rewards.tolist()
    assert [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] == going_on.rewards.tolist()
    assert list(range(7)) == steps_of(going_on.frames())


@pytest.mark.parametrize("storage", ["packed", "raw"])
def test_under_a_budget_pending_steps_are_evicted_as_others(storage):
    random = np.random.default_rng(0)
    memory = ReplayMemory(
        50_000, FrameSpec((40, 40)), 4, stack=4, n_step=10, num_envs=2, max_bytes="4 MiB", storage=storage, seed=0
    )
    noise = random.integers(0, 256, (64, 2, 40, 40), dtype=np.uint8)
    memory.begin(noise[0])
    for number in range(3000):
        ends = random.random(2) < 0.01
        memory.append([0, 1], [number, number], ends, [False, False], noise[number % 64])
        if ends.any():
            memory.begin(noise[0][ends], np.flatnonzero(ends))
        if number % 500 == 499:
            memory.inner.parts.check()
            batch = memory.get(memory.sampleable_indices())
            assert 0 < len(batch) == len(memory) < 2 * number
    assert memory.nbytes < 4 << 20


def test_a_capacity_below_one_whole_return_of_every_environment_is_refused():
    with pytest.raises(InvalidSettingsError, match="capacity is 14: 5 steps of each of 3 environments must fit"):
        numbered_memory(14, num_envs=3, n_step=5)
    memory = shadowed(15, n_step=5, num_envs=3)
    memory.begin(np.stack([numbered_frame(env_id, 0, 0) for env_id in range(3)]))
    for number in range(20):
        for env_id in range(3):
            step(memory, number, env_id)
        assert_memory_is_what_the_oracle_holds(memory, memory.oracle)
    assert 3 == len(memory)


def test_n_may_be_as_large_as_255():
    memory = shadowed(600, n_step=255)
    play_episode(memory, 0, length=254, truncated=True)
    play_episode(memory, 1, length=300 - 45)

    assert 255 == len(memory)
    assert_memory_is_what_the_oracle_holds(memory, memory.oracle)
