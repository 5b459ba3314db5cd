"""Values of an environment as plain values and back, without pickle: the walk through them.

A value that is no number, text or bytes becomes ``{"kind": name, ...}``; each kind is a small class that reads and
writes it. What is shared stays shared: an array that two attributes hold comes back as one array that both hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np

from framestow.errors import IncompatibleError

MISSING: Any = object()
_ATOMS = frozenset((type(None), bool, int, float, str, bytes))
Described = dict[str, Any]


class UnreadableError(Exception):
    """Something without a plain form; the message says where it is and what."""


class Kind(Protocol):
    """How one kind of value is read and written."""

    name: str
    is_shared: bool
    """Whether it matters that two places hold the same one: it is then numbered and written once."""

    def has(self, value: Any, reader: StateReader) -> bool:
        """Whether ``value`` is of this kind."""

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        """Describe ``value``; raises `UnreadableError` where that would not be the whole of it."""

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        """Make the value, taking from ``present``, what is there now, only what cannot be made."""


class StateReader:
    """Describes values in plain ones; one reader for all that may share something.

    Args:
        layers: the environment and its wrappers, which may refer to one another.
        kinds: tried in this order.
    """

    def __init__(self, layers: Sequence[gymnasium.Env[Any, Any]], kinds: Sequence[Kind]) -> None:
        self.packages = packages_of(layers)
        self._layer_numbers = {id(layer): number for number, layer in enumerate(layers)}
        self._kinds = kinds
        self._numbers: dict[int, int] = {}
        self._shared: list[Any] = []  # holds them, so that no identity is given out twice
        self._arrays: list[tuple[str, np.ndarray[Any, Any]]] = []

    def read(self, value: Any, place: str) -> Any:
        """Describe ``value``; `StateWriter.write` makes it again from that."""
        if type(value) in _ATOMS:
            return value
        if id(value) in self._numbers:
            return {"kind": "same", "number": self._numbers[id(value)]}
        if id(value) in self._layer_numbers:
            return {"kind": "layer", "number": self._layer_numbers[id(value)]}
        for kind in self._kinds:
            if kind.has(value, self):
                if kind.is_shared:
                    self._numbers[id(value)] = len(self._shared)
                    self._shared.append(value)
                return {"kind": kind.name, **kind.read(value, place, self)}
        raise UnreadableError(f"{place} is a {path_of(type(value))}, whose state cannot be read")

    def note_array(self, array: np.ndarray[Any, Any], place: str) -> None:
        """Refuse an array that overlaps one read before: the two would come back apart."""
        for other_place, other in self._arrays:
            if not (array.flags.owndata and other.flags.owndata) and np.may_share_memory(array, other):
                raise UnreadableError(f"{place} shares its memory with {other_place}")
        self._arrays.append((place, array))


class StateWriter:
    """Makes the values that one `StateReader` described; nothing that exists changes before `finish`."""

    def __init__(self, layers: Sequence[gymnasium.Env[Any, Any]], kinds: Sequence[Kind]) -> None:
        self.packages = packages_of(layers)
        self._layers = layers
        self._kinds = {kind.name: kind for kind in kinds}
        self._written: list[Any] = []
        self._last_steps: list[Callable[[], None]] = []

    def write(self, described: Any, present: Any, place: str) -> Any:
        """Make the described value; ``present`` is what is there now, `MISSING` if nothing is."""
        if not isinstance(described, dict):
            return described
        name = described["kind"]
        if name == "layer":
            return self._layers[described["number"]]
        if name == "same":
            return self._written[described["number"]]
        kind = self._kinds[name]
        if not kind.is_shared:
            return kind.write(described, present, place, self)
        number = len(self._written)
        self._written.append(MISSING)
        value = kind.write(described, present, place, self)
        self._written[number] = value
        return value

    def hold(self, value: Any) -> None:
        """Let what is inside ``value``, the one begun last, refer to it already."""
        self._written[-1] = value

    def afterwards(self, step: Callable[[], None]) -> None:
        """Put off what changes something that exists."""
        self._last_steps.append(step)

    def finish(self) -> None:
        """Change what could not be made anew."""
        for step in self._last_steps:
            step()


def packages_of(layers: Sequence[gymnasium.Env[Any, Any]]) -> frozenset[str]:
    """Top-level packages whose plain classes are read: those of the layers, and Gymnasium."""
    return frozenset(("gymnasium", *(path_of(type(layer)).partition(".")[0].partition(":")[0] for layer in layers)))


def path_of(named: Any) -> str:
    """Where a class or function is found: ``package.module:Class``."""
    module = getattr(named, "__module__", "compiled")  # some extension modules forget it
    return f"{'__main__' if module == '__mp_main__' else module}:{named.__qualname__}"  # as spawned processes call it


def plain_copy(value: Any, place: str) -> Any:
    """Copy a value that is plain already, or refuse it."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.dtype.hasobject):
        return value.copy()
    if type(value) in (list, tuple):
        return type(value)(plain_copy(child, f"{place}[{number}]") for number, child in enumerate(value))
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: plain_copy(child, f"{place}[{key!r}]") for key, child in value.items()}
    raise UnreadableError(f"{place} is a {path_of(type(value))}, which is no plain value")


def refused(place: str, rule: str) -> IncompatibleError:
    """Give the error for a state that does not fit what is there."""
    return IncompatibleError(f"state of {place}: {rule}; make the environment as the one that the state was taken from")
