"""Convert the arguments of a step into arrays, as native code reads them: by no rule of a step.

=====================  =====================================================================================
argument               conversion, beside NumPy's own of lists and tensors
=====================  =====================================================================================
all                    the byte order of the machine, C order, aligned
env_ids                a number alone is one environment
actions of a ``Box``   a cast to its dtype of the same kind
rewards                float32 or float64, of other floats and of unsigned integers of 64 bits
terminated, truncated  ``add``: the numbers 0 and 1 are booleans
extras                 a cast that loses nothing but the precision of floats
observations           numbers of a space without axes may have one
all, without elements  the stored dtype: NumPy's of an empty list is float64
=====================  =====================================================================================

What cannot be converted stays as it is, and native code refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.checks import as_flags
from framestow.errors import InvalidStepError
from framestow.frames.frame_spec import ArraySpec
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.settings.step_fields import ExtrasSpec

Array = npt.NDArray[Any]


class Step(NamedTuple):
    """One step of each of some environments, in any form that ``append`` takes, or in stored form; in C++'s order."""

    env_ids: Any
    """Numbers of the environments; ``None`` means all."""
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    frames: Any
    """A tuple with an array for each of the space, of the frames or the whole next observations."""
    extras: Any = None


def readable(given: Any) -> Any:
    """Return ``given`` as an array that native code can read; ``given`` itself if NumPy makes no array of it."""
    try:
        array = np.asarray(given)
    except (RuntimeError, TypeError, ValueError):
        return given  # ``explain_...`` raises the error
    if array.dtype.kind not in "biufcOSU" or array.dtype.isbuiltin == 2:  # 2: registered by another library
        return array.astype(object)  # which has a buffer
    return np.require(array, array.dtype.newbyteorder("="), ["C", "ALIGNED"])


def _convert(given: Any, empty: npt.DTypeLike, convert: Callable[[Array], Array]) -> Any:
    """Return ``convert`` of the array; without elements, an array of dtype ``empty``: NumPy's of ``[]`` is float64."""
    array = readable(given)
    if not isinstance(array, np.ndarray):
        return array
    return convert(array) if array.size else np.zeros(array.shape, empty)


def _as_env_ids(given: Any) -> Any:
    return None if given is None else _convert(given, np.int32, np.atleast_1d)


def as_actions(spec: ActionSpec, given: Any) -> Any:
    """Return actions as an array; those of a ``Box`` in its dtype, if it is one of the same kind."""

    def convert(array: Array) -> Array:
        if spec.is_counted or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
            return array
        with np.errstate(over="ignore"):  # a value too large for the dtype becomes infinite, which is refused
            return np.require(array, spec.stored_dtype, ["C", "ALIGNED"])

    return _convert(given, spec.stored_dtype, convert)


def as_rewards(given: Any) -> Any:
    """Return rewards as an array of a dtype that native code reads."""

    def convert(array: Array) -> Array:
        if array.dtype == np.longdouble:
            return array.astype(np.float64)
        return array.astype(np.float32) if array.dtype in (np.float16, np.uint64) else array

    return _convert(given, np.float32, convert)


def _as_booleans(given: Any) -> Any:
    return _convert(given, np.bool_, lambda array: array)


def _as_zeros_and_ones(given: Any) -> Any:
    try:
        return readable(as_flags("flags", given))
    except InvalidStepError:
        return readable(given)


def as_extras(spec: ExtrasSpec, given: Any) -> Any:
    """Return a dict with each declared extra in its dtype, if the cast loses nothing but the precision of floats."""
    if not isinstance(given, Mapping):
        return given
    dtypes = {extra.name: np.dtype(extra.dtype) for extra in spec.extras}
    return {name: _as_extra(values, dtypes[name]) if name in dtypes else values for name, values in given.items()}


def _as_extra(given: Any, dtype: np.dtype[Any]) -> Any:
    return _convert(given, dtype, lambda array: _cast(array, dtype))


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    are_lost = lost_elements(array, dtype)
    if are_lost is None or are_lost.any():
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        return np.require(array, dtype, ["C", "ALIGNED"])


def lost_elements(array: Array, dtype: np.dtype[Any]) -> npt.NDArray[np.bool_] | None:
    """Return which elements a cast would change, but for the precision of floats; ``None`` if none is allowed."""
    are_integers = array.dtype.kind in "iu" and dtype.kind in "iu"
    if not are_integers and not np.can_cast(array.dtype, dtype, "same_kind"):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        stored = array.astype(dtype)
    are_lost: npt.NDArray[np.bool_] = stored != array if are_integers else np.isinf(stored) & ~np.isinf(array)
    return are_lost


def _as_parts(specs: Sequence[ArraySpec], given: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(_as_part, specs, given))


def _as_part(spec: ArraySpec, given: Any) -> Any:
    array = None if given is None else readable(given)
    if not spec.has_axes and isinstance(array, np.ndarray) and array.ndim == 2 and array.shape[1] == 1:
        return array.reshape(len(array))
    return array


def _lie_in_one_place(one: Any, other: Any) -> bool:
    """Return whether two arrays have the same elements in memory; those that only overlap do not."""
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return False
    starts = (array.__array_interface__["data"][0] for array in (one, other))
    return one.shape == other.shape and one.strides == other.strides and next(starts) == next(starts)


def convert_begin(settings: MemorySettings, frames: Any, env_ids: Any, are_whole: bool = False) -> tuple[Any, ...]:
    """Return the arguments of ``Planner.plan_begin`` as arrays."""
    return _as_parts(settings.layout.arrays, frames), _as_env_ids(env_ids), are_whole


def convert_append(
    settings: MemorySettings,
    env_ids: Any,
    actions: Any,
    rewards: Any,
    terminated: Any,
    truncated: Any,
    frames: Any,
    extras: Any,
    are_whole: bool = False,
) -> tuple[Any, ...]:
    """Return the arguments of ``Planner.plan_append`` as arrays."""
    return (
        _as_env_ids(env_ids),
        as_actions(settings.action, actions),
        as_rewards(rewards),
        _as_booleans(terminated),
        _as_booleans(truncated),
        _as_parts(settings.layout.arrays, frames),
        as_extras(settings.extras, extras),
        are_whole,
    )


def convert_add(
    settings: MemorySettings,
    env_ids: Any,
    action: Any,
    reward: Any,
    terminated: Any,
    truncated: Any,
    next_observations: Sequence[Any],
    extras: Any,
    observations: Sequence[Any],
) -> tuple[Any, ...]:
    """Return the arguments of ``Planner.plan_add`` as arrays."""
    arrays = settings.layout.arrays
    now, following = _as_parts(arrays, observations), _as_parts(arrays, next_observations)
    # Arrays that an environment writes into stay one place in memory, for ``ObservationWatch``.
    are_one = map(_lie_in_one_place, map(_as_given, observations), map(_as_given, next_observations))
    following = tuple(one if is_one else other for is_one, one, other in zip(are_one, now, following, strict=True))
    return (
        _as_env_ids(env_ids),
        as_actions(settings.action, action),
        as_rewards(reward),
        _as_zeros_and_ones(terminated),
        _as_zeros_and_ones(truncated),
        following,
        as_extras(settings.extras, extras),
        now,
    )


def _as_given(part: Any) -> Any:
    """Return an array where it lies; None if NumPy makes none."""
    try:
        return np.asarray(part)
    except (RuntimeError, TypeError, ValueError):
        return None
