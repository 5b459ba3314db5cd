"""The spaces of the environments behind a vector environment: equal ones, and batched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import gymnasium
from gymnasium.vector.utils import batch_space, create_empty_array

from framestow.argument_checks import check_callable
from framestow.errors import InvalidSettingsError


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
