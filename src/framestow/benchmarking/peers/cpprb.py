"""cpprb's ReplayBuffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow.benchmarking.play import Step
from framestow.benchmarking.system import Pictures, System, Task


class Cpprb(System):
    """Shares next observations and stacks; the stack is the last axis, as the library asks for."""

    name = "cpprb"
    setting = "next_of, stack_compress"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = False

    def __init__(self, task: Task) -> None:
        from cpprb import ReplayBuffer

        self._batch_size = task.batch_size
        self._buffer = ReplayBuffer(
            task.capacity,
            {
                "obs": {"shape": (*task.frame_shape, task.stack), "dtype": np.uint8},
                "act": {"dtype": np.int64},
                "rew": {"dtype": np.float32},
                "done": {"dtype": np.bool_},
            },
            next_of="obs",
            stack_compress="obs",
        )

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserves a frame a transition."""
        return task.stack_bytes // task.stack + 20

    def append(self, step: Step) -> None:
        """Add the step, and tell where an episode ends."""
        self._buffer.add(
            obs=np.moveaxis(step.observation, 0, -1),
            act=step.action,
            rew=step.reward,
            done=step.terminated,
            next_obs=np.moveaxis(step.next_observation, 0, -1),
        )
        if step.terminated or step.truncated:
            self._buffer.on_episode_end()

    def sample(self) -> Any:
        """Draw a batch of arrays."""
        return self._buffer.sample(self._batch_size)

    def pictures(self, batch: Any) -> Pictures:
        """Move the stack back to where the others have it."""
        return Pictures(np.moveaxis(batch["obs"], -1, 1), np.moveaxis(batch["next_obs"], -1, 1), batch["rew"].ravel())
