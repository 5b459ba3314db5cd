"""Sequences start where they may, as often as they may. test_any_observation.py compares what they show."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framestow import ReplayMemory
from framestow.errors import InvalidSettingsError, NothingToSampleError
from framestow.replay.settings.observation_layout import ObservationLayout
from oracles.any_play import DISCOUNT, EXTRAS, NUM_ACTIONS, SMALL, AnyPlay, readable_steps
from oracles.bordered_steps import append_with_borders
from oracles.chi_square import chi_square, chi_square_bound
from oracles.numbered_steps import numbered_frame, numbered_memory, play_episode

BORDERS = ["mask", "inside", "cross"]

pytestmark = pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning")  # some steps are unusual


def played(retention: str, num_calls: int, seed: int = 0, num_envs: int = 2, **settings) -> AnyPlay:
    """Play episodes of some dozen steps, few of them with borders, on stacks of small frames."""
    settings |= {"retention": retention, "discount": DISCOUNT, "extras": EXTRAS, "seed": seed}
    memory = ReplayMemory(330, SMALL, NUM_ACTIONS, stack_axis=0, num_envs=num_envs, frames_per_segment=8, **settings)
    return AnyPlay(memory, ObservationLayout.of_space(SMALL, 0), seed, kinds=40).play(num_calls)


@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize(("length", "overlap"), [(5, None), (5, 2), pytest.param(8, 5, marks=pytest.mark.exhaustive)])
def test_inside_episodes_every_start_that_fits_is_equally_likely(retention, length, overlap):
    play = played(retention, 400, seed=3)
    fitting = play.fitting(length, 1 if overlap is None else length - overlap, readable_steps(play.memory, play))
    column = {number: column for column, number in enumerate(fitting)}

    counts = np.zeros(len(fitting), np.int64)
    while counts.sum() < 40 * len(fitting):
        batch = play.memory.sample_sequences(500, length, overlap=overlap, borders="inside")
        np.add.at(counts, [column[number] for number in batch.extras["number"][:, 0].tolist()], 1)

    assert 20 < len(fitting)
    assert chi_square(counts) < chi_square_bound(len(counts) - 1)


@pytest.mark.parametrize("borders", ["mask", "cross"])
def test_every_sampleable_transition_starts_a_sequence_equally_often(borders):
    memory = played("random", 400, seed=4).memory
    held = memory.sampleable_indices()

    starts = [memory.sample_sequences(500, 3, borders=borders).index[:, 0] for _ in range(len(held) // 12)]

    counts = np.bincount(np.searchsorted(held, np.concatenate(starts)), minlength=len(held))
    assert chi_square(counts) < chi_square_bound(len(held) - 1)


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_whole_episodes_of_any_length_are_equally_likely(retention):
    play = played(retention, 400, seed=5)
    whole = {steps[0]: steps for steps in play.whole_episodes(readable_steps(play.memory, play))}
    counts = dict.fromkeys(whole, 0)

    while sum(counts.values()) < 60 * len(whole):
        batch = play.memory.sample_episodes(100)
        firsts = batch.extras["number"][:, 0].tolist()
        assert max(len(whole[first]) for first in firsts) == batch.mask.shape[1]
        for row, first in enumerate(firsts):
            counts[first] += 1
            assert whole[first] == batch.extras["number"][row, batch.mask[row]].tolist()

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
        memory = played("random", 300, seed=7).memory
        batches = [memory.sample_sequences(9, 6, borders=borders) for borders in BORDERS]
        return [batch.index.tolist() for batch in (*batches, memory.sample_episodes(4))]

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

    with pytest.raises(
        NothingToSampleError, match="length is 5: the longest span of stored steps in one episode has 4"
    ):
        memory.sample_sequences(2, length=5, borders="inside")
    assert [True] == memory.sample_sequences(1, length=4, borders="inside").mask.all(1).tolist()


def test_an_open_or_partly_evicted_episode_is_not_whole():
    memory = numbered_memory(6)
    play_episode(memory, 0, 4, terminated=True)
    play_episode(memory, 1, 3)

    with pytest.raises(NothingToSampleError, match="none of the episodes in 6 transitions is whole"):
        memory.sample_episodes(2)


def test_a_batch_of_sequences_has_each_frame_once_and_its_array_is_reused():
    memory = numbered_memory(300, stack=4)
    play_episode(memory, 0, 200)

    first = memory.sample_sequences(4, 10)

    assert np.shares_memory(first.observation, first.next_observation)
    between_steps, between_frames = first.observation.strides[1:3]
    assert 6 == between_steps == between_frames
    address = first.observation.__array_interface__["data"][0]
    kept = first.observation[:, 3:5]
    assert address != memory.sample_sequences(4, 10).observation.__array_interface__["data"][0]
    del first, kept
    assert address == memory.sample_sequences(4, 10).observation.__array_interface__["data"][0]


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


@pytest.mark.parametrize("borders", ["mask", "cross"])
def test_a_length_of_more_than_ten_times_the_stored_steps_warns_once_and_is_masked(borders):
    memory = numbered_memory(100, n_step=2)
    play_episode(memory, 0, length=10, truncated=True)

    memory.sample_sequences(2, length=110, borders=borders)  # a warning is an error here
    with pytest.warns(UserWarning, match=r"length is 5,000: the memory has 11 steps, .*, or call sample_episodes\(\)"):
        batch = memory.sample_sequences(2, length=5_000, borders=borders)

    assert (2, 5_000) == batch.mask.shape
    assert batch.mask.sum(1).max() <= 10
    memory.sample_sequences(2, length=5_000, borders=borders)
