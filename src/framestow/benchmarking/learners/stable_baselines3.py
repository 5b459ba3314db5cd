"""What Stable-Baselines3's buffers answer: no priorities, no sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow.benchmarking.learners.course import Course
from framestow.benchmarking.learners.learning_system import Drawn, LearningSystem

CHUNK = 1_000  # steps that are written at once


class _StableBaselines3(LearningSystem):
    """Written into the buffer's own arrays, in which ``add`` would have put the same."""

    library = "Stable-Baselines3"
    uses_torch = True

    def __init__(self, course: Course) -> None:
        self.num_transitions = course.num_steps
        buffer = self._buffer = self._made(course)
        for numbers in course.chunks(CHUNK):
            buffer.observations[numbers, 0] = course.observations(numbers)
            next_observations = course.observations(numbers, 1)
            if buffer.optimize_memory_usage:
                buffer.observations[numbers + 1, 0] = next_observations
            else:
                buffer.next_observations[numbers, 0] = next_observations
            buffer.actions[numbers, 0, 0] = numbers
            buffer.rewards[numbers, 0] = course.rewards(numbers)
            buffer.dones[numbers, 0] = course.has_ended(numbers)
            if buffer.handle_timeout_termination:
                buffer.timeouts[numbers, 0] = course.truncated(numbers)
        buffer.pos = course.num_steps

    def _made(self, course: Course) -> Any:
        raise NotImplementedError

    def draw(self, batch_size: int) -> Any:
        """Draw a batch of tensors."""
        return self._buffer.sample(batch_size)


def _arguments(course: Course) -> tuple[Any, ...]:
    from gymnasium.spaces import Box, Discrete

    shape = (course.stack, *course.play.frames.shape[1:])
    # One place more than is filled: the last step's next observation lies in it where it is shared.
    return course.num_steps + 1, Box(0, 255, shape, np.uint8), Discrete(course.num_steps), "cpu"


class StableBaselines3Uniform(_StableBaselines3):
    """``optimize_memory_usage`` halves the bytes; the library forbids ``handle_timeout_termination`` beside it."""

    question = "uniform"
    setting = "ReplayBuffer, optimize_memory_usage"
    gives_up = "truncation, and the final frame of an episode"
    keeps_final_frames = False

    def _made(self, course: Course) -> Any:
        from stable_baselines3.common.buffers import ReplayBuffer

        return ReplayBuffer(*_arguments(course), optimize_memory_usage=True, handle_timeout_termination=False)

    def drawn(self, batch: Any) -> Drawn:
        """Look at the tensors as arrays."""
        return Drawn(
            batch.actions.numpy().ravel().astype(np.int64),
            batch.observations.numpy(),
            batch.next_observations.numpy(),
            batch.rewards.numpy().ravel(),
        )


class StableBaselines3NStep(_StableBaselines3):
    """Stacks and next stacks: the n-step buffer refuses to halve them."""

    question = "n_step"
    setting = "NStepReplayBuffer"
    gives_up = ""
    keeps_final_frames = True

    def _made(self, course: Course) -> Any:
        from stable_baselines3.common.buffers import NStepReplayBuffer

        return NStepReplayBuffer(*_arguments(course), n_steps=course.n_step, gamma=course.discount)

    def drawn(self, batch: Any) -> Drawn:
        """Look at the tensors as arrays."""
        return Drawn(
            batch.actions.numpy().ravel().astype(np.int64),
            batch.observations.numpy(),
            batch.next_observations.numpy(),
            batch.rewards.numpy().ravel(),
            (batch.discounts * (1 - batch.dones)).numpy().ravel(),
        )
