"""EmphasizeRecent draws from as many as the paper's formula says, update by update."""

from __future__ import annotations

import re

import numpy as np
import pytest

from contracts.sampler_contract import assert_drawn_by
from framestow import EmphasizeRecent
from framestow.errors import InvalidSettingsError
from oracles.numbered_transitions import NumberedTransitions
from oracles.sampler_laws import recent_law


def oldest_drawn(sampler: EmphasizeRecent, num_transitions: int, num_draws: int, generator=None) -> list[int]:
    """Of each of some large draws, how many transitions from the newest to the oldest that was drawn."""
    generator = generator or np.random.default_rng(0)
    transitions = NumberedTransitions(num_transitions)
    return [num_transitions - int(sampler.draw(5000, transitions, generator).indices.min()) for _ in range(num_draws)]


def test_each_update_of_a_phase_draws_from_the_papers_number_then_the_next_phase_starts():
    sampler = EmphasizeRecent(eta=0.99, num_updates=5, min_recent=8)

    drawn = oldest_drawn(sampler, num_transitions=200, num_draws=10)

    # 200 * 0.99 ** (200 k): 26.8, 3.6, ...
    assert [26, 8, 8, 8, 8] * 2 == drawn


def test_each_update_is_uniform_over_its_transitions():
    sampler = EmphasizeRecent(eta=0.998, num_updates=4, min_recent=30)
    generator, transitions = np.random.default_rng(1), NumberedTransitions(300)

    for num_recent in (181, 110, 66, 40):  # 300 * 0.998 ** (250 k): 181.8, 110.2, 66.8, 40.5
        assert num_recent == sampler.num_recent(300)
        drawn = sampler.draw(20_000, transitions, generator).indices
        assert_drawn_by(recent_law(300, num_recent), drawn)


@pytest.mark.parametrize(
    ("eta", "min_recent", "expected"),
    [(0.9, 50, 40), (1, 1, 40), (1e-300, 1, 1)],
    ids=["fewer than the minimum: all", "eta 1: all", "a small eta: the newest alone"],
)
def test_the_bounds_of_how_many_are_drawn_from(eta, min_recent, expected):
    sampler = EmphasizeRecent(eta, num_updates=2, min_recent=min_recent)

    assert [expected] * 3 == oldest_drawn(sampler, num_transitions=40, num_draws=3)


def test_a_phase_is_as_long_as_the_episode_that_ended():
    sampler = EmphasizeRecent(eta=0.99, num_updates=1000, min_recent=8)
    oldest_drawn(sampler, num_transitions=200, num_draws=3)

    sampler.begin_phase(num_updates=5)

    assert [26, 8, 8, 8, 8, 26] == oldest_drawn(sampler, num_transitions=200, num_draws=6)


def test_eta_is_annealed_over_draws_and_then_stays():
    sampler = EmphasizeRecent(eta=0.9, num_updates=1000, min_recent=1, final_eta=1.0, annealed_over=4)

    # The k-th draw's eta is 0.9 + 0.1 (k - 1) / 4, to the power of k.
    expected = [int(1000 * eta**k) for k, eta in enumerate((0.9, 0.925, 0.95, 0.975, 1, 1), 1)]
    assert expected == [900, 855, 857, 903, 1000, 1000]
    generator, seen = np.random.default_rng(0), []
    for _ in expected:
        seen.append(sampler.num_recent(1000))
        sampler.draw(1, NumberedTransitions(1000), generator)
    assert expected == seen


def test_a_restored_sampler_continues_within_a_phase():
    transitions = NumberedTransitions(500)
    settings = {"eta": 0.99, "num_updates": 7, "min_recent": 1, "final_eta": 1.0, "annealed_over": 20}
    sampler = EmphasizeRecent(**settings)
    sampler.begin_phase(9)
    oldest_drawn(sampler, num_transitions=500, num_draws=3)

    restored = EmphasizeRecent(**settings)
    restored.restore(sampler.state(transitions), transitions)

    generators = np.random.default_rng(3), np.random.default_rng(3)
    assert oldest_drawn(sampler, 500, 30, generators[0]) == oldest_drawn(restored, 500, 30, generators[1])


def test_a_sampler_restored_with_another_number_of_updates_starts_a_phase():
    transitions = NumberedTransitions(200)
    sampler = EmphasizeRecent(eta=0.99, num_updates=5, min_recent=8)
    oldest_drawn(sampler, num_transitions=200, num_draws=3)

    restored = EmphasizeRecent(eta=0.99, num_updates=2, min_recent=8)
    restored.restore(sampler.state(transitions), transitions)

    # 200 * 0.99 ** (500 k) is less than 8
    assert [8, 8] == oldest_drawn(restored, num_transitions=200, num_draws=2)
    assert 2 == restored.num_updates


@pytest.mark.parametrize("counts", [{"num_draws": -1}, {"updates_of_phase": 0}, {"draws_of_phase": -4}])
def test_an_impossible_state_is_refused(counts):
    transitions, sampler = NumberedTransitions(200), EmphasizeRecent()

    with pytest.raises(ValueError, match="are not numbers of draws and updates"):
        sampler.restore(sampler.state(transitions) | counts, transitions)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"final_eta": 1.0}, "final_eta is 1.0 and annealed_over is None: "),
        ({"annealed_over": 5}, "final_eta is None and annealed_over is 5: "),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, what):
    with pytest.raises(InvalidSettingsError, match="^" + re.escape(what)):
        EmphasizeRecent(**settings)


def test_a_phase_of_no_updates_is_refused_and_changes_nothing():
    sampler = EmphasizeRecent(eta=0.95, num_updates=1000, min_recent=1)

    with pytest.raises(InvalidSettingsError, match="num_updates is 0: "):
        sampler.begin_phase(0)
    assert 950 == sampler.num_recent(1000)
