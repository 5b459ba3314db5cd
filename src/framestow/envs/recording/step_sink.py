"""What the recorder needs of a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Streams = Sequence[int] | npt.NDArray[np.integer[Any]]


class StepSink(Protocol):
    """What the `Recorder` needs of a memory; `framestow.ReplayMemory` is one."""

    @property
    def stack(self) -> int:
        """How many frames an observation has."""

    def begin(self, frames: Any, env_ids: Streams | None = None) -> None:
        """Start an episode with its first frame on each of ``env_ids`` (all where ``None``), ``(m, *frame)``.

        An episode that is still open there is closed as cut off. The frames are copied.
        """

    def append(
        self,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        frames: Any,
        env_ids: Streams | None = None,
    ) -> None:
        """Add what a step of each of ``env_ids`` led to, true final frames included. The frames are copied.

        A memory with extras has a method ``_checked_extras(extras, num_steps)``, as `framestow.ReplayMemory`
        has, and takes what that gives as ``extras=``.
        """

    def observations(self) -> npt.NDArray[Any]:
        """Give what the policy sees now, a fresh array ``(n, stack, *frame)``."""


def open_episodes(memory: StepSink, num_envs: int) -> npt.NDArray[np.bool_]:
    """Which streams have an episode that goes on in ``memory``, ``(num_envs,)``; all where it does not tell."""
    told = getattr(memory, "open_episodes", None)
    return np.ones(num_envs, np.bool_) if told is None else np.asarray(told, np.bool_)
