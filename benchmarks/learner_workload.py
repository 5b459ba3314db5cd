"""The workload of learners.py: the steps, and the checks of what the systems sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.buffers import BatchArrays
from framestow.benchmarking.play import Frames, Play, Row
from framestow.errors import DamagedDataError

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Question = Literal["uniform", "prioritized", "n_step", "sequences"]
QUESTIONS: tuple[Question, ...] = ("uniform", "prioritized", "n_step", "sequences")

SEQUENCE_LENGTH = 80  # steps, as R2D2 learns from
ALPHA, BETA = 0.5, 0.4
TOLERANCE = 1e-4  # of sums of three rewards of at most 50, in float32
PRIORITY_TOLERANCE = 0.03  # of ten batches of 1,024, whose standard error is 0.005; uniform sampling is 0.2 off
MOST_AT_ONCE = 10_000  # steps whose priorities are set by one call
MOST_ROWS = 1_024  # whose stacks are built at once


@dataclass(frozen=True)
class Workload:
    """``num_steps`` steps of a play that repeats; the last step is truncated.

    A step's action is its number, which identifies it in any batch, so ``num_actions`` is ``num_steps``. Its reward is
    a small integer: discounted sums of a few of them are exact in ``float32``.
    """

    play: Play
    num_steps: int
    stack: int
    n_step: int
    discount: float

    def observations(self, numbers: Numbers, steps_later: int = 0) -> Frames:
        """Return the observations of these steps, ``(*numbers.shape, stack, *frame)``, or those some steps later."""
        flat = self.play.observations(numbers.ravel(), self.stack, steps_later)
        return flat.reshape(*numbers.shape, *flat.shape[1:])

    def rewards(self, numbers: Numbers) -> npt.NDArray[np.float32]:
        """Return the rewards of single steps."""
        return (numbers % 101 - 50).astype(np.float32)

    def terminated(self, numbers: Numbers) -> Flags:
        """Return which of these steps terminated their episode."""
        terminated: Flags = self.play.terminated[numbers % len(self.play.positions)]
        return terminated

    def has_ended(self, numbers: Numbers) -> Flags:
        """Return which of these steps ended their episode, terminated or truncated."""
        ended: Flags = self.play.has_ended(numbers) | (numbers == self.num_steps - 1)
        return ended

    def episodes(self, numbers: Numbers) -> Numbers:
        """Return for each of these steps the number of its episode's first step."""
        which = numbers % len(self.play.positions)
        # Each episode has one frame more than steps: its first step is at its first frame's index, less the number of
        # episodes before it.
        first_positions = self.play.episode_starts[self.play.positions[which]]
        return numbers - which + np.searchsorted(self.play.positions, first_positions)

    def steps_left(self, numbers: Numbers) -> Numbers:
        """Return the number of steps from each of these to its episode's last, both included."""
        which = numbers % len(self.play.positions)
        [ends] = np.nonzero(self.play.terminated | self.play.truncated)
        left: Numbers = ends[np.searchsorted(ends, which)] - which + 1
        return np.minimum(left, self.num_steps - numbers)

    def last_of_n(self, numbers: Numbers) -> Numbers:
        """Return the last step of each n-step transition: ``n_step - 1`` later, or the episode's last."""
        return numbers + np.minimum(self.steps_left(numbers), self.n_step) - 1

    def returns(self, numbers: Numbers) -> npt.NDArray[np.float64]:
        """Return the discounted sum of rewards of each n-step transition."""
        lasts = self.last_of_n(numbers)
        total = np.zeros(numbers.shape)
        for later in range(self.n_step):
            steps = numbers + later
            total += np.where(steps <= lasts, self.discount**later * self.rewards(steps), 0.0)
        return total

    def discounts(self, numbers: Numbers) -> npt.NDArray[np.float64]:
        """Return the factor of the value after each n-step transition: a power of the discount, 0 once terminated."""
        lasts = self.last_of_n(numbers)
        return np.where(self.terminated(lasts), 0.0, self.discount ** (lasts - numbers + 1))

    def rows(self, longest: int) -> Iterator[Row]:
        """Yield all steps in pieces of at most ``longest``, as a library takes them; none crosses an episode's end."""
        first = 0
        while first < self.num_steps:
            numbers = np.arange(first, first + min(int(self.steps_left(np.array([first]))[0]), MOST_ROWS))
            observations, next_observations = self.observations(numbers), self.observations(numbers, 1)
            rewards, terminated, ended = self.rewards(numbers), self.terminated(numbers), self.has_ended(numbers)
            columns = observations, numbers, rewards, terminated, ended & ~terminated, next_observations
            begins = self.episodes(numbers[:1])[0] == first
            for at in range(0, len(numbers), longest):
                pieces = [column[at : at + longest] for column in columns]
                yield Row(*pieces, starting=[0] if begins and at == 0 else [])
            first += len(numbers)


