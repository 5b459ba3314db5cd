"""TorchRL's ReplayBuffer."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from framestow.benchmarking.play import Step
from framestow.benchmarking.system import Pictures, System, Task


class TorchRL(System):
    """Stacks and next stacks as one flat TensorDict in a tensor storage, without prefetching.

    A thread that samples ahead could be put before every system here; what is measured is a batch that is asked for.
    Three quarters of the time is PyTorch's indexing of ``uint8`` tensors (820 of 1,170 µs on a busy machine), so
    LazyMemmapStorage takes as long; ListStorage took a tenth less, with a dozen Python objects a transition.
    """

    name = "TorchRL"
    setting = "LazyTensorStorage"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = True

    def __init__(self, task: Task) -> None:
        import torch
        from tensordict import TensorDict
        from torchrl.data import LazyTensorStorage, ReplayBuffer

        logging.getLogger("torchrl").setLevel(logging.WARNING)

        self._torch, self._dict_type = torch, TensorDict
        self._buffer = ReplayBuffer(storage=LazyTensorStorage(task.capacity), batch_size=task.batch_size)

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserves two stacks a transition."""
        return 2 * task.stack_bytes + 20

    def append(self, step: Step) -> None:
        """Add the step as a TensorDict without a batch dimension."""
        tensor = self._torch.as_tensor
        self._buffer.add(
            self._dict_type(
                {
                    "observation": tensor(np.array(step.observation)),
                    "action": tensor(step.action),
                    "reward": tensor(step.reward),
                    "terminated": tensor(step.terminated),
                    "truncated": tensor(step.truncated),
                    "next_observation": tensor(np.array(step.next_observation)),
                }
            )
        )

    def sample(self) -> Any:
        """Draw a batch of tensors."""
        return self._buffer.sample()

    def pictures(self, batch: Any) -> Pictures:
        """Look at the tensors as arrays."""
        return Pictures(batch["observation"].numpy(), batch["next_observation"].numpy(), batch["reward"].numpy())
