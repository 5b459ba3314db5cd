"""``ReplayBuffer`` for CleanRL's off-policy scripts: CleanRL's calls, answered from a packed memory."""

from __future__ import annotations

from collections.abc import Sized
from functools import partial
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt
import torch

from framestow.errors import InvalidStepError
from framestow.frames.observation_spec import map_arrays
from framestow.integrations.drop_in.memory_options import BudgetOptions, take_options
from framestow.integrations.drop_in.row_buffer import RowBuffer
from framestow.torch.tensor_batch import parse_device

NUM_FIELDS = 6  # of a row: the arguments of ``add``


def choose_device(device: Any) -> torch.device:
    """Return the device: ``"auto"`` and CUDA devices become the CPU if there is no GPU, as in CleanRL."""
    chosen = parse_device("cuda" if isinstance(device, str) and device == "auto" else device)
    return chosen if chosen.type != "cuda" or torch.cuda.is_available() else torch.device("cpu")


Array = npt.NDArray[Any]


class ReplayBufferSamples(NamedTuple):
    """``B`` sampled transitions, as tensors on the buffer's device that you may write to.

    =====================  ====================  ========================================================
    field                  shape                 meaning
    =====================  ====================  ========================================================
    ``observations``       ``(B, *shape)``       observations; for a Dict space, a dict of tensors
    ``actions``            ``(B, action_dim)``   actions
    ``next_observations``  ``(B, *shape)``       observations after the actions
    ``dones``              ``(B, 1)``            ``float32``, 1 if the episode terminated
    ``rewards``            ``(B, 1)``            ``float32``
    =====================  ====================  ========================================================
    """

    observations: Any
    actions: torch.Tensor
    next_observations: Any
    dones: torch.Tensor
    rewards: torch.Tensor


class ReplayBuffer(RowBuffer):
    """Drop-in for ``cleanrl_utils.buffers.ReplayBuffer``, with packed observations.

    Same as CleanRL's buffer: arguments, calls, and the indices drawn by ``np.random``.

    Different: each frame is stored once, and every next observation is the one that ``add`` was given. So
    ``dqn_atari.py`` bootstraps a truncated episode from its true last observation. CleanRL's buffer uses the first
    observation of the next episode instead (CleanRL issue 460). ``optimize_memory_usage`` only affects the drawn
    indices (the oldest row of a full buffer is not drawn). You may combine it with ``handle_timeout_termination``,
    which needs ``infos`` as a list of dicts, one per environment.

    Arguments:
        frame_stack: frames per observation; ``None`` decides by shape.
        memory: options of the memory, by keyword: ``threads``, ``storage``, ``frames_per_segment``, ``directory``,
            ``flush_every``, ``max_bytes`` (``BudgetOptions``). A buffer that is built with a used ``directory`` resumes
            what is there, with a warning. Its pickle names the folder.

    Raises:
        InvalidSettingsError: invalid settings.
        IncompatibleError: ``directory`` has a memory with other settings, or another process writes to it.
        InvalidStepError: ``add`` was given a reward that is not finite, an action outside its space, or an observation
            that would change when cast. Nothing is stored.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: Any,
        action_space: Any,
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        frame_stack: int | None = None,
        **memory: Unpack[BudgetOptions],
    ) -> None:
        options = take_options(type(self), BudgetOptions, memory)
        self.observation_space, self.action_space = observation_space, action_space
        self.buffer_size, self.n_envs = buffer_size, n_envs
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self.device = choose_device(device)
        self._init_rows(
            observation_space,
            action_space,
            frame_stack,
            **options,
        )
        self._make_steps()

    def extend(self, *rows: Any) -> None:
        """Add several rows; each argument is a sequence of arguments of ``add``."""
        lengths = [len(values) if isinstance(values, Sized) else "no" for values in rows]
        if len(rows) != NUM_FIELDS or len(set(lengths)) != 1 or "no" in lengths:
            raise InvalidStepError(
                f"extend was given {len(rows)} arguments of {lengths} values: it takes the {NUM_FIELDS} arguments of "
                "add, each as a list with one value for each row; give lists of one length"
            )
        for row in zip(*rows, strict=True):
            self.add(*row)

    def sample(self, batch_size: int) -> ReplayBufferSamples:
        """Sample ``batch_size`` transitions: uniform rows, then uniform environments.

        Raises:
            NothingToSampleError: the buffer is empty.
        """
        batch = self._steps.transitions(self._draw_indices(self._draw_rows(batch_size)))
        own = partial(self.to_torch, copy=False)
        return ReplayBufferSamples(
            map_arrays(own, batch.observation),
            own(self._as_library_actions(batch.action)),
            map_arrays(own, batch.next_observation),
            own(batch.terminated.astype(np.float32).reshape(-1, 1)),
            own(batch.reward.reshape(-1, 1)),
        )

    def to_torch(self, array: Array, copy: bool = True) -> torch.Tensor:
        """Return an array as a tensor on the device; with ``copy=False`` it may be a view of the array."""
        array = np.array(array, order="C") if copy else self._steps.copies.of(array)
        return torch.as_tensor(array, device=self.device)