@dataclass(frozen=True)
class Learner:
    """A memory that learners.py measures; ``gives_up`` and the flags as in framestow.benchmarking.libraries."""

    library: str
    question: Question
    buffer: Any
    """A ``Buffer``, for ``prioritized`` with ``set_errors``."""
    num_transitions: int
    setting: str
    gives_up: str = ""
    keeps_final_frames: bool = True
    uses_torch: bool = False

    def is_wrong(self, what: str) -> DamagedDataError:
        """Return the error for a batch that is wrong."""
        return DamagedDataError(f"{self.library}, {self.question} {what}: it cannot be compared")


class SampledErrors:
    """Temporal-difference errors, drawn beforehand so that no call of the generator is timed."""

    def __init__(self, seed: int = 0) -> None:
        self._errors = np.random.default_rng(seed).exponential(size=1 << 20).astype(np.float32)
        self._next = 0

    def next(self, count: int) -> npt.NDArray[np.float32]:
        """Return the next ``count`` errors, a view."""
        if self._next + count > len(self._errors):
            self._next = 0
        self._next += count
        return self._errors[self._next - count : self._next]


def check_samples(learner: Learner, workload: Workload, batch_size: int, num_batches: int = 4) -> None:
    """Raise ``DamagedDataError`` if batches are not of what the system was fed."""
    for _ in range(num_batches):
        arrays = learner.buffer.as_arrays(learner.buffer.sample(batch_size))
        counts = np.ones(arrays.actions.shape, np.bool_) if arrays.mask is None else arrays.mask
        numbers = np.where(counts, arrays.actions, 0).astype(np.int64)
        if numbers.min() < 0 or numbers.max() >= workload.num_steps:
            raise learner.is_wrong("gave an action that it was not fed")
        _check_observations(learner, workload, arrays, numbers, counts)
        _check_rewards(learner, workload, arrays, numbers, counts)
        if learner.question == "sequences":
            _check_order(learner, workload, numbers, counts)


def _check_observations(
    learner: Learner, workload: Workload, arrays: BatchArrays, numbers: Numbers, counts: Flags
) -> None:
    if not np.array_equal(arrays.observations[counts], workload.observations(numbers[counts])):
        raise learner.is_wrong("gave an observation that it was not fed")
    if arrays.next_observations is None:
        return
    lasts = workload.last_of_n(numbers) if learner.question == "n_step" else numbers
    has_next = counts & (learner.keeps_final_frames | ~workload.has_ended(lasts))
    expected = workload.observations(lasts[has_next], steps_later=1)
    if not np.array_equal(arrays.next_observations[has_next], expected):
        raise learner.is_wrong("gave a next observation that it was not fed")


def _check_rewards(learner: Learner, workload: Workload, arrays: BatchArrays, numbers: Numbers, counts: Flags) -> None:
    is_n_step = learner.question == "n_step"
    expected = workload.returns(numbers) if is_n_step else workload.rewards(numbers)
    if not np.allclose(arrays.rewards[counts], expected[counts], atol=TOLERANCE):
        raise learner.is_wrong("gave a reward that it was not fed")
    if not is_n_step or arrays.discounts is None:
        return
    if not np.allclose(arrays.discounts, workload.discounts(numbers), atol=TOLERANCE):
        raise learner.is_wrong("gave a discount of another horizon")


def _check_order(learner: Learner, workload: Workload, numbers: Numbers, counts: Flags) -> None:
    follows = counts[:, 1:] & counts[:, :-1]
    if not (np.diff(numbers) == 1)[follows].all():
        raise learner.is_wrong("gave steps that do not follow each other")
    episodes = workload.episodes(numbers)
    if not (episodes[:, 1:] == episodes[:, :-1])[follows].all():
        raise learner.is_wrong("gave a sequence of two episodes")


def check_priorities(learner: Learner, batch_size: int = 1_024, num_batches: int = 10) -> None:
    """Set a different error for every step; raise ``DamagedDataError`` if samples do not follow the priorities.

    The system must not have sampled before. If steps are sampled in proportion to p, the mean of p over the samples is
    the sum of the squares of p over its sum.
    """
    numbers = np.arange(learner.num_transitions)
    errors = np.random.default_rng(1).exponential(size=len(numbers)).astype(np.float32)
    for first in range(0, len(numbers), MOST_AT_ONCE):
        learner.buffer.set_errors(numbers[first : first + MOST_AT_ONCE], errors[first : first + MOST_AT_ONCE])
    priorities = errors.astype(np.float64) ** ALPHA
    updates = SampledErrors()
    drawn, expected = [], []
    for _ in range(num_batches):
        numbers = learner.buffer.as_arrays(learner.buffer.sample(batch_size)).actions.astype(np.int64)
        drawn.append(priorities[numbers].mean())
        expected.append((priorities**2).sum() / priorities.sum())
        priorities[numbers] = updates.next(batch_size) ** ALPHA
    if abs(np.mean(drawn) / np.mean(expected) - 1) > PRIORITY_TOLERANCE:
        raise learner.is_wrong("does not sample by priority")
