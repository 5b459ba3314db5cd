"""What cpprb's buffers answer: no sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow.benchmarking.learners.course import Course, Numbers
from framestow.benchmarking.learners.learning_system import ALPHA, BETA, Drawn, LearningSystem, TemporalDifferences

CHUNK = 512  # steps an add


class _Cpprb(LearningSystem):
    """Fed in pieces of episodes; the stack is the last axis, as the library asks for."""

    library = "cpprb"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = False

    def __init__(self, course: Course) -> None:
        self.num_transitions = course.num_steps
        self._buffer = self._made(course)
        for numbers in course.chunks(CHUNK):
            self._buffer.add(
                obs=np.moveaxis(course.observations(numbers), 1, -1),
                next_obs=np.moveaxis(course.observations(numbers, 1), 1, -1),
                act=numbers,
                rew=course.rewards(numbers),
                done=course.terminated(numbers),
            )
            if course.has_ended(numbers[-1:])[0]:
                self._buffer.on_episode_end()

    def _made(self, course: Course) -> Any:
        raise NotImplementedError

    def draw(self, batch_size: int) -> Any:
        """Draw a batch of arrays."""
        return self._buffer.sample(batch_size)

    def drawn(self, batch: Any) -> Drawn:
        """Move the stack back to where the others have it."""
        observations, next_observations = (np.moveaxis(batch[name], -1, 1) for name in ("obs", "next_obs"))
        return Drawn(batch["act"].ravel(), observations, next_observations, batch["rew"].ravel())


def _columns(course: Course, *observations: str) -> dict[str, Any]:
    shape = (*course.play.frames.shape[1:], course.stack)
    stacks = {name: {"shape": shape, "dtype": np.uint8} for name in observations}
    return {**stacks, "act": {"dtype": np.int64}, "rew": {"dtype": np.float32}, "done": {"dtype": np.bool_}}


class CpprbUniform(_Cpprb):
    """Shares next observations and stacks."""

    question = "uniform"
    setting = "ReplayBuffer, next_of, stack_compress"

    def _made(self, course: Course) -> Any:
        from cpprb import ReplayBuffer

        return ReplayBuffer(course.num_steps, _columns(course, "obs"), next_of="obs", stack_compress="obs")


class CpprbPrioritized(_Cpprb):
    """The same with its priority trees."""

    question = "prioritized"
    setting = "PrioritizedReplayBuffer, next_of, stack_compress"

    def _made(self, course: Course) -> Any:
        from cpprb import PrioritizedReplayBuffer

        self._errors = TemporalDifferences()
        return PrioritizedReplayBuffer(
            course.num_steps, _columns(course, "obs"), alpha=ALPHA, next_of="obs", stack_compress="obs"
        )

    def draw(self, batch_size: int) -> Any:
        """Draw by priority, and give what was drawn new priorities."""
        batch = self._buffer.sample(batch_size, beta=BETA)
        self._buffer.update_priorities(batch["indexes"], self._errors.next(batch_size))
        return batch

    def set_errors(self, numbers: Numbers, errors: Any) -> None:
        """Give these steps, which lie at the places of their numbers, the priorities of these errors."""
        self._buffer.update_priorities(numbers, errors)


class CpprbNStep(_Cpprb):
    """Whole stacks twice: with ``next_of`` there is no next observation, with ``stack_compress`` some are wrong.

    Of episodes of 500 steps, 0.6 % of the next observations were not the true ones with ``stack_compress``, those of
    steps five to three before the end among them, whose value counts (11.0.0).
    """

    question = "n_step"
    setting = "ReplayBuffer, Nstep, uncompressed"
    gives_up = "the observation that an episode's last n - 1 steps lead to"
    keeps_final_frames = False

    def _made(self, course: Course) -> Any:
        from cpprb import ReplayBuffer

        n_step = {"size": course.n_step, "gamma": course.discount, "rew": "rew", "next": "next_obs"}
        return ReplayBuffer(course.num_steps, _columns(course, "obs", "next_obs"), Nstep=n_step)
