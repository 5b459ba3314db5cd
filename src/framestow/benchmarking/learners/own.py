"""framestow's memory, asked as a learner asks it."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.learners.course import Course, Numbers
from framestow.benchmarking.learners.learning_system import (
    ALPHA,
    BETA,
    SEQUENCE_LENGTH,
    Drawn,
    LearningSystem,
    Question,
    TemporalDifferences,
)
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.prioritized import Prioritized


def filled(course: Course, n_step: int) -> ReplayMemory:
    """Play the course into a packed memory of one stream."""
    memory = ReplayMemory(
        course.num_steps,
        FrameSpec(course.play.frames.shape[1:]),
        course.num_steps,
        stack=course.stack,
        n_step=n_step,
        discount=course.discount,
        seed=0,
    )
    starts_episode = True
    for numbers in course.chunks(1_000):
        first_frames = course.newest_frames(numbers)
        next_frames = course.observations(numbers, 1)[:, -1]
        columns = (course.rewards(numbers), course.terminated(numbers), course.truncated(numbers))
        for place, number in enumerate(numbers.tolist()):
            if starts_episode:
                memory.begin(first_frames[place : place + 1])
            reward, terminated, truncated = (column[place : place + 1] for column in columns)
            memory.append([number], reward, terminated, truncated, next_frames[place : place + 1])
            starts_episode = bool(terminated[0] or truncated[0])
    return memory


class OwnLearning(LearningSystem):
    """A saved memory, loaded with a number of threads and the sampler that the question wants."""

    setting = "packed"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = False

    def __init__(self, question: Question, path: str | PathLike[str], threads: int) -> None:
        self.library = "framestow" if threads == 1 else f"framestow, {threads} threads"
        self.question = question
        sampler = Prioritized(alpha=ALPHA, beta=BETA) if question == "prioritized" else None
        self._memory = ReplayMemory.load(path, sampler=sampler, threads=threads)
        self._errors = TemporalDifferences()
        self.num_transitions = len(self._memory)

    def draw(self, batch_size: int) -> Any:
        """Draw a batch into recycled arrays."""
        if self.question == "sequences":
            return self._memory.sample_sequences(batch_size, length=SEQUENCE_LENGTH)
        batch = self._memory.sample(batch_size)
        if self.question == "prioritized":
            self._memory.update_priorities(batch.index, self._errors.next(batch_size))
        return batch

    def set_errors(self, numbers: Numbers, errors: npt.NDArray[np.float32]) -> None:
        """Give these steps, whose indices are their numbers, the priorities of these errors."""
        self._memory.update_priorities(numbers, errors)

    def drawn(self, batch: Any) -> Drawn:
        """Give the batch's own arrays."""
        discounts = batch.discount if self.question == "n_step" else None
        mask = batch.mask if self.question == "sequences" else None
        return Drawn(
            batch.action, batch.observation, batch.next_observation, batch.reward, discounts=discounts, mask=mask
        )
