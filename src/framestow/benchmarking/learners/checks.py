"""Holds what a system draws against the course that it was fed."""

from __future__ import annotations

import numpy as np

from framestow.benchmarking.learners.course import Course, Flags, Numbers
from framestow.benchmarking.learners.learning_system import (
    ALPHA,
    Drawn,
    LearningSystem,
    PrioritizedLearning,
    TemporalDifferences,
)
from framestow.errors import DamagedDataError

TOLERANCE = 1e-4  # of sums of three rewards of at most 50, in float32
PRIORITY_TOLERANCE = 0.03  # of ten batches of 1,024, whose standard error is 0.005; uniform draws are 0.2 off
MOST_AT_ONCE = 10_000  # steps that priorities are given to


def check_draws(system: LearningSystem, course: Course, batch_size: int, num_batches: int = 4) -> None:
    """Raise ``DamagedDataError`` if batches are not of what the system was fed."""
    for _ in range(num_batches):
        drawn = system.drawn(system.draw(batch_size))
        counts = np.ones(drawn.numbers.shape, np.bool_) if drawn.mask is None else drawn.mask
        numbers = np.where(counts, drawn.numbers, 0)
        if numbers.min() < 0 or numbers.max() >= course.num_steps:
            raise DamagedDataError(f"{_named(system)} gave an action that it was not fed: it cannot be compared")
        _check_observations(system, course, drawn, numbers, counts)
        _check_rewards(system, course, drawn, numbers, counts)
        if system.question == "sequences":
            _check_order(system, course, numbers, counts)


def _named(system: LearningSystem) -> str:
    return f"{system.library}, {system.question}"


def _check_observations(system: LearningSystem, course: Course, drawn: Drawn, numbers: Numbers, counts: Flags) -> None:
    if not np.array_equal(drawn.observations[counts], course.observations(numbers[counts])):
        raise DamagedDataError(f"{_named(system)} gave an observation that it was not fed: it cannot be compared")
    if drawn.next_observations is None:
        return
    lasts = course.last_of_n(numbers) if system.question == "n_step" else numbers
    has_next = counts & (system.keeps_final_frames | ~course.has_ended(lasts))
    expected = course.observations(lasts[has_next], steps_later=1)
    if not np.array_equal(drawn.next_observations[has_next], expected):
        raise DamagedDataError(f"{_named(system)} gave a next observation that it was not fed: it cannot be compared")


def _check_rewards(system: LearningSystem, course: Course, drawn: Drawn, numbers: Numbers, counts: Flags) -> None:
    expected = course.returns(numbers) if system.question == "n_step" else course.rewards(numbers)
    if not np.allclose(drawn.rewards[counts], expected[counts], atol=TOLERANCE):
        raise DamagedDataError(f"{_named(system)} gave a reward that it was not fed: it cannot be compared")
    if drawn.discounts is not None and not np.allclose(drawn.discounts, course.discounts(numbers), atol=TOLERANCE):
        raise DamagedDataError(f"{_named(system)} gave a discount of another horizon: it cannot be compared")


def _check_order(system: LearningSystem, course: Course, numbers: Numbers, counts: Flags) -> None:
    follows = counts[:, 1:] & counts[:, :-1]
    if not (np.diff(numbers) == 1)[follows].all():
        raise DamagedDataError(f"{_named(system)} gave steps that do not follow each other: it cannot be compared")
    episodes = course.episodes(numbers)
    if not (episodes[:, 1:] == episodes[:, :-1])[follows].all():
        raise DamagedDataError(f"{_named(system)} gave a sequence of two episodes: it cannot be compared")


def check_priorities(system: PrioritizedLearning, batch_size: int = 1_024, num_batches: int = 10) -> None:
    """Give every step an error of its own; raise ``DamagedDataError`` if draws do not follow the priorities.

    The system must not have drawn before. Of steps drawn with a probability proportional to p, the mean of p is the sum
    of its squares over its sum.
    """
    numbers = np.arange(system.num_transitions)
    errors = np.random.default_rng(1).exponential(size=len(numbers)).astype(np.float32)
    for first in range(0, len(numbers), MOST_AT_ONCE):
        system.set_errors(numbers[first : first + MOST_AT_ONCE], errors[first : first + MOST_AT_ONCE])
    priorities = errors.astype(np.float64) ** ALPHA
    updates = TemporalDifferences()
    drawn, expected = [], []
    for _ in range(num_batches):
        numbers = system.drawn(system.draw(batch_size)).numbers
        drawn.append(priorities[numbers].mean())
        expected.append((priorities**2).sum() / priorities.sum())
        priorities[numbers] = updates.next(batch_size) ** ALPHA
    if abs(np.mean(drawn) / np.mean(expected) - 1) > PRIORITY_TOLERANCE:
        raise DamagedDataError(f"{_named(system)} does not draw by priority: it cannot be compared")
