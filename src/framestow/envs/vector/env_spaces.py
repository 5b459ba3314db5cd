"""The spaces of the environments behind a vector environment: equal ones, and batched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
from gymnasium.vector.utils import batch_space, create_empty_array

from framestow.errors import InvalidSettingsError


class EnvSpaces(NamedTuple):
    """What one environment shows and takes."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]


def check_equal_spaces(spaces: Sequence[EnvSpaces]) -> None:
    """Refuse environments, one entry each, that cannot stand side by side.

    Raises:
        InvalidSettingsError: there is none, or one has other spaces than the first; the message says which.
    """
    if not spaces:
        raise InvalidSettingsError("env_fns is empty: at least one environment is needed; give one function each")
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
