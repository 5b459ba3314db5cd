"""Values that are wrong for most arguments, and what a refusal of one says.

A table of ``Call`` names the few values that an argument does take; every other one must be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from framestow.errors import FramestowError

WRONG = {
    "0": 0,
    "-1": -1,
    "nan": float("nan"),
    "inf": float("inf"),
    "None": None,
    "'a'": "a",
    "2.5": 2.5,
    "True": True,
    "[1]": [1],
    "dict": {"a": 1},
    "ragged": [[1, 2], [3]],
    "array": np.zeros((2, 3)),
    "class": object,
}


@dataclass(frozen=True)
class Made:
    """An argument that each call makes anew."""

    make: Callable[[], Any]


@dataclass(frozen=True)
class Call:
    """A call that works with ``arguments``.

    ``takes`` has the names in ``WRONG`` of what each argument takes, such as ``{"seed": "0 None"}``. ``refuses`` has
    further wrong values of an argument, and ``skips`` those in ``WRONG`` that another rule decides.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    takes: Mapping[str, str] = field(default_factory=dict)
    refuses: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    skips: Mapping[str, str] = field(default_factory=dict)
    unchecked: str = ""  # arguments that take anything

    def with_argument(self, name: str, value: Any) -> Any:
        """Call the function with another value of one argument."""
        arguments = {**self.arguments, name: value}  # in the order of the table
        return self.function(
            **{key: given.make() if isinstance(given, Made) else given for key, given in arguments.items()}
        )

    @property
    def names(self) -> list[str]:
        """Names of the checked arguments."""
        return [name for name in self.arguments if name not in self.unchecked.split()]


def each_argument(calls: Mapping[str, Call]) -> list[Any]:
    """Return a parameter for each checked argument of each call."""
    return [pytest.param(call, name, id=f"{kind}-{name}") for kind, call in calls.items() for name in call.names]


def assert_wrong_values_are_refused(call: Call, name: str) -> None:
    """Call with each wrong value of an argument; each must raise framestow's error, which shows the value."""
    taken, skipped = call.takes.get(name, "").split(), call.skips.get(name, "").split()
    assert set(taken + skipped) <= set(WRONG)
    wrong = [value for key, value in WRONG.items() if key not in taken + skipped]
    for value in [*wrong, *call.refuses.get(name, ())]:
        with pytest.raises(FramestowError) as refused:
            call.with_argument(name, value)
        message = str(refused.value)
        assert any(mark in message for mark in marks_of(value)), f"{value!r}: {message}"
    for key in taken:
        call.with_argument(name, WRONG[key])


def marks_of(value: Any) -> set[str]:
    """Return what a message may show of a value: the value, its shape or dtype, or its type or that of its parts."""
    if value is WRONG["ragged"]:
        ways = ("cannot be converted to an array", "of shape (1,)", "type list", "is [1, 2]", "list([1, 2])")
        return {repr(value), "dtype object", *ways}
    parts = tuple(value) if isinstance(value, (list, tuple, dict)) or np.ndim(value) == 2 else ()
    kinds = {type(each).__name__ for each in (value, *parts)}
    array = np.asarray(value)
    return {
        repr(value),
        str(value),
        f"shape {array.shape}",
        f"{str(array.shape)[1:-1]})",  # within a longer shape
        *(f"{verb} {array.dtype}" for verb in ("dtype", "is", "are")),
        *(f"{article} {kind}" for article in ("a", "type") for kind in kinds),
        *(f"is {part!r}" for part in (array.tolist(), *parts, *np.ravel(array).tolist())),
        *(f"has {len(parts)} " for _ in parts),
    }
