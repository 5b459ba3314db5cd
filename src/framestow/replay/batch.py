"""What a sample is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, init=False)
class Batch:
    """Transitions drawn from a memory, ``B`` of them.

    ================  ==========================  =======  =======================================================
    field             shape                       dtype    meaning
    ================  ==========================  =======  =======================================================
    observation       ``(B, stack, *frame)``      frame's  what the policy saw
    action            ``(B, *action)``            int64    what it did (of a Box: its own dtype)
    reward            ``(B,)``                    float32  what that gave; with n steps, Σ γᵏ rₖ over them
    discount          ``(B,)``                    float32  weight of the bootstrap value: 0 only after termination
    next_observation  ``(B, stack, *frame)``      frame's  what it saw after them; ends in the true last frame
    index             ``(B,)``                    int64    number of the transition, never given twice
    weight            ``(B,)``                    float32  importance weight, 1 under uniform sampling
    terminated        ``(B,)``                    bool     the episode ended by its own rules, at the last of them
    truncated         ``(B,)``                    bool     the episode was cut off there
    extras           ``(B, *shape)`` each        its own  what else was declared, by name
    ================  ==========================  =======  =======================================================

    ``observation`` and ``next_observation`` look at one recycled array and share its frames: treat them as read-only.
    Their dtype is that of the observation space. They stay as they are for as long as anything looks at them, and are
    used again only after that.
    """

    observation: npt.NDArray[Any]
    action: npt.NDArray[Any]
    reward: npt.NDArray[np.float32]
    discount: npt.NDArray[np.float32]
    next_observation: npt.NDArray[Any]
    index: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    extras: Mapping[str, npt.NDArray[Any]]

    def __init__(
        self,
        observation: npt.NDArray[np.uint8],
        action: npt.NDArray[Any],
        reward: npt.NDArray[np.float32],
        discount: npt.NDArray[np.float32],
        next_observation: npt.NDArray[np.uint8],
        index: npt.NDArray[np.int64],
        weight: npt.NDArray[np.float32],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        extras: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        # What the dataclass would do through object.__setattr__, in half the time: a batch is made for every sample.
        fields = self.__dict__
        fields["observation"] = observation
        fields["action"] = action
        fields["reward"] = reward
        fields["discount"] = discount
        fields["next_observation"] = next_observation
        fields["index"] = index
        fields["weight"] = weight
        fields["terminated"] = terminated
        fields["truncated"] = truncated
        fields["extras"] = {} if extras is None else extras

    def __len__(self) -> int:
        return len(self.index)
