"""The native priorities against plain arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow._core import Priorities, are_priorities

EPSILON = 1e-6
SLOTS = 20_000  # five pages

changes = st.lists(
    st.tuples(
        st.sampled_from(["note", "update"]),
        st.integers(0, 2**32 - 1),  # seed of the changes
        st.integers(0, 60),  # number of changes
        st.sampled_from([17, 5000, SLOTS]),  # upper bound of the slots
    ),
    max_size=12,
)


class PlainPriorities:
    def __init__(self, alpha: float) -> None:
        self.alpha, self.weights, self.largest = alpha, np.zeros(SLOTS), 1.0

    def mark_changed(self, slots: np.ndarray, indices: np.ndarray) -> None:
        self.weights[slots] = np.where(indices < 0, 0.0, self.largest)

    def update(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        weights = np.float32((np.abs(priorities) + EPSILON) ** self.alpha)
        last = dict(zip(slots[slots >= 0].tolist(), weights[slots >= 0].tolist(), strict=True))
        self.weights[list(last)] = list(last.values())
        self.largest = max([self.largest, *last.values()])


@settings(max_examples=60, deadline=None)
@given(changes, st.sampled_from([0.0, 0.5, 0.6, 1.0, 1.7]), st.sampled_from([np.float32, np.float64]))
def test_weights_and_draws_equal_those_of_a_plain_array(made, alpha, dtype):
    native, plain = Priorities(alpha, EPSILON), PlainPriorities(alpha)
    for kind, seed, count, below in made:
        random = np.random.default_rng(seed)
        slots = random.integers(-1 if kind == "update" else 0, below, count)
        if kind == "note":
            slots = np.unique(slots)
            indices = random.integers(-1, 2, len(slots))
            native.mark_changed(slots, indices)
            plain.mark_changed(slots, indices)
        else:
            priorities = (random.normal(size=count) * 10.0 ** random.integers(-9, 9, count)).astype(dtype)
            assert native.update(slots, priorities)
            plain.update(slots, priorities.astype(np.float64))

    np.testing.assert_allclose(native.weights(np.arange(SLOTS)), plain.weights, rtol=2e-5)
    weights = native.weights(np.arange(SLOTS)).astype(np.float64)  # rounded to single precision
    assert native.total == pytest.approx(weights.sum(), rel=1e-12)
    assert native.largest == pytest.approx(plain.largest, rel=2e-5)
    if weights.sum():
        assert native.smallest == weights[weights > 0].min()
        assert_drawn_in_proportion(native, weights)


def assert_drawn_in_proportion(native: Priorities, weights: np.ndarray) -> None:
    """Check that each number's slot is the one at its part of the sum, except for borders moved by rounding."""
    random = np.random.default_rng(0).random(300)
    slots, corrections = native.draw(random, 0.7)

    sums = np.cumsum(weights)
    targets = (np.arange(300) + random) / 300 * sums[-1]
    slack = 1e-12 * sums[-1]
    assert (weights[slots] > 0).all()
    assert (sums[slots] + slack >= targets).all()
    assert (sums[slots] - weights[slots] - slack <= targets).all()
    np.testing.assert_allclose(corrections, (weights[weights > 0].min() / weights[slots]) ** 0.7, rtol=1e-5)


def test_a_weight_of_zero_is_never_drawn_even_at_the_ends():
    priorities = Priorities(1.0, 0.0)
    slots = np.arange(10_000)
    priorities.mark_changed(slots, slots)
    priorities.update(slots, (slots % 7 == 3).astype(np.float64))

    for random in (np.zeros(5000), np.full(5000, 1 - 2**-53)):
        drawn, _ = priorities.draw(random, 1.0)
        assert {3} == set((drawn % 7).tolist())


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0])
def test_a_tiny_priority_stays_above_zero_and_none_is_zero(alpha):
    priorities = Priorities(alpha, 0.0)

    assert priorities.update(np.array([0, 1, 2]), np.array([0.0, 5e-324, -1e-300]))

    zero, *others = priorities.weights(np.array([0, 1, 2])).tolist()
    assert zero == 0
    assert min(others) > 0


@pytest.mark.parametrize(("alpha", "wrong"), [(1.0, 1e39), (1.0, np.nan), (1.0, np.inf), (2.0, 1e30), (10.0, 1e5)])
def test_priorities_that_overflow_single_precision_change_nothing(alpha, wrong):
    priorities = Priorities(alpha, EPSILON)
    priorities.update(np.array([5]), np.array([3.0]))
    before = priorities.weights(np.arange(10)).tolist(), priorities.largest, priorities.total

    assert not priorities.update(np.array([1, 2, -1]), np.array([1.0, wrong, 1.0]))

    assert before == (priorities.weights(np.arange(10)).tolist(), priorities.largest, priorities.total)


def test_the_largest_priority_is_that_of_the_stored_steps():
    priorities = Priorities(1.0, 0.0)

    priorities.update(np.array([3, -1]), np.array([2.0, 1000.0]))

    assert priorities.largest == 2.0


def test_arguments_that_do_not_fit_are_refused():
    priorities = Priorities(0.6, EPSILON)
    with pytest.raises(ValueError, match="priorities has 2 entries: it must have one for each of the 1 slots"):
        priorities.update(np.array([1]), np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="priorities has the wrong form: it must be float32 or float64"):
        priorities.update(np.array([1]), np.array([1]))
    with pytest.raises(TypeError, match="slots has another dtype than int64"):
        priorities.update(np.array([1], np.int32), np.array([1.0]))
    with pytest.raises(ValueError, match="priorities are all zero"):
        priorities.draw(np.zeros(1), 0.4)
    with pytest.raises(ValueError, match="random has a number outside"):
        priorities.draw(np.ones(1), 0.4)
    with pytest.raises(ValueError, match="weights has a number that is negative or not finite"):
        priorities.restore(np.array([1]), np.array([-1], np.float32), 1.0)
    with pytest.raises(ValueError, match=r"alpha and epsilon are -1\.0"):
        Priorities(-1.0, 0.0)


@pytest.mark.parametrize(
    ("indices", "priorities", "expected"),
    [
        (np.arange(2), np.ones(2), True),
        (np.arange(2), np.ones(2, np.float32), True),
        (np.arange(0), np.ones(0), True),
        (np.arange(2), np.ones(3), False),
        (np.arange(2), np.ones((2, 1)), False),
        (np.arange(4)[::2], np.ones(2), False),
        (np.arange(2, dtype=np.int32), np.ones(2), False),
        (np.arange(2), np.ones(2, np.float16), False),
        (np.arange(2), np.array([1, np.nan]), False),
        (np.arange(2), np.array([1, -np.inf], np.float32), False),
        ([0, 1], np.ones(2), False),
        (np.arange(2), None, False),
    ],
)
def test_only_finite_arrays_of_one_length_are_priorities(indices, priorities, expected):
    assert expected == are_priorities(indices, priorities)
