"""The buffer of CleanRL's off-policy scripts."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from framestow.frames.observation_spec import map_arrays
from framestow.integrations.drop_in.row_buffer import RowBuffer


def copied_tensor(array: npt.NDArray[Any], device: Any) -> torch.Tensor:
    """Give a copy of ``array`` on ``device``.

    Both observations of a batch are views of the same frames, and a learner may write to its tensors.
    """
    return torch.from_numpy(np.array(array, order="C")).to(device)


def chosen_device(device: Any) -> torch.device:
    """``"auto"`` is a GPU where there is one; without one, what asks for it gets the CPU, as in CleanRL."""
    chosen = torch.device("cuda" if device == "auto" else device)
    return chosen if chosen.type != "cuda" or torch.cuda.is_available() else torch.device("cpu")


Array = npt.NDArray[Any]


class ReplayBufferSamples(NamedTuple):
    """What is sampled, ``B`` transitions: tensors on the buffer's device, nobody else's.

    =====================  ====================  ========================================================
    field                  shape                 meaning
    =====================  ====================  ========================================================
    ``observations``       ``(B, *shape)``       what the policy saw; of a Dict, one such tensor a key
    ``actions``            ``(B, action_dim)``   what it did
    ``next_observations``  ``(B, *shape)``       what that led to
    ``dones``              ``(B, 1)``            1 where the episode terminated, ``float32``
    ``rewards``            ``(B, 1)``            what it gave, ``float32``
    =====================  ====================  ========================================================
    """

    observations: Any
    actions: torch.Tensor
    next_observations: Any
    dones: torch.Tensor
    rewards: torch.Tensor


class ReplayBuffer(RowBuffer):
    """What ``from cleanrl_utils.buffers import ReplayBuffer`` gives a script: its arguments, calls and draws.

    Indices are drawn by ``np.random`` as there. ``optimize_memory_usage`` decides about these alone (where it is set,
    the oldest row of a full buffer is not drawn): every frame is kept once either way, and every next observation is
    the one that ``add`` was given. So ``dqn_atari.py`` gets the true last observation of an episode that was truncated,
    and bootstraps from it; CleanRL's buffer gives it the first one of the next episode instead (its issue 460). It goes
    together with ``handle_timeout_termination``, which takes ``infos`` as a list of dicts, one an environment.

    ``frame_stack``: frames of an observation; ``None`` finds out. ``threads``: how many unpack a batch.
    ``storage``: ``"packed"``, or ``"raw"`` for frames as they are, each once.

    Raises ``InvalidSettingsError`` for what cannot work, ``InvalidStepError``, before it is stored, for a step that
    breaks a rule of the memory's: a reward that is not finite, an action that is not of its space, an observation that
    would change when it is cast.
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
        threads: int = 1,
        storage: str = "packed",
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.buffer_size, self.n_envs = max(buffer_size // n_envs, 1), n_envs
        self.device = chosen_device(device)
        self.obs_shape, self.action_dim = _shape_of(observation_space), math.prod(_shape_of(action_space))
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self._lay_out(observation_space, self.obs_shape, action_space, frame_stack, threads, storage)

    def size(self) -> int:
        """How many rows are held."""
        return self.buffer_size if self.full else self.pos

    def extend(self, *rows: Any) -> None:
        """Add rows, each argument of ``add`` being a sequence of those."""
        for row in zip(*rows, strict=True):
            self.add(*row)

    def sample(self, batch_size: int) -> ReplayBufferSamples:
        """Draw ``batch_size`` transitions: a row, all equally likely, then one of its environments.

        Raises ``NothingToSampleError`` while there is none.
        """
        batch = self._draw_batch(self._draw_rows(batch_size))
        return ReplayBufferSamples(
            map_arrays(self.to_torch, batch.observation),
            self.to_torch(self._as_library_actions(batch.action)),
            map_arrays(self.to_torch, batch.next_observation),
            self.to_torch(batch.terminated.astype(np.float32)[:, None]),
            self.to_torch(batch.reward[:, None]),
        )

    def to_torch(self, array: Array, copy: bool = True) -> torch.Tensor:
        """Give an array as a tensor on the device; without ``copy`` it may look at the array's own numbers."""
        return copied_tensor(array, self.device) if copy else torch.as_tensor(array, device=self.device)


def _shape_of(space: Any) -> Any:
    """Shape of what an element of a Gymnasium space is kept as; of a Dict by key. A number has an axis of its own."""
    if hasattr(space, "spaces"):
        return {key: _shape_of(part) for key, part in space.spaces.items()}
    return tuple(space.shape) or (1,)
