"""Epsilon-greedy actions and their schedule."""

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from framestow.agents.settings import EpsilonGreedy, LinearSchedule
from framestow.errors import InvalidSettingsError


def _always_seven(observations: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.full(len(observations), 7)


def _observations(count: int) -> NDArray[np.uint8]:
    return np.arange(count, dtype=np.uint8).reshape(count, 1, 1, 1)


def _policy(epsilon: float, seed: int = 0, num_actions: int = 18) -> EpsilonGreedy:
    return EpsilonGreedy(LinearSchedule(epsilon, epsilon, 0), num_actions, seed)


def test_the_schedule_is_linear_and_then_constant() -> None:
    schedule = LinearSchedule(start=1.0, end=0.1, over_steps=1_000)

    assert [schedule.at(step) for step in (0, 500, 1_000, 10**9)] == pytest.approx([1.0, 0.55, 0.1, 0.1])


def test_a_schedule_over_no_steps_starts_at_its_end() -> None:
    assert LinearSchedule(start=1.0, end=0.25, over_steps=0).at(0) == 0.25


def test_epsilon_zero_is_greedy_and_epsilon_one_never_computes_values() -> None:
    def refuse(observations: NDArray[np.uint8]) -> NDArray[np.int64]:
        raise AssertionError("asked for a greedy action")

    assert set(_policy(0.0).act(_observations(100), 0, _always_seven)) == {7}
    actions = _policy(1.0).act(_observations(2_000), 0, refuse)
    assert set(actions) == set(range(18))


def test_the_share_of_random_actions_is_epsilon() -> None:
    actions = _policy(0.3, num_actions=4).act(_observations(20_000), 0, lambda rows: np.full(len(rows), 99))

    share = np.mean(actions != 99)
    assert share == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / 20_000))  # four standard errors


def test_greedy_actions_reach_the_rows_they_were_chosen_for() -> None:
    observations = _observations(50)

    actions = _policy(0.5, num_actions=1).act(observations, 0, lambda rows: rows[:, 0, 0, 0].astype(np.int64) + 100)

    is_greedy = actions >= 100
    assert 5 < is_greedy.sum() < 45
    np.testing.assert_array_equal(np.arange(50)[is_greedy] + 100, actions[is_greedy])


def test_draws_do_not_depend_on_the_network() -> None:
    first, second = _policy(0.5), _policy(0.5)
    first.act(_observations(8), 0, _always_seven)
    second.act(_observations(8), 0, lambda rows: np.zeros(len(rows), np.int64))

    np.testing.assert_array_equal(
        first.act(_observations(8), 0, _always_seven), second.act(_observations(8), 0, _always_seven)
    )


def test_a_restored_state_continues_the_random_sequence() -> None:
    policy, other = _policy(0.5, seed=3), _policy(0.5, seed=4)
    policy.act(_observations(8), 0, _always_seven)
    state = policy.state_dict()
    expected = policy.act(_observations(64), 0, _always_seven)

    other.load_state_dict(state)

    np.testing.assert_array_equal(expected, other.act(_observations(64), 0, _always_seven))


@pytest.mark.parametrize("epsilon", [-0.1, 1.1, float("nan")])
def test_an_epsilon_that_is_no_probability_is_refused(epsilon: float) -> None:
    with pytest.raises(InvalidSettingsError, match=re.escape(f"epsilon start is {epsilon}")):
        _policy(epsilon)


def test_a_negative_schedule_is_refused() -> None:
    with pytest.raises(InvalidSettingsError, match="over_steps is -1"):
        LinearSchedule(1.0, 0.1, -1)
