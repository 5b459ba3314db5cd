"""Tianshou's ReplayBuffer."""

from __future__ import annotations

from typing import Any

from framestow.benchmarking.play import Step
from framestow.benchmarking.system import Pictures, System, Task


class Tianshou(System):
    """Single frames, stacked when sampled: the least memory that the buffer can do with."""

    name = "Tianshou"
    setting = "stack_num, save_only_last_obs, ignore_obs_next"
    gives_up = "the final frame of an episode"
    keeps_final_frames = False
    uses_torch = False

    def __init__(self, task: Task) -> None:
        from tianshou.data import Batch, ReplayBuffer

        self._step_type = Batch
        self._batch_size = task.batch_size
        self._buffer = ReplayBuffer(
            task.capacity,
            stack_num=task.stack,
            ignore_obs_next=True,
            save_only_last_obs=True,
            random_seed=task.seed,
        )

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserves a frame a transition."""
        return task.stack_bytes // task.stack + 40

    def append(self, step: Step) -> None:
        """Add the step; the buffer takes the newest frame out of the stack."""
        self._buffer.add(
            self._step_type(
                obs=step.observation,
                act=step.action,
                rew=step.reward,
                terminated=step.terminated,
                truncated=step.truncated,
                obs_next=step.next_observation,
                info={},
            )
        )

    def sample(self) -> Any:
        """Draw a batch of arrays."""
        batch, _ = self._buffer.sample(self._batch_size)
        return batch

    def pictures(self, batch: Any) -> Pictures:
        """Give the batch's own arrays."""
        return Pictures(batch.obs, batch.obs_next, batch.rew)
