"""What a learner asks of a memory: the workload, the protocol of the systems, and the checks of what they draw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.play import Frames, Play
from framestow.errors import DamagedDataError

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Course:
    """``num_steps`` steps of a play that begins anew whenever it is over; the last of them is cut off: truncated.

    A step's action is its number, by which it is known again whatever else of it is drawn, so ``num_actions`` is
    ``num_steps``. Its reward is a small integer: a sum of a few with powers of a discount is exact to ``float32``.
    """

    play: Play
    num_steps: int
    stack: int
    n_step: int
    discount: float

    def observations(self, numbers: Numbers, steps_later: int = 0) -> Frames:
        """Give the observations of these steps, ``(*numbers.shape, stack, *frame)``, or those that they led to."""
        flat = self.play.observations(numbers.ravel(), self.stack, steps_later)
        return flat.reshape(*numbers.shape, *flat.shape[1:])

    def newest_frames(self, numbers: Numbers) -> Frames:
        """Give the frames that these steps' observations end with, ``(*numbers.shape, *frame)``."""
        return self.play.frames[self.play.positions[numbers % len(self.play.positions)]]

    def rewards(self, numbers: Numbers) -> npt.NDArray[np.float32]:
        """Give the rewards of single steps."""
        return (numbers % 101 - 50).astype(np.float32)

    def terminated(self, numbers: Numbers) -> Flags:
        """Tell which of these steps terminated their episode."""
        terminated: Flags = self.play.terminated[numbers % len(self.play.positions)]
        return terminated

    def has_ended(self, numbers: Numbers) -> Flags:
        """Tell which of these steps ended their episode, either way."""
        ended: Flags = self.play.has_ended(numbers) | (numbers == self.num_steps - 1)
        return ended

    def truncated(self, numbers: Numbers) -> Flags:
        """Tell which of these steps ended their episode without terminating it."""
        return self.has_ended(numbers) & ~self.terminated(numbers)

    def episodes(self, numbers: Numbers) -> Numbers:
        """Give each of these steps the number of its episode's first step."""
        which = numbers % len(self.play.positions)
        # Each episode has one frame more than it has steps, so its first step lies where its first frame does, less
        # the episodes before it.
        first_positions = self.play.episode_starts[self.play.positions[which]]
        return numbers - which + np.searchsorted(self.play.positions, first_positions)

    def steps_left(self, numbers: Numbers) -> Numbers:
        """Count the steps from each of these to its episode's last, both included."""
        which = numbers % len(self.play.positions)
        [ends] = np.nonzero(self.play.terminated | self.play.truncated)
        left: Numbers = ends[np.searchsorted(ends, which)] - which + 1
        return np.minimum(left, self.num_steps - numbers)

    def last_of_n(self, numbers: Numbers) -> Numbers:
        """Give the step that ends each one's n-step transition: ``n_step - 1`` later, or its episode's last."""
        return numbers + np.minimum(self.steps_left(numbers), self.n_step) - 1

    def returns(self, numbers: Numbers) -> npt.NDArray[np.float64]:
        """Sum the discounted rewards of each one's n-step transition."""
        lasts = self.last_of_n(numbers)
        total = np.zeros(numbers.shape)
        for later in range(self.n_step):
            steps = numbers + later
            total += np.where(steps <= lasts, self.discount**later * self.rewards(steps), 0.0)
        return total

    def discounts(self, numbers: Numbers) -> npt.NDArray[np.float64]:
        """Give what the value behind each n-step transition counts: a power of the discount, 0 once terminated."""
        lasts = self.last_of_n(numbers)
        return np.where(self.terminated(lasts), 0.0, self.discount ** (lasts - numbers + 1))

    def chunks(self, longest: int) -> Iterator[Numbers]:
        """Give the numbers of all steps in pieces of at most ``longest``, none of which crosses an episode's end."""
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
class Drawn:
    """A batch as arrays, to be held against the course; shapes with ``(B,)`` or, of sequences, ``(B, L)`` before.

    ================= =====================================================================================
    numbers           of the steps
    observations      of the steps, ``(..., stack, *frame)``
    next_observations behind the 1-step or n-step transitions; ``None`` where a sequence's next step shows it
    rewards           of one step, or for ``n_step`` the discounted sum
    discounts         what the value behind an n-step transition counts; ``None`` where it is not given
    mask              which steps of a sequence are of its episode; ``None`` if all are
    ================= =====================================================================================
    """

    numbers: Numbers
    observations: Frames
    next_observations: Frames | None
    rewards: npt.NDArray[Any]
    discounts: npt.NDArray[Any] | None = None
    mask: Flags | None = None


class LearningSystem(Protocol):
    """A filled memory that answers one question."""

    library: str
    question: Question
    setting: str
    gives_up: str
    """What is lost at this setting, in words; empty if nothing."""
    keeps_final_frames: bool
    """Whether the observation behind an episode's last step comes back, at any of an n-step transition's steps."""
    uses_torch: bool
    """Whether PyTorch's number of threads matters."""
    num_transitions: int
    """How many can be drawn."""

    def draw(self, batch_size: int) -> Any:
        """Do what one update asks of the memory, with the update of priorities where there are any."""

    def drawn(self, batch: Any) -> Drawn:
        """Give what ``draw`` returned as arrays."""


class PrioritizedLearning(LearningSystem, Protocol):
    """A system that draws by priority."""

    def set_errors(self, numbers: Numbers, errors: npt.NDArray[np.float32]) -> None:
        """Give these steps the priorities of these errors, as an update does."""


class TemporalDifferences:
    """Errors as a learner would find them, drawn beforehand: no call of the generator is timed."""

    def __init__(self, seed: int = 0) -> None:
        self._errors = np.random.default_rng(seed).exponential(size=1 << 20).astype(np.float32)
        self._next = 0

    def next(self, count: int) -> npt.NDArray[np.float32]:
        """Give the next ``count`` errors, a view."""
        if self._next + count > len(self._errors):
            self._next = 0
        self._next += count
        return self._errors[self._next - count : self._next]


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


NUM_BATCHES = 61  # drawn beforehand, taken in turn


class BareWindows:
    """Copies windows of consecutive frames with one ``np.take`` into a kept output.

    The array holds the play's frames again and again, ``num_bytes`` of them, so that it lies in no cache. No episode is
    respected and nothing but frames is kept: no memory can do with less work from uncompressed frames.
    """

    def __init__(self, play: Play, num_bytes: int) -> None:
        self._frames = np.empty((num_bytes // play.frames[0].nbytes, *play.frames.shape[1:]), np.uint8)
        for start in range(0, len(self._frames), len(play.frames)):
            part = self._frames[start : start + len(play.frames)]
            part[:] = play.frames[: len(part)]
        self._out = np.empty(0, np.uint8)
        self._windows: dict[tuple[int, int], npt.NDArray[np.int64]] = {}
        self._next = 0

    def copy(self, batch_size: int, length: int) -> Frames:
        """Copy the next batch of ``length`` frames each; the array that comes back is written over by the next call."""
        if (batch_size, length) not in self._windows:
            self._windows.clear()  # one kind is timed after the other
            rng = np.random.default_rng(batch_size)
            firsts = rng.integers(len(self._frames) - length, size=(NUM_BATCHES, batch_size, 1))
            self._windows[batch_size, length] = firsts + np.arange(length)
            self._out = np.empty((batch_size, length, *self._frames.shape[1:]), np.uint8)
        self._next = (self._next + 1) % NUM_BATCHES
        return np.take(self._frames, self._windows[batch_size, length][self._next], axis=0, out=self._out, mode="clip")
