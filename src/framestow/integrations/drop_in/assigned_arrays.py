"""What a library's own buffer would assign to its arrays, as a memory takes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidStepError
from framestow.frames.frame_spec import FrameSpec

Array = npt.NDArray[Any]


def as_assigned(observations: Any, num_envs: int, frame: FrameSpec) -> Array:
    """Give ``observations`` as ``(num_envs, *frame)`` of its dtype, as NumPy would assign them to such an array.

    A number a stream may lack its axis. Raises ``InvalidStepError`` for a shape that does not fit, and for values that
    would be others in that dtype; floats may lose digits.
    """
    array, shape = np.asarray(observations), (num_envs, *frame.shape)
    if array.dtype != frame.dtype:
        array = _cast(array, frame.dtype)
    if array.shape == shape:
        return array
    if frame.shape == (1,) and array.shape == (num_envs,):
        return array[:, None]
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise InvalidStepError(
            f"observations have shape {array.shape}: those of {num_envs} environments are {shape}; give one for each"
        ) from None


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):  # what does not fit is found below
        cast = array.astype(dtype)
    if not np.can_cast(array.dtype, dtype, "same_kind") and not np.array_equal(cast, array):
        raise InvalidStepError(
            f"observations have dtype {array.dtype}: some are others as {dtype}, which the observation space says; "
            "give them in that dtype"
        )
    return cast
