"""What every vector environment does with a call: spaces, actions, reset options, errors, rendering."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector.utils import batch_space, create_empty_array, iterate

from framestow.argument_checks import check_callable
from framestow.errors import InvalidSettingsError, InvalidStepError


class ClosedError(InvalidStepError, ClosedEnvironmentError):
    """A call to a vector environment that is closed."""


class StepPendingError(InvalidStepError, AlreadyPendingCallError):
    """A call while a step is in flight that has to be taken back first."""

    def __init__(self, message: str, name: str = "step") -> None:
        super().__init__(message)  # type: ignore[call-arg]  # a ValueError first: it takes the message alone
        self.name = name  # Gymnasium's handlers read it


class NoStepPendingError(InvalidStepError, NoAsyncCallError):
    """Waiting for a step that nobody began."""

    def __init__(self, message: str, name: str = "step") -> None:
        super().__init__(message)  # type: ignore[call-arg]  # a ValueError first: it takes the message alone
        self.name = name  # Gymnasium's handlers read it


def error_text(error: BaseException) -> str:
    """What an exception says; some cannot even do that, and must not hide which environment raised them."""
    try:
        return str(error)
    except Exception as trouble:
        return f"its text raised {type(trouble).__name__}"


class EnvSpaces(NamedTuple):
    """What one environment shows and takes."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]


def checked_factories(env_fns: Any) -> list[Callable[[], Any]]:
    """List the functions that make environments; ``InvalidSettingsError`` where one is none, or there is none."""
    if isinstance(env_fns, (str, bytes)) or not isinstance(env_fns, Iterable):
        raise InvalidSettingsError(f"env_fns is {env_fns!r}: it must be a list of functions, one for each environment")
    factories = list(env_fns)
    for number, make in enumerate(factories):
        check_callable(f"env_fns[{number}]", make, "a function without arguments that makes an environment")
    if not factories:
        raise InvalidSettingsError("env_fns is empty: at least one environment is needed; give one function each")
    return factories


def check_equal_spaces(spaces: Sequence[EnvSpaces]) -> None:
    """Refuse environments, one entry each, that cannot stand side by side.

    Raises:
        InvalidSettingsError: one has other spaces than the first; the message says which.
    """
    for number, each in enumerate(spaces):
        for kind, ours, first in zip(EnvSpaces._fields, each, spaces[0], strict=True):
            if ours != first:
                raise InvalidSettingsError(
                    f"environment {number} has the {kind} {ours}: environment 0 has {first}; make them equal"
                )


def batched_spaces(single: EnvSpaces, num_envs: int) -> EnvSpaces:
    """Spaces of ``num_envs`` such environments together.

    Raises:
        InvalidSettingsError: Gymnasium cannot batch one of them.
    """
    try:
        create_empty_array(single.observation_space, num_envs)
        return EnvSpaces(*(batch_space(space, num_envs) for space in single))
    except Exception as error:
        raise InvalidSettingsError(
            f"spaces {single.observation_space} and {single.action_space}: Gymnasium must be able to batch them; "
            f"{error}"
        ) from error


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


def split_options(
    options: Mapping[str, Any] | None, num_envs: int
) -> tuple[npt.NDArray[np.bool_], dict[str, Any] | None]:
    """Which environments to reset, and what the environments get of ``options``, which stay untouched.

    Raises:
        InvalidStepError: ``options["reset_mask"]`` is no array of ``num_envs`` booleans, or none of them is true.
    """
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, np.bool_), None if options is None else dict(options)
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != np.bool_ or not mask.any():
        raise InvalidStepError(
            f"reset_mask is {mask.tolist()}: it must hold {num_envs} booleans, one of them true at least; "
            "leave it out to reset all"
        )
    others = {key: value for key, value in options.items() if key != "reset_mask"}
    return mask.copy(), others or None


def require_none_left_idle(mask: npt.NDArray[np.bool_], needs_reset: npt.NDArray[np.bool_]) -> None:
    """Refuse a ``reset_mask`` that leaves out environments without an episode, whose observations nobody knows."""
    untouched = needs_reset & ~mask
    if untouched.any():
        raise InvalidStepError(
            f"reset_mask leaves out idle environments {np.flatnonzero(untouched).tolist()}: reset all first"
        )


def tiled(pictures: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    """Lay pictures out in a grid, row by row, as square as their number allows, black where there is none.

    Takes ``uint8`` pictures of one shape, ``(H, W)`` or ``(H, W, C)``; gives a fresh array of ``rows * H`` by
    ``columns * W``. Baselines' ``tile_images`` does so, too (OpenAI Baselines, 2017).

    >>> tiled([np.full((1, 1), shade, np.uint8) for shade in (1, 2, 3)])
    array([[1, 2],
           [3, 0]], dtype=uint8)

    Raises:
        InvalidStepError: no picture at all, one that is none, or pictures of unequal shape.
    """
    if not len(pictures):
        raise InvalidStepError("pictures are none: a grid needs one at least; render an environment first")
    arrays = [_checked(picture, number) for number, picture in enumerate(pictures)]
    height, width, *channels = shape = arrays[0].shape
    for number, array in enumerate(arrays):
        if array.shape != shape:
            raise InvalidStepError(
                f"picture {number} has shape {array.shape}: picture 0 has {shape}; a grid takes equal ones, "
                "so lay them out apart"
            )
    rows = round(math.sqrt(len(arrays)))
    columns = math.ceil(len(arrays) / rows)
    grid = np.zeros((rows, columns, height, width, *channels), np.uint8)
    grid.reshape(rows * columns, *shape)[: len(arrays)] = arrays
    return grid.swapaxes(1, 2).reshape(rows * height, columns * width, *channels)


def _checked(picture: Any, number: int) -> npt.NDArray[np.uint8]:
    is_picture = isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.ndim in (2, 3)
    if not is_picture:
        told = f"{picture.dtype} of shape {picture.shape}" if isinstance(picture, np.ndarray) else repr(picture)
        raise InvalidStepError(
            f"picture {number} is {told}: a grid takes uint8 pictures (H, W) or (H, W, C); make the environments with "
            "render_mode='rgb_array'"
        )
    return picture  # type: ignore[no-any-return]
