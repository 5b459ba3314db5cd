"""Actions for many environments, checked before any of them moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import iterate

from framestow.errors import InvalidStepError


def one_action_each(
    actions: Any, single_space: gymnasium.Space[Any], batched_space: gymnasium.Space[Any], num_envs: int
) -> Sequence[Any] | npt.NDArray[Any]:
    """Take a batch of actions apart into one an environment, each of which ``single_space`` contains.

    What comes back may be the caller's own array.

    Raises:
        InvalidStepError: too few, too many, or one that is none of the space; the message says for which environment.
    """
    if isinstance(single_space, gymnasium.spaces.Discrete):
        return _checked_numbers(actions, single_space, batched_space)
    if isinstance(single_space, (gymnasium.spaces.Box, gymnasium.spaces.MultiDiscrete, gymnasium.spaces.MultiBinary)):
        actions = _checked_array(actions, batched_space)
    try:
        each = list(iterate(batched_space, actions))
    except Exception as error:
        raise InvalidStepError(f"actions are {actions!r}: {batched_space} is needed; {error}") from error
    if len(each) != num_envs:
        raise InvalidStepError(f"actions are {len(each)}: {num_envs} environments need one each; give exactly so many")
    for number, action in enumerate(each):
        if not single_space.contains(action):
            raise InvalidStepError(f"action {action!r} for environment {number}: it is not in {single_space}; clip it")
    return each


def _checked_numbers(
    actions: Any, single_space: gymnasium.spaces.Discrete, batched_space: gymnasium.Space[Any]
) -> npt.NDArray[np.integer[Any]]:
    numbers = np.asarray(actions)
    if numbers.shape != batched_space.shape:
        raise InvalidStepError(
            f"actions have shape {numbers.shape}: one each is needed, shape {batched_space.shape}; "
            "give an action for every environment, also for one that only resets"
        )
    if numbers.dtype.kind not in "iu":
        raise InvalidStepError(f"actions have dtype {numbers.dtype}: {single_space} takes whole numbers; convert them")
    first, last = int(single_space.start), int(single_space.start + single_space.n - 1)
    if numbers.min() < first or numbers.max() > last:
        wrong = np.flatnonzero((numbers < first) | (numbers > last))
        raise InvalidStepError(
            f"action {numbers[wrong[0]]} for environment {wrong[0]}: {single_space} takes {first} to {last}; "
            "draw from single_action_space"
        )
    return numbers


def _checked_array(actions: Any, batched_space: gymnasium.Space[Any]) -> npt.NDArray[Any]:
    array = np.asarray(actions)
    if array.shape != batched_space.shape:
        raise InvalidStepError(
            f"actions have shape {array.shape}: the environments together need {batched_space.shape}; give one each"
        )
    if batched_space.dtype is not None and np.can_cast(array.dtype, batched_space.dtype, casting="same_kind"):
        array = array.astype(batched_space.dtype)
    return array
