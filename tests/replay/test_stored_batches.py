"""``batches`` returns each stored transition once; ``returns_to_go`` sums later rewards."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.errors import InvalidSettingsError, NothingToSampleError
from oracles.any_play import readable_steps
from oracles.chi_square import chi_square, chi_square_bound
from oracles.numbered_steps import numbered_memory, play_episode
from replay.test_sequences import played

pytestmark = pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning")  # some steps are unusual


@pytest.mark.each_pair
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 500])
def test_batches_return_every_stored_transition_once(retention, n_step, shuffled, batch_size):
    memory = played(retention, 250, seed=1, n_step=n_step).memory
    held = memory.sampleable_indices()
    batches = memory.batches(batch_size, shuffled=shuffled, seed=2 if shuffled else None)
    num_batches = len(batches)

    given = [batch.index for batch in batches]

    assert -(-len(held) // batch_size) == num_batches == len(given)
    assert 0 == len(batches)
    assert {batch_size} >= {len(indices) for indices in given[:-1]}
    indices = np.concatenate(given)
    np.testing.assert_array_equal(held, np.sort(indices))
    assert shuffled == (indices.tolist() != held.tolist())


def test_a_last_batch_that_is_not_full_can_be_dropped():
    memory = numbered_memory(30)
    play_episode(memory, 0, 10, terminated=True)

    batches = memory.batches(4, drop_last=True)

    assert 2 == len(batches)
    assert [[0, 1, 2, 3], [4, 5, 6, 7]] == [batch.index.tolist() for batch in batches]


@pytest.mark.each_pair
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("n_step", [1, 4])
@pytest.mark.parametrize("shuffled", [False, True])
def test_evicted_transitions_are_omitted_and_new_ones_not_included(retention, n_step, shuffled):
    play = played(retention, 300, seed=3, n_step=n_step)
    held = set(play.memory.sampleable_indices().tolist())
    batches = play.memory.batches(16, shuffled=shuffled, seed=4 if shuffled else None)
    num_batches, given = len(batches), []

    for batch in batches:
        given += batch.index.tolist()
        play.play(20)

    assert len(given) == len(set(given))
    assert held > set(given)
    assert num_batches > -(-len(given) // 16)
    still_held = held & set(play.memory.sampleable_indices().tolist())
    assert set(given) >= still_held


def test_the_order_depends_on_its_seed_and_does_not_change_the_draws_of_the_memory():
    memory, other = (played("fifo", 200, seed=5).memory for _ in range(2))

    orders = [[batch.index.tolist() for batch in memory.batches(50, shuffled=True, seed=seed)] for seed in (1, 1, 2)]

    assert orders[0] == orders[1] != orders[2]
    assert memory.sample(9).index.tolist() == other.sample(9).index.tolist()


def test_each_transition_is_at_each_place_equally_often():
    memory = numbered_memory(30)
    play_episode(memory, 0, 12, terminated=True)

    firsts = [next(memory.batches(1, shuffled=True, seed=seed)).index[0] for seed in range(1200)]

    assert chi_square(np.bincount(firsts, minlength=12)) < chi_square_bound(11)


@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("discount", [1.0, 0.9, 0.0])
def test_returns_to_go_sum_the_rewards_to_the_end_of_the_episode(retention, discount):
    play = played(retention, 300, seed=6)
    readable, batch = readable_steps(play.memory, play), play.memory.get(play.memory.sampleable_indices())

    returns = play.memory.returns_to_go(batch.index, discount)

    assert np.float64 == returns.dtype
    expected = []
    for number in batch.extras["number"].tolist():
        rest, total = play.rest_of(number), 0.0
        for later in reversed(rest):
            total = play.steps[later].reward + discount * total
        expected.append(total if readable.issuperset(rest) else np.nan)
    np.testing.assert_array_equal(expected, returns)
    assert (retention == "random") == np.isnan(returns).any()


def test_returns_to_go_of_sequences_are_0_where_they_are_masked():
    memory = numbered_memory(30)
    play_episode(memory, 0, 3, terminated=True)
    batch = memory.sample_sequences(4, length=5)

    returns = memory.returns_to_go(batch.index)

    np.testing.assert_array_equal(
        np.where(batch.mask, [[3 - start * (start - 1) / 2 for start in row] for row in batch.index.tolist()], 0.0),
        returns,
    )
    assert (4, 5) == returns.shape
    assert (0,) == memory.returns_to_go([]).shape


def test_an_evicted_step_has_no_return():
    memory = numbered_memory(4)
    play_episode(memory, 0, 6, terminated=True)

    with pytest.raises(NothingToSampleError, match="step 1 is not stored: it was evicted or never appended"):
        memory.returns_to_go([3, 1])


def test_a_seed_without_shuffling_is_refused():
    with pytest.raises(InvalidSettingsError, match="seed is 3: batches that are not shuffled use no seed"):
        numbered_memory(5).batches(2, seed=3)
