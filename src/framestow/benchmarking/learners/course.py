"""A million numbered steps of a game, as every system is fed them and as what it draws is held against them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.play import Frames, Play

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
