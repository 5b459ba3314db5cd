"""Check and convert the arguments of ``ReplayMemory.add``, in the forms that the native ``Planner`` does not take.

Those of one environment may lack the axis of environments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from framestow._core import Planner
from framestow.checks import as_array, as_flags
from framestow.errors import InvalidStepError
from framestow.refusals import Refusal
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.settings.observation_layout import ONE_ENVIRONMENT_S, ObservationLayout
from framestow.replay.step_checks import Step, check_env_ids, check_values


def check_add(
    settings: MemorySettings,
    planner: Planner,
    env_ids: Any,
    action: Any,
    reward: Any,
    terminated: Any,
    truncated: Any,
    next_observations: Sequence[Any],
    extras: Any,
    observations: Sequence[Any],
) -> tuple[Any, ...]:
    """Return the arguments of ``Planner.plan_add`` in the form that it takes.

    Raises:
        InvalidStepError: an argument that breaks a rule of ``add``.
    """
    layout = settings.layout
    observations, next_observations, is_one = layout.as_rows(observations, next_observations)
    if env_ids is not None:
        is_number = type(env_ids) is int or getattr(env_ids, "ndim", 1) == 0
        env_ids = [env_ids] if is_number else env_ids
    env_ids, is_given = check_env_ids(env_ids, planner.num_envs), env_ids is not None
    num_envs = len(env_ids)
    if is_one and num_envs != 1:
        _refuse_one(layout, observations[0].shape[1:], env_ids if is_given else None, num_envs)
    terminated, truncated = as_flags("terminated", terminated), as_flags("truncated", truncated)
    if num_envs == 1:
        action = _as_row(layout, "action", action, settings.action.shape)
        reward = _as_row(layout, "reward", reward)
        terminated, truncated = (
            _as_row(layout, *flags) for flags in (("terminated", terminated), ("truncated", truncated))
        )
        if isinstance(extras, Mapping):
            shapes = {spec.name: spec.shape for spec in settings.extras.extras}
            extras = {
                name: _as_row(layout, f"extra {name!r}", value, shapes[name]) if name in shapes else value
                for name, value in extras.items()
            }
    are_one = map(_lie_in_one_place, observations, next_observations)
    observations = layout.check(observations, num_envs, "observation", has_env_axis=not is_one)
    following = layout.check(next_observations, num_envs, "next_observation", has_env_axis=not is_one)
    # Arrays that an environment writes into stay one place in memory, for ``ObservationWatch``.
    following = [now if same else part for same, now, part in zip(are_one, observations, following, strict=True)]
    step = check_values(settings, Step(env_ids, action, reward, terminated, truncated, tuple(following), extras))
    return *step, tuple(observations)


def _as_row(layout: ObservationLayout, name: str, value: Any, shape: tuple[int, ...] = ()) -> npt.NDArray[Any]:
    """Return a value of one environment, given with the axis of environments or without, as a row ``(1, *shape)``."""
    array: npt.NDArray[Any] = value if type(value) is np.ndarray else as_array(name, value, InvalidStepError)
    if array.shape == shape:
        return array[None]
    if array.shape == (1, *shape):
        return array
    way_out = ONE_ENVIRONMENT_S if array.ndim and layout.has_axis_of(len(array)) else "give that of one environment"
    raise Refusal.ONE_ROW.error(name=name, shape=array.shape, alone=shape, row=(1, *shape), way_out=way_out)


def _refuse_one(layout: ObservationLayout, shape: tuple[int, ...], env_ids: Any, num_envs: int) -> NoReturn:
    """Raise the error about an observation of one environment in a step of several, or of none."""
    subscript = layout.arrays[0].subscript
    if env_ids is not None:
        raise Refusal.ONE_OBSERVATION_FOR_ENV_IDS.error(given=env_ids.tolist(), subscript=subscript, shape=shape)
    way_out = "give env_ids=i, the number of that environment, or the observations of all along a first axis"
    if layout.has_axis_of(num_envs):
        way_out = ONE_ENVIRONMENT_S
    raise Refusal.ONE_OBSERVATION_FOR_ALL.error(subscript=subscript, shape=shape, count=num_envs, way_out=way_out)


def _lie_in_one_place(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Return whether two arrays have the same elements in memory; those that only overlap do not."""
    starts = (array.__array_interface__["data"][0] for array in (one, other))
    return one.shape == other.shape and one.strides == other.strides and next(starts) == next(starts)
