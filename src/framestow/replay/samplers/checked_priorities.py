"""What ``update_priorities`` is given, checked once: arrays, lists of numbers, tensors of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import are_priorities
from framestow.argument_checks import as_array
from framestow.argument_checks import checked_indices as indices_of
from framestow.errors import InvalidSettingsError
from framestow.replay.samplers.sampler import Indices

Priorities = npt.NDArray[np.floating[Any]]


def checked_priorities(indices: Any, priorities: Any) -> tuple[Indices, Priorities]:
    """Give both as arrays with one axis, the priorities as float32 or float64.

    Raises ``InvalidSettingsError`` for another shape, dtype or device than can be taken, and for what is not finite.

    >>> checked_priorities([7, 8], [0.5, -2])
    (array([7, 8]), array([ 0.5, -2. ]))
    """
    if are_priorities(indices, priorities):  # what a learner gives usually, at a tenth of the cost
        return indices, priorities
    checked_indices = indices_of(indices)
    checked = as_array("priorities", priorities)
    if checked.dtype.kind not in "fiub" and checked.size:
        raise InvalidSettingsError(f"priorities are of {checked.dtype}: they must be real numbers; cast them")
    if checked.shape != checked_indices.shape:
        raise InvalidSettingsError(
            f"priorities have shape {checked.shape} and indices {checked_indices.shape}: each transition has one; "
            "give arrays of one shape"
        )
    checked_indices, checked = checked_indices.ravel(), checked.ravel()
    checked = checked if checked.dtype in (np.float32, np.float64) else checked.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(checked))
    if wrong.size:
        raise InvalidSettingsError(
            f"priority of transition {checked_indices[wrong[0]]} is {checked[wrong[0]]}: priorities must be finite; "
            "clip the errors, or leave that transition out"
        )
    return checked_indices, np.ascontiguousarray(checked)
