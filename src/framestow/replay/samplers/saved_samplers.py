"""What a saved memory says of its sampler, and the sampler made anew from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import IncompatibleError
from framestow.replay.samplers.by_age import ByAge
from framestow.replay.samplers.emphasize_recent import SETTINGS, EmphasizeRecent
from framestow.replay.samplers.mixture import Mixture
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.samplers.sampler import Held, Sampler
from framestow.replay.samplers.uniform import Uniform

Arrays = Mapping[str, npt.NDArray[Any]]
Making = Callable[[dict[str, Any]], Sampler]  # of what ``Sampler.state`` gave, of which it reads the settings

ARRAY = "__array__"  # the one key of what stands for an array among JSON-able values: its name
PREFIX = "sampler"  # of those names

MADE: dict[str, Making] = {
    "Prioritized": lambda state: Prioritized(**state["settings"]),
    "Uniform": lambda _: Uniform(),
    "ByAge": lambda state: ByAge(state["half_life"]),
    "EmphasizeRecent": lambda state: EmphasizeRecent(*(state[name] for name in SETTINGS)),
    "Mixture": lambda state: Mixture(*((_made(part["kind"], part["state"]), part["share"]) for part in state["parts"])),
}


def saved_sampler(sampler: Sampler, held: Held) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Class and state of a sampler: JSON-able values, and the arrays that they name."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    return {"kind": type(sampler).__name__, "state": _without_arrays(sampler.state(held), PREFIX, arrays)}, arrays


def make_saved_sampler(saved: dict[str, Any], arrays: Arrays) -> Sampler:
    """A new sampler of the class and the settings that ``saved_sampler`` gave; its state is not restored.

    Raises ``IncompatibleError`` for a class that is not framestow's.
    """
    return _made(saved["kind"], _with_arrays(saved["state"], arrays))


def _made(kind: str, state: dict[str, Any]) -> Sampler:
    if kind not in MADE:
        raise IncompatibleError(
            f"sampler is not given: the memory was saved with a {kind}, which is none of framestow's; load it with "
            f"sampler={kind}(...), or with another one, which begins afresh"
        )
    return MADE[kind](state)


def restore_sampler(sampler: Sampler, saved: dict[str, Any], arrays: Arrays, held: Held) -> None:
    """Let a sampler go on where one of its class was saved; any other one, or without the arrays, begins afresh."""
    state = _with_arrays(saved["state"], arrays)
    if type(sampler).__name__ == saved["kind"] and _is_whole(saved["state"], arrays):
        sampler.restore(state, held)
    else:
        sampler.begin(held)


def _without_arrays(value: Any, name: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """The same with names for arrays, which go into ``arrays``."""
    if isinstance(value, dict):
        return {key: _without_arrays(one, f"{name}.{key}", arrays) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_arrays(one, f"{name}.{place}", arrays) for place, one in enumerate(value)]
    if isinstance(value, np.ndarray):
        while name in arrays:
            name += "_"
        arrays[name] = value
        return {ARRAY: name}
    return value.item() if isinstance(value, np.generic) else value


def _with_arrays(value: Any, arrays: Arrays) -> Any:
    """What ``_without_arrays`` was given; None for an array that is not there."""
    if isinstance(value, dict):
        if value.keys() == {ARRAY}:
            return arrays.get(value[ARRAY])
        return {key: _with_arrays(one, arrays) for key, one in value.items()}
    return [_with_arrays(one, arrays) for one in value] if isinstance(value, list) else value


def _is_whole(value: Any, arrays: Arrays) -> bool:
    """Whether all arrays that are named are there: a state that was rebuilt from the logs alone has none."""
    if isinstance(value, dict):
        if value.keys() == {ARRAY}:
            return value[ARRAY] in arrays
        return all(_is_whole(one, arrays) for one in value.values())
    return not isinstance(value, list) or all(_is_whole(one, arrays) for one in value)
