"""What sampling returns: a batch of transitions, and a batch of sequences."""

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


@dataclass(frozen=True)
class SequenceBatch:
    """Sequences of steps that follow on one another, ``B`` of them, each of up to ``L`` steps.

    ================  ============================  =======  =====================================================
    field             shape                         dtype    meaning
    ================  ============================  =======  =====================================================
    observation       ``(B, L, stack, *frame)``     frame's  what the policy saw at each step
    action            ``(B, L, *action)``           int64    what it did (of a Box: its own dtype)
    reward            ``(B, L)``                    float32  what that one step gave, whatever ``n_step`` is
    discount          ``(B, L)``                    float32  γ; 0 where the step terminated
    next_observation  ``(B, L, stack, *frame)``     frame's  what it saw then; at an episode's end its true last frame
    terminated        ``(B, L)``                    bool     the episode ended there by its own rules
    truncated         ``(B, L)``                    bool     it was cut off there
    is_first          ``(B, L)``                    bool     the step is the first of its episode
    mask              ``(B, L)``                    bool     there is such a step; never False before a True
    index             ``(B, L)``                    int64    numbers of the steps; -1 where there is none
    weight            ``(B,)``                      float32  importance weights of the draws, 1 under uniform sampling
    extras           ``(B, L, *shape)`` each       its own  what else was declared, by name
    burn_in                                         int      steps at the front that only warm up recurrent state
    ================  ============================  =======  =====================================================

    Where ``mask`` is False, there is nothing to learn: numbers are 0 and flags False. Frames behind a sequence's end
    are zeros, so the first stacks there still show its last frames, moving out.

    ``observation`` and ``next_observation`` share the frames of one recycled array, in which each frame of a sequence
    stands once (but for borders that are crossed): treat them as read-only, and copy them to wherever they are needed.
    They stay as they are for as long as anything looks at them. With several keys they are what ``Batch`` has.
    """

    observation: Any
    action: npt.NDArray[Any]
    reward: npt.NDArray[np.float32]
    discount: npt.NDArray[np.float32]
    next_observation: Any
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    is_first: npt.NDArray[np.bool_]
    mask: npt.NDArray[np.bool_]
    index: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float32]
    extras: Mapping[str, npt.NDArray[Any]]
    burn_in: int = 0

    def __len__(self) -> int:
        return len(self.index)

    @property
    def learns(self) -> npt.NDArray[np.bool_]:
        """Steps that a loss is for, ``(B, L)``: ``mask`` without the first ``burn_in``."""
        learns = self.mask.copy()
        learns[:, : self.burn_in] = False
        return learns
