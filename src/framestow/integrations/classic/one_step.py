"""Checks of an action, a reward and flags of one step of one environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow.checks import as_array, as_flags
from framestow.errors import InvalidStepError
from framestow.replay.step_checks import LARGEST_REWARD

INT32 = np.iinfo(np.int32)


def check_action(action: Any) -> int:
    """Return an action as an ``int``."""
    number = action if type(action) is int else only_number("action", action, "iub")
    if number is None or not INT32.min <= number <= INT32.max:
        raise InvalidStepError(f"action is {action!r}: it must be one 32-bit integer; give the action's number")
    return int(number)


def check_reward(name: str, reward: Any) -> float:
    """Return a reward as a ``float``."""
    number = reward if type(reward) is float else only_number(name, reward, "fiub")
    if number is None or not abs(number) <= LARGEST_REWARD:
        raise InvalidStepError(
            f"{name} is {reward!r}: it must be one number, finite in float32; correct the environment"
        )
    return float(number)


def check_flag(name: str, flag: Any) -> bool:
    """Return a flag as a ``bool``; the numbers 0 and 1 are flags, too."""
    array = as_flags(name, flag)
    if array.size != 1:
        raise InvalidStepError(f"{name} is {flag!r}: it must be one flag of one environment; give a boolean")
    return bool(array.item())


def only_number(name: str, value: Any, kinds: str) -> Any:
    """Return the only element of ``value`` as a Python number; ``None`` if there are more, or of other dtypes."""
    array = as_array(name, value, InvalidStepError)
    return array.item() if array.size == 1 and array.dtype.kind in kinds else None
