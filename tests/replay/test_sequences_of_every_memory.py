"""Sequences of observations of several arrays, by priority, within a budget, and beside damage."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.errors import DamagedSegmentError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.prioritized import Prioritized
from oracles.chi_square import chi_square, chi_square_bound
from oracles.damage import damage_a_segment
from oracles.numbered_steps import numbered_memory, play_episode

BORDERS = ["mask", "inside", "cross"]


def test_sequences_start_in_proportion_to_priorities_and_with_overlap_to_their_sums():
    memory = numbered_memory(200, sampler=Prioritized(alpha=1.0, beta=0.0, epsilon=0.0))
    play_episode(memory, 0, 60, terminated=True)
    memory.update_priorities(np.arange(60), np.zeros(60))
    memory.update_priorities([7, 31], [1.0, 3.0])

    free = memory.sample_sequences(400, length=10)
    aligned = memory.sample_sequences(400, length=10, overlap=5)

    assert {7, 31} == set(free.index[:, 0].tolist())
    assert {5, 30} == set(aligned.index[:, 0].tolist())
    counts = np.array([(free.index[:, 0] == start).sum() for start in (7, 31)])
    assert chi_square(counts, np.array([0.25, 0.75])) < chi_square_bound(1)
    led_here = aligned.index[:, :5]
    memory.update_priorities(led_here, np.broadcast_to(np.where(aligned.index[:, :1] == 5, 0.0, 2.0), led_here.shape))
    assert {30} == set(memory.sample_sequences(50, length=10, overlap=5).index[:, 0].tolist())


def test_inside_episodes_those_that_fit_keep_their_priorities():
    memory = numbered_memory(300, sampler=Prioritized(alpha=1.0, beta=1.0, epsilon=0.0))
    for episode in range(10):
        play_episode(memory, episode, 12, terminated=True)
    priorities = np.arange(1, 121).astype(np.float64)
    memory.update_priorities(np.arange(120), priorities)
    fitting = np.array([index for index in range(120) if index % 12 <= 2])

    batches = [memory.sample_sequences(50, length=10, borders="inside") for _ in range(60)]

    starts = np.concatenate([batch.index[:, 0] for batch in batches])
    counts = np.bincount(np.searchsorted(fitting, starts), minlength=len(fitting))
    assert set(fitting.tolist()) >= set(starts.tolist())
    assert chi_square(counts, priorities[fitting] / priorities[fitting].sum()) < chi_square_bound(len(fitting) - 1)


def test_if_a_sampler_draws_none_that_fits_those_that_do_are_equally_likely():
    memory = numbered_memory(100, sampler=Prioritized(alpha=1.0, epsilon=0.0))
    play_episode(memory, 0, 20, terminated=True)
    memory.update_priorities(np.arange(20), np.where(np.arange(20) == 19, 1.0, 0.0))

    batch = memory.sample_sequences(400, length=16, borders="inside")

    counts = np.bincount(batch.index[:, 0], minlength=5)
    assert 5 == len(counts)
    assert chi_square(counts) < chi_square_bound(4)
    assert {1.0} == set(batch.weight.tolist())


def test_a_budget_includes_the_buffers_of_sequences():
    memory = ReplayMemory(100_000, FrameSpec((20, 20)), 4, stack=4, max_bytes="2 MiB", seed=0)
    random = np.random.default_rng(0)
    memory.begin(np.zeros((1, 20, 20), np.uint8))
    for step in range(9000):
        memory.append([0], [0.0], [step % 300 == 299], [False], random.integers(0, 256, (1, 20, 20)).astype(np.uint8))
        if step % 300 == 299:
            memory.begin(np.zeros((1, 20, 20), np.uint8))
        if step % 1000 == 999:
            for borders in BORDERS:
                memory.sample_sequences(4, 20, borders=borders)
            assert 2 * 2**20 >= memory.nbytes
    memory.inner.parts.check()


@pytest.mark.each_value
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("shape", [(2, 2), (8, 8)])
def test_a_budget_holds_where_every_step_is_an_episode(retention, shape):
    memory = ReplayMemory(10**6, FrameSpec(shape), 4, stack=2, max_bytes="1600 KiB", seed=0, retention=retention)
    frames = np.random.default_rng(0).integers(0, 256, (2, 500, 1, *shape)).astype(np.uint8)
    for episode in range(70_000 if shape == (2, 2) else 8000):
        memory.begin(frames[0, episode % 500])
        memory.append([0], [0.0], [True], [False], frames[1, episode % 500])
        if episode % 5000 == 4999:
            assert 1600 * 1024 >= memory.nbytes


@pytest.fixture
def damaged_folder(tmp_path):
    """A memory in files of which one segment is damaged: a step's reward, action and newest frame say which it is."""
    folder = tmp_path / "memory"
    with ReplayMemory(3000, FrameSpec((8, 9)), 256, stack=4, seed=0, directory=folder, flush_every=None) as memory:
        frames = np.random.default_rng(1).integers(0, 256, (3000, 8, 9)).astype(np.uint8)
        memory.begin(frames[:1])
        for step in range(2000):
            memory.append([step % 256], [step], [step % 500 == 499], [False], frames[step + 1][None])
            if step % 500 == 499:
                memory.begin(frames[step + 1][None])
    damage_a_segment(folder)
    return folder, frames


def test_a_damaged_segment_is_skipped_and_ends_the_sequences_that_reach_it(damaged_folder):
    folder, frames = damaged_folder
    memory = ReplayMemory.open(folder, on_damage="skip", seed=0)
    for borders in BORDERS * 30:
        batch = memory.sample_sequences(8, 40, borders=borders)
        numbers = batch.reward[batch.mask].astype(int)
        np.testing.assert_array_equal(frames[numbers + 1], batch.next_observation[batch.mask][:, -1])
        assert batch.mask[:, 0].all()

    held = memory.sampleable_indices()
    assert 2000 > len(held)
    returns = memory.returns_to_go(held)
    broken = np.isnan(returns)
    assert 0 < broken.sum() < len(held)
    [episode] = set((held[broken] // 500).tolist())
    assert {len(held) - (held // 500 == episode).sum()} == {1500}
    whole = memory.sample_episodes(40)
    assert episode not in (whole.index[:, 0] // 500).tolist()


def test_a_damaged_segment_raises_unless_damage_is_skipped(damaged_folder):
    memory = ReplayMemory.open(damaged_folder[0], seed=0)

    with pytest.raises(DamagedSegmentError, match=r"with `framestow repair .*`, or skip what is damaged"):
        memory.sample_sequences(200, 40)
