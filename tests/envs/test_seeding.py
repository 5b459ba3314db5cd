"""Seeds of many environments are derived from one seed."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framestow.envs import make_atari
from framestow.envs.seeding import seed_of_each, spawn_seeds
from framestow.errors import InvalidSettingsError


def test_seeds_of_different_runs_do_not_overlap():
    runs = [spawn_seeds(seed, 64) for seed in range(100)]

    assert len({seed for run in runs for seed in run}) == 64 * 100


def test_more_environments_do_not_change_the_seeds_of_the_first_ones():
    assert spawn_seeds(5, 3) == spawn_seeds(5, 8)[:3]


def test_seeds_fit_environments_that_take_32_bits():
    assert all(0 <= seed < 2**32 for seed in spawn_seeds(0, 100))


def test_no_seed_spawns_other_seeds_each_time():
    assert spawn_seeds(None, 2) != spawn_seeds(None, 2)


def test_a_list_of_seeds_is_used_unchanged_and_none_seeds_nothing():
    assert seed_of_each([4, None, 6], 3) == [4, None, 6]
    assert seed_of_each(None, 2) == [None, None]


def test_too_few_seeds_are_refused():
    with pytest.raises(
        InvalidSettingsError,
        match=re.escape("seed has 2 entries: 3 environments need one each; give that many, or one number"),
    ):
        seed_of_each([1, 2], 3)


def test_environments_of_one_vector_play_different_games():
    vector = make_atari("Breakout", 2, "machado2018", seed=0)
    vector.reset()
    frames = np.stack([vector.step([1 + step % 4] * 2)[0] for step in range(60)])

    assert not np.array_equal(frames[:, 0], frames[:, 1])


def test_the_seed_of_the_constructor_seeds_the_first_reset_only():
    vector, seeded_later = make_atari("Breakout", 2, "nature", seed=7), make_atari("Breakout", 2, "nature", seed=8)

    first, then_seeded = vector.reset(), seeded_later.reset(seed=7)

    assert np.array_equal(first[1]["episode_frame_number"], then_seeded[1]["episode_frame_number"])
    again = [vector.reset()[1]["episode_frame_number"].tolist() for _ in range(5)]
    assert any(numbers != first[1]["episode_frame_number"].tolist() for numbers in again)
