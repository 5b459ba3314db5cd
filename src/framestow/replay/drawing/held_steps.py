"""What steps carry besides frames, looked up without unpacking a frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import whole_number
from framestow.errors import NothingToSampleError
from framestow.replay.memory_parts import MemoryParts


@dataclass(frozen=True)
class HeldSteps:
    """Steps that follow on one another in their episodes, ``B`` times ``length`` of them; where there is none, zeros.

    ==========  ========================  =======  ===============================================
    field       shape                     dtype    meaning
    ==========  ========================  =======  ===============================================
    index       ``(B, length)``           int64    number of the step; -1 behind the episode's end
    action      ``(B, length, *action)``  int64    what was done (of a Box: its own dtype)
    reward      ``(B, length)``           float32  what that step alone gave
    terminated  ``(B, length)``           bool     the episode ended by its own rules there
    truncated   ``(B, length)``           bool     the episode was cut off there
    extras      ``(B, length, *shape)``   its own  what else was declared, by name
    ==========  ========================  =======  ===============================================
    """

    index: npt.NDArray[np.int64]
    action: npt.NDArray[Any]
    reward: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    extras: Mapping[str, npt.NDArray[Any]]


def held_steps(parts: MemoryParts, indices: npt.NDArray[np.int64], length: int) -> HeldSteps:
    """Look up ``length`` steps from each of ``indices`` on; ``NothingToSampleError`` for one that is not held."""
    length = whole_number("length", length, 1, rule="at least the step itself is looked up; give 1 or more")
    with parts.lock:
        missing = indices[parts.timeline.places(indices)[0] < 0]
        if missing.size:
            raise NothingToSampleError(
                f"step {missing[0]} is not held: it has gone or never was; take indices from sampleable_indices()"
            )
        followed = parts.timeline.follow(indices, length)[0]
        is_step = followed >= 0
        columns = parts.timeline.resolve_steps(followed[is_step])[1]
    action, reward, _, terminated, truncated, extra = columns

    def spread(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if is_step.all():
            return column.reshape(*is_step.shape, *column.shape[1:])
        spread_out = np.zeros((*is_step.shape, *column.shape[1:]), column.dtype)
        spread_out[is_step] = column
        return spread_out

    return HeldSteps(
        followed,
        spread(action),
        spread(reward),
        spread(terminated),
        spread(truncated),
        {name: spread(column) for name, column in extra.items()},
    )
