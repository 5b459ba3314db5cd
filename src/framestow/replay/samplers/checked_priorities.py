"""What ``update_priorities`` is given, checked once: arrays, lists of numbers, tensors of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import are_priorities
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
    checked_indices = _array_of("indices", indices, "iu")
    checked = _array_of("priorities", priorities, "fiub")
    if checked.shape != checked_indices.shape:
        raise InvalidSettingsError(
            f"priorities have shape {checked.shape} and indices {checked_indices.shape}: each transition has one; "
            "give arrays of one shape"
        )
    checked_indices, checked = checked_indices.astype(np.int64).ravel(), checked.ravel()
    checked = checked if checked.dtype in (np.float32, np.float64) else checked.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(checked))
    if wrong.size:
        raise InvalidSettingsError(
            f"priority of transition {checked_indices[wrong[0]]} is {checked[wrong[0]]}: priorities must be finite; "
            "clip the errors, or leave that transition out"
        )
    return checked_indices, np.ascontiguousarray(checked)


def _array_of(name: str, given: Any, kinds: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(given)
    except (RuntimeError, TypeError, ValueError) as error:  # a tensor of a device, one with a gradient, a ragged list
        raise InvalidSettingsError(
            f"{name} are no array ({error}): they must be one, or a tensor of the CPU without a gradient, of a dtype "
            f"that NumPy has; give {name}.detach().cpu(), bfloat16 as .float()"
        ) from error
    if array.dtype.kind not in kinds and array.size:
        wanted = "integers" if kinds == "iu" else "real numbers"
        raise InvalidSettingsError(f"{name} are of {array.dtype}: they must be {wanted}; cast them")
    return array
