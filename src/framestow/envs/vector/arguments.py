"""Check the arguments of vector environments: spaces, actions and reset options. Also errors, and tiled images."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array, iterate

from framestow.checks import as_array, check_callable, real_number
from framestow.envs.vector.foreign_envs import require_env
from framestow.errors import IncompatibleError, InvalidSettingsError, InvalidStepError
from framestow.interface import clause, plural

VectorStep = tuple[Any, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]
"""Observations, rewards, terminated, truncated and infos: the result of a vector environment's ``step``."""


class ClosedError(InvalidStepError, ClosedEnvironmentError):
    """A call to a vector environment that is closed."""


class StepPendingError(InvalidStepError, AlreadyPendingCallError):
    """A call while a step is in flight; the step must be received first."""

    def __init__(self, message: str, name: str = "step") -> None:
        super().__init__(message)  # type: ignore[call-arg]  # ValueError is first in the MRO and takes the message alone
        self.name = name  # Gymnasium's handlers read it


class NoStepPendingError(InvalidStepError, NoAsyncCallError):
    """A wait for a step, but no step is in flight."""

    def __init__(self, message: str, name: str = "step") -> None:
        super().__init__(message)  # type: ignore[call-arg]  # as above
        self.name = name  # Gymnasium's handlers read it


def describe_vector_env(env: VectorEnv[Any, Any, Any]) -> Iterator[str]:
    """Yield what a person wants to know of a vector environment, for its ``repr``."""
    yield plural(env.num_envs, "environment")
    for name, space in (("observations", env.single_observation_space), ("actions", env.single_action_space)):
        is_box = isinstance(space, gymnasium.spaces.Box)  # others are shown as Gymnasium does: Discrete(4)
        yield f"{name} {space.shape} {space.dtype}" if is_box else f"{name} {space}"
    yield str(env.metadata["autoreset_mode"].value)
    if env.closed:
        yield "closed"


def error_text(error: BaseException) -> str:
    """Return the message of an exception, also of one whose ``__str__`` raises."""
    try:
        return str(error)
    except Exception as trouble:
        return f"its message raised {type(trouble).__name__}"


