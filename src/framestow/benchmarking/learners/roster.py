"""Which systems are filled together, what they need, and what no system of a library answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from framestow.benchmarking.learners import tianshou, torchrl
from framestow.benchmarking.learners.course import Course
from framestow.benchmarking.learners.cpprb import CpprbNStep, CpprbPrioritized, CpprbUniform
from framestow.benchmarking.learners.learning_system import LearningSystem, Question
from framestow.benchmarking.learners.stable_baselines3 import StableBaselines3NStep, StableBaselines3Uniform


@dataclass(frozen=True)
class Group:
    """Systems that share what they keep, or fit into RAM beside each other: one process measures them."""

    requirement: str
    """The distribution that they come from."""
    build: Callable[[Course], list[LearningSystem]]
    questions: tuple[Question, ...]
    stacks_kept: int
    """Stacks that are kept of a transition, all copies together; 0 where single frames are."""
    copies: int = 1
    """How many times the same transitions are kept, for systems that cannot share them."""

    def bytes_a_transition(self, frame_bytes: int, stack: int) -> int:
        """Bytes that the group takes for a transition, somewhat more than less."""
        return (self.stacks_kept * stack or 1) * frame_bytes + 1_500


GROUPS: dict[str, Group] = {
    "cpprb-uniform": Group("cpprb", lambda course: [CpprbUniform(course)], ("uniform",), 0),
    "cpprb-prioritized": Group("cpprb", lambda course: [CpprbPrioritized(course)], ("prioritized",), 0),
    "cpprb-n-step": Group("cpprb", lambda course: [CpprbNStep(course)], ("n_step",), 2),
    "torchrl-pairs": Group("torchrl", torchrl.pairs, ("uniform", "prioritized", "n_step"), 4, copies=2),
    "torchrl-frames": Group("torchrl", torchrl.frames, ("sequences",), 0),
    "sb3-uniform": Group("stable-baselines3", lambda course: [StableBaselines3Uniform(course)], ("uniform",), 1),
    "sb3-n-step": Group("stable-baselines3", lambda course: [StableBaselines3NStep(course)], ("n_step",), 2),
    "tianshou": Group("tianshou", tianshou.systems, ("uniform", "prioritized", "n_step", "sequences"), 0),
}

LACKING: dict[str, tuple[Question, ...]] = {
    "cpprb": ("sequences",),
    "Stable-Baselines3": ("prioritized", "sequences"),
}
