"""The compressed replay buffer of sb3-extra-buffers, with LZ4."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from framestow.benchmarking.play import Step
from framestow.benchmarking.system import Pictures, System, Task

# Of the LZ4 methods and levels the quickest to sample, and within 3 % of the smallest (level 9, three times as slow to
# add): on Breakout 1,302 bytes a transition, where lz4-frame/1 has 1,604.
COMPRESSION = "lz4-block/5"


class _ExtraBuffer(System):
    """Each stack is compressed on its own; the subclasses say whether the next one is kept beside it."""

    uses_torch = True

    def __init__(self, task: Task) -> None:
        from gymnasium.spaces import Box, Discrete

        logging.getLogger("sb3_extra_buffers").setLevel(logging.ERROR)
        import lz4.frame  # noqa: F401 -- without it the buffer would fall back to another method
        from sb3_extra_buffers.compressed import CompressedReplayBuffer, find_buffer_dtypes

        self._batch_size = task.batch_size
        self._buffer = CompressedReplayBuffer(
            task.capacity,
            Box(0, 255, task.stack_shape, np.uint8),
            Discrete(task.num_actions),
            device="cpu",
            optimize_memory_usage=not self.keeps_final_frames,
            handle_timeout_termination=self.keeps_final_frames,
            dtypes=find_buffer_dtypes(task.stack_shape, np.uint8, COMPRESSION),
            compression_method=COMPRESSION,
        )

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserves two references and the scalars."""
        return 40

    def append(self, step: Step) -> None:
        """Add the step as a vector environment of one would."""
        self._buffer.add(
            step.observation[None],
            step.next_observation[None],
            np.array([step.action]),
            np.array([step.reward]),
            np.array([step.terminated or step.truncated]),
            [{"TimeLimit.truncated": step.truncated and not step.terminated}],
        )

    def sample(self) -> Any:
        """Draw a batch of tensors."""
        return self._buffer.sample(self._batch_size)

    def pictures(self, batch: Any) -> Pictures:
        """Look at the tensors as arrays."""
        return Pictures(batch.observations.numpy(), batch.next_observations.numpy(), batch.rewards.numpy().ravel())


class ExtraBufferWithTruncation(_ExtraBuffer):
    """Keeps the next stack beside each stack."""

    name = "sb3-extra-buffers"
    setting = f"{COMPRESSION}, truncation kept"
    gives_up = ""
    keeps_final_frames = True


class ExtraBufferWithoutTruncation(_ExtraBuffer):
    """Takes the following stack for the next one."""

    name = "sb3-extra-buffers, halved"
    setting = f"{COMPRESSION}, optimize_memory_usage"
    gives_up = "truncation, and the final frame of an episode"
    keeps_final_frames = False