class EnvSpaces(NamedTuple):
    """Spaces of an environment."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]


EnvFactory = Callable[[], gymnasium.Env[Any, Any]]
"""Makes one environment."""


def check_factories(env_fns: Any) -> list[EnvFactory]:
    """Return ``env_fns`` as a list; raise ``InvalidSettingsError`` unless it has functions, one at least."""
    if isinstance(env_fns, (str, bytes)) or not isinstance(env_fns, Iterable):
        raise InvalidSettingsError(
            f"env_fns is {env_fns!r}: it must be a list of functions, one for each environment; give [make_env] * n"
        )
    factories = list(env_fns)
    for number, make in enumerate(factories):
        check_callable(f"env_fns[{number}]", make, "a function without arguments that makes an environment")
    if not factories:
        raise InvalidSettingsError("env_fns is empty: it must have a function for each environment; give at least one")
    return factories


def make_env(make: EnvFactory, env_id: int) -> gymnasium.Env[Any, Any]:
    """Return the environment that ``make`` makes; raise ``InvalidSettingsError`` if it returns something else."""
    env = make()
    require_env(f"env_fns[{env_id}] returned", env, "give lambda: gymnasium.make(...)")
    return env


def identity_of(env: Any) -> int:
    """Return the identity of the innermost environment, unique in this process."""
    return id(getattr(env, "unwrapped", env))


def check_distinct(env_ids: Sequence[int], identities: Sequence[int]) -> None:
    """Raise ``InvalidSettingsError`` if two functions returned one environment.

    Arguments:
        env_ids: numbers of the environments of one process.
        identities: the ``identity_of`` each.
    """
    numbers: dict[int, int] = {}
    for number, identity in zip(env_ids, identities, strict=True):
        first = numbers.setdefault(identity, number)
        if first != number:
            raise InvalidSettingsError(
                f"environments {first} and {number} are one object: each function must make an environment of its own; "
                "give functions that call gymnasium.make(...), not [lambda: env] * n"
            )


def check_equal_spaces(spaces: Sequence[EnvSpaces]) -> None:
    """Raise ``InvalidSettingsError`` if an environment has other spaces than the first; the message names it."""
    for number, each in enumerate(spaces):
        for kind, ours, first in zip(EnvSpaces._fields, each, spaces[0], strict=True):
            if ours != first:
                raise InvalidSettingsError(
                    f"environment {number} has the {kind} {ours}: it must be equal to environment 0's, {first}; "
                    "make all environments alike"
                )


def batch_spaces(single: EnvSpaces, num_envs: int) -> EnvSpaces:
    """Return the batched spaces of ``num_envs`` environments.

    Raises:
        InvalidSettingsError: Gymnasium cannot batch one of them.
    """
    try:
        create_empty_array(single.observation_space, num_envs)
        return EnvSpaces(*(batch_space(space, num_envs) for space in single))
    except Exception as error:
        raise InvalidSettingsError(
            f"spaces are {single.observation_space} and {single.action_space}: Gymnasium cannot batch them ({error}); "
            "use spaces of Gymnasium"
        ) from error


def one_action_each(
    actions: Any, single_space: gymnasium.Space[Any], batched_space: gymnasium.Space[Any], num_envs: int
) -> Sequence[Any] | npt.NDArray[Any]:
    """Return one action for each environment from a batch, all checked; may return the caller's array.

    Raises:
        InvalidStepError: too few or too many actions, or one outside ``single_space``; the message names the
            environment.
    """
    if isinstance(single_space, gymnasium.spaces.Discrete):
        return _check_numbers(actions, single_space, batched_space)
    if isinstance(single_space, (gymnasium.spaces.Box, gymnasium.spaces.MultiDiscrete, gymnasium.spaces.MultiBinary)):
        actions = _check_array(actions, batched_space)
    try:
        each = list(iterate(batched_space, actions))
    except Exception as error:
        raise InvalidStepError(
            f"actions are {actions!r}: they must be in {batched_space} ({error}); give one action for each environment"
        ) from error
    if len(each) != num_envs:
        raise InvalidStepError(
            f"there are {len(each)} actions: {clause(num_envs, 'environment', 'need')} one each; give exactly so many"
        )
    for number, action in enumerate(each):
        if not single_space.contains(action):
            raise InvalidStepError(f"action {action!r} for environment {number}: it is not in {single_space}; clip it")
    return each


def _check_numbers(
    actions: Any, single_space: gymnasium.spaces.Discrete, batched_space: gymnasium.Space[Any]
) -> npt.NDArray[np.integer[Any]]:
    numbers = as_array("actions", actions, InvalidStepError)
    if numbers.shape != batched_space.shape:
        raise InvalidStepError(
            f"actions have shape {numbers.shape}: they must have shape {batched_space.shape}; "
            "give an action for every environment, also for one that only resets"
        )
    if numbers.dtype.kind not in "iu":
        raise InvalidStepError(f"actions have dtype {numbers.dtype}: {single_space} takes whole numbers; convert them")
    first, last = int(single_space.start), int(single_space.start + single_space.n - 1)
    if numbers.min() < first or numbers.max() > last:
        wrong = np.flatnonzero((numbers < first) | (numbers > last))
        raise InvalidStepError(
            f"action {numbers[wrong[0]]} for environment {wrong[0]}: {single_space} takes {first} to {last}; "
            "sample from single_action_space"
        )
    return numbers


def _check_array(actions: Any, batched_space: gymnasium.Space[Any]) -> npt.NDArray[Any]:
    array = as_array("actions", actions, InvalidStepError)
    if array.shape != batched_space.shape:
        raise InvalidStepError(
            f"actions have shape {array.shape}: they must have shape {batched_space.shape}; "
            "give one action for each environment"
        )
    if batched_space.dtype is not None and np.can_cast(array.dtype, batched_space.dtype, casting="same_kind"):
        array = array.astype(batched_space.dtype)
    return array


def _check_options(options: Any) -> None:
    """Raise ``InvalidStepError`` unless ``options`` of a reset are a dict, or ``None``."""
    if options is not None and not isinstance(options, Mapping):
        raise InvalidStepError(
            f"options is {options!r}: it must be a dict or None; give {{'reset_mask': mask}} to reset some environments"
        )


def check_timeout(timeout: Any) -> float | None:
    """Return the seconds to wait, or ``None`` for no limit; raise ``InvalidSettingsError`` for another value."""
    if timeout is None:
        return None
    rule = "it must be a number of seconds from 0 up; give None to wait without a limit"
    seconds = real_number("timeout", timeout, 0, rule=rule, may_be_infinite=True)
    return None if math.isinf(seconds) else seconds


def check_keys(state: Any, keys: Iterable[str], kind: str) -> None:
    """Raise ``IncompatibleError`` unless a saved state, of a ``kind`` of environment, is a dict with these keys."""
    missing = [key for key in keys if not isinstance(state, Mapping) or key not in state]
    if missing:
        raise IncompatibleError(f"state has no {missing}: it is not of a {kind}; give what state_dict() returned")


def split_options(
    options: Mapping[str, Any] | None, num_envs: int
) -> tuple[npt.NDArray[np.bool_], dict[str, Any] | None]:
    """Return the mask of environments to reset, and a copy of ``options`` without ``reset_mask``.

    Raises:
        InvalidStepError: ``options["reset_mask"]`` is not an array of ``num_envs`` booleans, or all are False.
    """
    _check_options(options)
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, np.bool_), None if options is None else dict(options)
    mask = as_array("reset_mask", options["reset_mask"], InvalidStepError)
    if mask.shape != (num_envs,) or mask.dtype != np.bool_ or not mask.any():
        raise InvalidStepError(
            f"reset_mask is {mask.tolist()}: it must have {num_envs} booleans, at least one of them True; "
            "leave it out to reset all"
        )
    others = {key: value for key, value in options.items() if key != "reset_mask"}
    return mask.copy(), others or None


def one_value_each(values: Any, num_envs: int) -> list[Any]:
    """Return a value for each environment: those of a list or tuple, or any other value repeated.

    Raises:
        InvalidStepError: a list or tuple of another length.
    """
    each = list(values) if isinstance(values, (list, tuple)) else [values] * num_envs
    if len(each) != num_envs:
        raise InvalidStepError(
            f"there are {len(each)} values: {clause(num_envs, 'environment', 'need')} one each; give exactly so many"
        )
    return each


def tile_images(pictures: Sequence[npt.NDArray[np.uint8]], *, rows: int | None = None) -> npt.NDArray[np.uint8]:
    """Return one image with all ``pictures`` in a grid; unused cells are black.

    The pictures are ``uint8`` of one shape, ``(H, W)`` or ``(H, W, C)``. The result is a new array of ``rows * H`` by
    ``columns * W``, as square as possible if ``rows`` is not given.

    >>> tile_images([np.full((1, 1), shade, np.uint8) for shade in (1, 2, 3)])
    array([[1, 2],
           [3, 0]], dtype=uint8)

    Raises:
        InvalidStepError: no pictures, pictures of unequal shapes, or a value that is no picture.
    """
    if not len(pictures):
        raise InvalidStepError("there are no pictures: a grid needs at least one; render an environment first")
    arrays = [_as_picture(picture, number) for number, picture in enumerate(pictures)]
    height, width, *channels = shape = arrays[0].shape
    for number, array in enumerate(arrays):
        if array.shape != shape:
            raise InvalidStepError(
                f"picture {number} has shape {array.shape}: it must have the shape of picture 0, {shape}; "
                "render with tiled=False"
            )
    rows = rows or round(math.sqrt(len(arrays)))
    columns = math.ceil(len(arrays) / rows)
    grid = np.zeros((rows, columns, height, width, *channels), np.uint8)
    grid.reshape(rows * columns, *shape)[: len(arrays)] = arrays
    return grid.swapaxes(1, 2).reshape(rows * height, columns * width, *channels)


def _as_picture(picture: Any, number: int) -> npt.NDArray[np.uint8]:
    is_picture = isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.ndim in (2, 3)
    if not is_picture:
        found = f"{picture.dtype} of shape {picture.shape}" if isinstance(picture, np.ndarray) else repr(picture)
        raise InvalidStepError(
            f"picture {number} is {found}: it must be uint8 of shape (H, W) or (H, W, C); make the environments with "
            "render_mode='rgb_array'"
        )
    return picture  # type: ignore[no-any-return]
