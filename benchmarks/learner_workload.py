"""The workload of learners.py: the steps, the protocol of the systems, and the checks of what they sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.buffers import BatchArrays
from framestow.benchmarking.play import Frames, Play, Row
from framestow.errors import DamagedDataError

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


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

    def newest_frames(self, numbers: Numbers) -> Frames:
        """Return the newest frame of each of these steps' observations, ``(*numbers.shape, *frame)``."""
        return self.play.frames[self.play.positions[numbers % len(self.play.positions)]]

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

    def truncated(self, numbers: Numbers) -> Flags:
        """Return which of these steps truncated their episode."""
        return self.has_ended(numbers) & ~self.terminated(numbers)

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

    def row(self, numbers: Numbers, has_stacks: bool = True) -> Row:
        """Return these steps as a library takes them, with stacks or with single frames as observations."""
        parts = [self.observations(numbers), self.observations(numbers, 1)] if has_stacks else []
        observations, next_observations = parts or 2 * [self.newest_frames(numbers)]
        columns = numbers, self.rewards(numbers), self.terminated(numbers), self.truncated(numbers)
        return Row(observations, *columns, next_observations, [])

    def chunks(self, longest: int) -> Iterator[Numbers]:
        """Yield the numbers of all steps in pieces of at most ``longest``; no piece crosses an episode's end."""
        first = 0
        while first < self.num_steps:
            count = min(int(self.steps_left(np.array([first]))[0]), longest)
            yield np.arange(first, first + count)
            first += count


Question = Literal["uniform", "prioritized", "n_step", "sequences"]
QUESTIONS: tuple[Question, ...] = ("uniform", "prioritized", "n_step", "sequences")

SEQUENCE_LENGTH = 80  # steps, as R2D2 learns from
ALPHA, BETA = 0.5, 0.4


@dataclass(frozen=True)
class LearnerArrays:
    """A batch as arrays, to be compared with the workload; shapes begin with ``(B,)``, or ``(B, L)`` for sequences.

    ================= ======================================================================================
    numbers           of the steps
    observations      of the steps, ``(..., stack, *frame)``
    next_observations after the 1-step or n-step transitions; ``None`` where a sequence's next step shows them
    rewards           of one step, or for ``n_step`` the discounted sum
    discounts         factors of the values after n-step transitions; ``None`` where they are not returned
    mask              which steps of a sequence are of its episode; ``None`` if all are
    ================= ======================================================================================
    """

    numbers: Numbers
    observations: Frames
    next_observations: Frames | None
    rewards: npt.NDArray[Any]
    discounts: npt.NDArray[Any] | None = None
    mask: Flags | None = None

    @classmethod
    def of(cls, batch: BatchArrays) -> LearnerArrays:
        """Return a batch of single transitions, whose actions are the numbers of the steps."""
        numbers = batch.actions.astype(np.int64)
        return cls(numbers, batch.observations, batch.next_observations, batch.rewards)


class LearnerSystem(Protocol):
    """A filled memory that answers one question; ``gives_up`` and the flags as in framestow.benchmarking.libraries."""

    library: str
    question: Question
    setting: str
    gives_up: str
    keeps_final_frames: bool
    uses_torch: bool
    num_transitions: int
    """How many can be sampled."""

    def sample(self, batch_size: int) -> Any:
        """Sample a batch as one update of a learner does, and update priorities where the system has them."""

    def as_arrays(self, batch: Any) -> LearnerArrays:
        """Convert what ``sample`` returned to arrays."""


class PrioritizedSystem(LearnerSystem, Protocol):
    """A system that samples by priority."""

    def set_errors(self, numbers: Numbers, errors: npt.NDArray[np.float32]) -> None:
        """Set the priorities of these steps from these errors, as an update does."""


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


TOLERANCE = 1e-4  # of sums of three rewards of at most 50, in float32
PRIORITY_TOLERANCE = 0.03  # of ten batches of 1,024, whose standard error is 0.005; uniform sampling is 0.2 off
MOST_AT_ONCE = 10_000  # steps whose priorities are set by one call


