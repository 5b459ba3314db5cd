"""Sequences show what was played, step for step, and start where they may, as often as they may."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framestow.errors import InvalidSettingsError, NothingToSampleError
from framestow.frames.stacking import STACK_PADDINGS
from oracles.bordered_steps import append_with_borders
from oracles.chi_square import chi_square, chi_square_bound
from oracles.numbered_steps import numbered_frame, numbered_memory, play_episode
from oracles.sequence_workload import SequenceWorkload

BORDERS = ["mask", "inside", "cross"]


def numbers_of_starts(batch) -> list[int]:
    return batch.reward[:, 0].astype(int).tolist()


def assert_is_what_was_played(sequence: SequenceWorkload, batch_size: int, length: int, overlap, borders: str) -> None:
    lists = sequence.lists()
    stride = 1 if overlap is None else length - overlap
    fitting = set(lists.fitting(length, stride)) & set(sequence.oracle.held) if borders == "inside" else None
    if fitting is not None and not fitting:
        with pytest.raises(NothingToSampleError, match=f"length is {length}"):
            sequence.memory.sample_sequences(batch_size, length, overlap=overlap, borders=borders)
        return

    batch = sequence.memory.sample_sequences(batch_size, length, overlap=overlap, borders=borders, burn_in=length // 2)

    assert (batch_size, length) == batch.index.shape
    np.testing.assert_array_equal(batch.mask & (np.arange(length) >= length // 2), batch.learns)
    np.testing.assert_array_equal(np.ones(batch_size, np.float32), batch.weight)
    for row, start in enumerate(numbers_of_starts(batch)):
        assert start in sequence.oracle.held
        assert fitting is None or start in fitting
        assert start == lists.aligned(start, stride) or any(
            start == lists.aligned(number, stride) for number in lists.following(start, stride, "mask")
        )
        numbers = lists.following(start, length, borders)
        lists.assert_shows(batch, row, numbers)
        states = [sequence.oracle.steps[number].extras["state"] for number in numbers]
        np.testing.assert_array_equal(states, batch.extras["state"][row, : len(numbers)])
        assert not batch.extras["state"][row, len(numbers) :].any()
        if sequence.retention == "fifo":
            assert numbers == batch.index[row, : len(numbers)].tolist()
    np.testing.assert_array_equal(batch.observation[:, 0], sequence.memory.get(batch.index[:, 0]).observation)


@pytest.mark.parametrize("retention", ["fifo", "random"])
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    num_envs=st.integers(1, 5),
    stack=st.sampled_from([1, 2, 4]),
    stack_padding=st.sampled_from(STACK_PADDINGS),
    n_step=st.sampled_from([1, 3]),
    storage=st.sampled_from(["packed", "raw"]),
    seed=st.integers(0, 1000),
    end_chance=st.sampled_from([0.0, 0.02, 0.1, 0.6]),
    num_steps=st.sampled_from([5, 100, 500]),
    length=st.sampled_from([1, 2, 7, 30]),
    data=st.data(),
)
def test_sequences_are_what_was_played(
    retention,
    num_envs,
    stack,
    stack_padding,
    n_step,
    storage,
    seed,
    end_chance,
    num_steps,
    length,
    data,
    tmp_path_factory,
):
    sequence = SequenceWorkload(
        retention, num_envs, stack, seed, storage=storage, stack_padding=stack_padding, n_step=n_step
    )
    overlap = data.draw(st.one_of(st.none(), st.integers(0, length - 1)))
    for _ in range(2):
        sequence.play(num_steps, end_chance)
        for borders in BORDERS:
            assert_is_what_was_played(sequence, 6, length, overlap, borders)
        sequence.save_and_load(tmp_path_factory.mktemp("sequences") / "memory")


@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize(
    ("length", "overlap", "end_chance"),
    [(5, None, 0.05), (5, 2, 0.05), (12, None, 0.12), pytest.param(8, 5, 0.1, marks=pytest.mark.exhaustive)],
)
def test_inside_episodes_every_start_that_fits_is_equally_likely(retention, length, overlap, end_chance):
    sequence = SequenceWorkload(retention, 2, 2, 3)
    sequence.play(400, end_chance)
    fitting = sequence.lists().fitting(length, 1 if overlap is None else length - overlap)
    column = {number: column for column, number in enumerate(fitting)}

    counts = np.zeros(len(fitting), np.int64)
    while counts.sum() < 40 * len(fitting):
        batch = sequence.memory.sample_sequences(500, length, overlap=overlap, borders="inside")
        np.add.at(counts, [column[number] for number in numbers_of_starts(batch)], 1)

    assert 20 < len(fitting)
    assert chi_square(counts) < chi_square_bound(len(counts) - 1)


@pytest.mark.parametrize("borders", ["mask", "cross"])
def test_every_sampleable_transition_starts_a_sequence_equally_often(borders):
    sequence = SequenceWorkload("random", 2, 2, 4)
    sequence.play(400, 0.1)
    held = sequence.memory.sampleable_indices()

    starts = [sequence.memory.sample_sequences(500, 3, borders=borders).index[:, 0] for _ in range(len(held) // 12)]

    counts = np.bincount(np.searchsorted(held, np.concatenate(starts)), minlength=len(held))
    assert chi_square(counts) < chi_square_bound(len(held) - 1)


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_whole_episodes_of_any_length_are_equally_likely(retention):
    sequence = SequenceWorkload(retention, 3, 2, 5)
    sequence.play(500, 0.15)
    whole = {steps[0]: steps for steps in sequence.lists().whole_episodes()}
    counts = dict.fromkeys(whole, 0)

    while sum(counts.values()) < 60 * len(whole):
        batch = sequence.memory.sample_episodes(100)
        assert max(len(whole[first]) for first in numbers_of_starts(batch)) == batch.mask.shape[1]
        for row, first in enumerate(numbers_of_starts(batch)):
            counts[first] += 1
            if counts[first] == 1:
                sequence.lists().assert_shows(batch, row, whole[first])

    assert 10 < len(whole)
    assert 1 < len({len(steps) for steps in whole.values()})
    assert chi_square(np.array(list(counts.values()))) < chi_square_bound(len(counts) - 1)


def test_state_stored_with_each_step_warms_up_a_recurrent_learner_from_where_its_sequence_starts():
    memory = numbered_memory(200, stack=1, extras={"state": (np.float32, (4,))})
    memory.begin(np.zeros((1, 2, 3), np.uint8))
    for step in range(100):
        state = {"state": np.full((1, 4), step, np.float32)}
        memory.append([0], [0.0], [False], [False], np.zeros((1, 2, 3), np.uint8), extras=state)

    batch = memory.sample_sequences(16, length=12, overlap=4, burn_in=3)

    np.testing.assert_array_equal(batch.index[:, 0], batch.extras["state"][:, 0, 0])
    assert {0} == set((batch.index[:, 0] % 8).tolist())
    assert not batch.learns[:, :3].any()


def test_the_same_seed_draws_the_same_sequences():
    def drawn() -> list:
        sequence = SequenceWorkload("random", 2, 2, 7)
        sequence.play(300, 0.1)
        batches = [sequence.memory.sample_sequences(9, 6, borders=borders) for borders in BORDERS]
        return [batch.index.tolist() for batch in (*batches, sequence.memory.sample_episodes(4))]

    assert drawn() == drawn()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 65_537}, "length is 65537: a sequence has 1 to 65_536 steps"),
        ({"length": 8, "overlap": 8}, "overlap is 8: sequences of 8 steps share 0 to 7 with the next one"),
        ({"length": 8, "overlap": -1}, "overlap is -1: sequences of 8 steps share 0 to 7 with the next one"),
        ({"length": 8, "burn_in": 8}, "burn_in is 8: it must be 0 to 7 of the 8 steps"),
    ],
)
def test_impossible_sequences_are_refused_by_name(settings, message):
    memory = numbered_memory(10)
    play_episode(memory, 0, 5, terminated=True)

    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        memory.sample_sequences(**{"batch_size": 2} | settings)


@pytest.mark.parametrize("borders", BORDERS)
def test_an_empty_memory_has_no_sequence(borders):
    with pytest.raises(NothingToSampleError, match="the memory has no transition"):
        numbered_memory(10).sample_sequences(2, length=3, borders=borders)


def test_if_no_episode_is_long_enough_the_error_has_the_longest():
    memory = numbered_memory(30)
    for episode in range(4):
        play_episode(memory, episode, 3 + episode % 2, terminated=True)

    with pytest.raises(NothingToSampleError, match="length is 5: the longest run of stored steps in one episode has 4"):
        memory.sample_sequences(2, length=5, borders="inside")
    assert [True] == memory.sample_sequences(1, length=4, borders="inside").mask.all(1).tolist()


def test_an_open_or_partly_evicted_episode_is_not_whole():
    memory = numbered_memory(6)
    play_episode(memory, 0, 4, terminated=True)
    play_episode(memory, 1, 3)

    with pytest.raises(NothingToSampleError, match="none of the episodes in 6 transitions is whole"):
        memory.sample_episodes(2)


def test_a_batch_of_sequences_has_each_frame_once_and_its_array_is_reused():
    sequence = SequenceWorkload("fifo", 1, 4, 8, border_chance=0.0)
    sequence.play(200, 0.0)

    first = sequence.memory.sample_sequences(4, 10)

    assert np.shares_memory(first.observation, first.next_observation)
    between_steps, between_frames = first.observation.strides[1:3]
    assert 6 == between_steps == between_frames
    address = first.observation.__array_interface__["data"][0]
    kept = first.observation[:, 3:5]
    assert address != sequence.memory.sample_sequences(4, 10).observation.__array_interface__["data"][0]
    del first, kept
    assert address == sequence.memory.sample_sequences(4, 10).observation.__array_interface__["data"][0]


@pytest.mark.parametrize("borders", BORDERS)
@pytest.mark.parametrize("stack", [1, 3, 6])
def test_a_border_changes_no_sequence_of_the_batch_but_its_own(stack, borders):
    """Environment 1 has the only borders; the sequences of environment 0 are those of a memory without any."""

    def sampled(border_chance: float):
        memory = numbered_memory(400, stack=stack, num_envs=2)
        memory.begin(np.stack([numbered_frame(env_id, 0, 0) for env_id in (0, 1)]))
        random = np.random.default_rng(0)
        for number in range(60):
            are_borders = np.array([False, random.random() < border_chance])
            ended = np.array([number % 7 == 6] * 2)
            frames = np.stack([numbered_frame(env_id, 0, number + 1) for env_id in (0, 1)])
            append_with_borders(memory, ([0, 0], [0.0, 0.0], ended, ended, frames), [0, 1], are_borders)
            if ended.any():
                memory.begin(np.stack([numbered_frame(env_id, 1, number) for env_id in (0, 1)]))
        return memory.sample_sequences(40, 5, borders=borders)

    plain, bordered = sampled(0.0), sampled(0.5)

    is_first = plain.index[:, 0] % 2 == 0  # both environments step together
    assert 5 < is_first.sum() < 35
    assert plain.mask[is_first].all() == (borders == "inside")
    for name in ("index", "mask", "observation", "next_observation"):
        np.testing.assert_array_equal(getattr(plain, name)[is_first], getattr(bordered, name)[is_first], name)
