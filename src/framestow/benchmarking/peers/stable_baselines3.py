"""Stable-Baselines3's ReplayBuffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow.benchmarking.play import Step
from framestow.benchmarking.system import Pictures, System, Task


class StableBaselines3(System):
    """``optimize_memory_usage`` halves the bytes; the library forbids ``handle_timeout_termination`` beside it."""

    name = "Stable-Baselines3"
    setting = "optimize_memory_usage"
    gives_up = "truncation, and the final frame of an episode"
    keeps_final_frames = False
    uses_torch = True

    def __init__(self, task: Task) -> None:
        from gymnasium.spaces import Box, Discrete
        from stable_baselines3.common.buffers import ReplayBuffer

        self._batch_size = task.batch_size
        self._buffer = ReplayBuffer(
            task.capacity,
            Box(0, 255, task.stack_shape, np.uint8),
            Discrete(task.num_actions),
            device="cpu",
            optimize_memory_usage=True,
            handle_timeout_termination=False,
        )

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserves a stack a transition."""
        return task.stack_bytes + 20

    def append(self, step: Step) -> None:
        """Add the step as a vector environment of one would."""
        self._buffer.add(
            step.observation[None],
            step.next_observation[None],
            np.array([step.action]),
            np.array([step.reward]),
            np.array([step.terminated or step.truncated]),
            [{}],
        )

    def sample(self) -> Any:
        """Draw a batch of tensors."""
        return self._buffer.sample(self._batch_size)

    def pictures(self, batch: Any) -> Pictures:
        """Look at the tensors as arrays."""
        return Pictures(batch.observations.numpy(), batch.next_observations.numpy(), batch.rewards.numpy().ravel())