def check_samples(system: LearnerSystem, workload: Workload, batch_size: int, num_batches: int = 4) -> None:
    """Raise ``DamagedDataError`` if batches are not of what the system was fed."""
    for _ in range(num_batches):
        arrays = system.as_arrays(system.sample(batch_size))
        counts = np.ones(arrays.numbers.shape, np.bool_) if arrays.mask is None else arrays.mask
        numbers = np.where(counts, arrays.numbers, 0)
        if numbers.min() < 0 or numbers.max() >= workload.num_steps:
            raise DamagedDataError(f"{_named(system)} gave an action that it was not fed: it cannot be compared")
        _check_observations(system, workload, arrays, numbers, counts)
        _check_rewards(system, workload, arrays, numbers, counts)
        if system.question == "sequences":
            _check_order(system, workload, numbers, counts)


def _named(system: LearnerSystem) -> str:
    return f"{system.library}, {system.question}"


def _check_observations(
    system: LearnerSystem, workload: Workload, arrays: LearnerArrays, numbers: Numbers, counts: Flags
) -> None:
    if not np.array_equal(arrays.observations[counts], workload.observations(numbers[counts])):
        raise DamagedDataError(f"{_named(system)} gave an observation that it was not fed: it cannot be compared")
    if arrays.next_observations is None:
        return
    lasts = workload.last_of_n(numbers) if system.question == "n_step" else numbers
    has_next = counts & (system.keeps_final_frames | ~workload.has_ended(lasts))
    expected = workload.observations(lasts[has_next], steps_later=1)
    if not np.array_equal(arrays.next_observations[has_next], expected):
        raise DamagedDataError(f"{_named(system)} gave a next observation that it was not fed: it cannot be compared")


def _check_rewards(
    system: LearnerSystem, workload: Workload, arrays: LearnerArrays, numbers: Numbers, counts: Flags
) -> None:
    expected = workload.returns(numbers) if system.question == "n_step" else workload.rewards(numbers)
    if not np.allclose(arrays.rewards[counts], expected[counts], atol=TOLERANCE):
        raise DamagedDataError(f"{_named(system)} gave a reward that it was not fed: it cannot be compared")
    if arrays.discounts is not None and not np.allclose(arrays.discounts, workload.discounts(numbers), atol=TOLERANCE):
        raise DamagedDataError(f"{_named(system)} gave a discount of another horizon: it cannot be compared")


def _check_order(system: LearnerSystem, workload: Workload, numbers: Numbers, counts: Flags) -> None:
    follows = counts[:, 1:] & counts[:, :-1]
    if not (np.diff(numbers) == 1)[follows].all():
        raise DamagedDataError(f"{_named(system)} gave steps that do not follow each other: it cannot be compared")
    episodes = workload.episodes(numbers)
    if not (episodes[:, 1:] == episodes[:, :-1])[follows].all():
        raise DamagedDataError(f"{_named(system)} gave a sequence of two episodes: it cannot be compared")


def check_priorities(system: PrioritizedSystem, batch_size: int = 1_024, num_batches: int = 10) -> None:
    """Set a different error for every step; raise ``DamagedDataError`` if samples do not follow the priorities.

    The system must not have sampled before. If steps are sampled in proportion to p, the mean of p over the samples is
    the sum of the squares of p over its sum.
    """
    numbers = np.arange(system.num_transitions)
    errors = np.random.default_rng(1).exponential(size=len(numbers)).astype(np.float32)
    for first in range(0, len(numbers), MOST_AT_ONCE):
        system.set_errors(numbers[first : first + MOST_AT_ONCE], errors[first : first + MOST_AT_ONCE])
    priorities = errors.astype(np.float64) ** ALPHA
    updates = SampledErrors()
    drawn, expected = [], []
    for _ in range(num_batches):
        numbers = system.as_arrays(system.sample(batch_size)).numbers
        drawn.append(priorities[numbers].mean())
        expected.append((priorities**2).sum() / priorities.sum())
        priorities[numbers] = updates.next(batch_size) ** ALPHA
    if abs(np.mean(drawn) / np.mean(expected) - 1) > PRIORITY_TOLERANCE:
        raise DamagedDataError(f"{_named(system)} does not sample by priority: it cannot be compared")
