"""Convert the attributes of an environment to plain values and back, without pickle.

A value other than a number, text or bytes becomes ``{"kind": name, ...}``; each kind has a small class that reads and
writes it. References are kept: an array of two attributes is restored as one array of both.
"""

from __future__ import annotations

import enum
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import gymnasium
import numpy as np

from framestow.errors import IncompatibleError

MISSING: Any = object()
_ATOMS = frozenset((type(None), bool, int, float, str, bytes))
Described = dict[str, Any]


class UnreadableError(Exception):
    """A value that cannot be converted; the message gives its place and type."""


class Kind(Protocol):
    """Reader and writer of one kind of value."""

    name: str
    is_shared: bool
    """Whether two attributes may reference the same value; it is then numbered and written once."""

    def has(self, value: Any, reader: StateReader) -> bool:
        """Return whether ``value`` is of this kind."""

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        """Return a description of ``value``; raise `UnreadableError` if it would be incomplete."""

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        """Return the described value; reuse ``present``, the current value, only for parts that cannot be made."""


class StateReader:
    """Describe values by plain values; one reader for all values that may reference one another.

    Args:
        layers: the environment and its wrappers, which may reference one another.
        kinds: kinds of values, tried in this order.
    """

    def __init__(self, layers: Sequence[gymnasium.Env[Any, Any]], kinds: Sequence[Kind]) -> None:
        self.packages = packages_of(layers)
        self._layer_numbers = {id(layer): number for number, layer in enumerate(layers)}
        self._kinds = kinds
        self._numbers: dict[int, int] = {}
        self._shared: list[Any] = []  # keeps them alive, so that every id() is unique
        self._arrays: list[tuple[str, np.ndarray[Any, Any]]] = []

    def read(self, value: Any, place: str) -> Any:
        """Return a description of ``value`` for `StateWriter.write`."""
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
        """Raise `UnreadableError` if ``array`` overlaps an earlier one; restored, the two would be separate."""
        for other_place, other in self._arrays:
            if not (array.flags.owndata and other.flags.owndata) and np.may_share_memory(array, other):
                raise UnreadableError(f"{place} shares its memory with {other_place}")
        self._arrays.append((place, array))


class StateWriter:
    """Make the values that one `StateReader` described; `apply` then changes existing objects."""

    def __init__(self, layers: Sequence[gymnasium.Env[Any, Any]], kinds: Sequence[Kind]) -> None:
        self.packages = packages_of(layers)
        self._layers = layers
        self._kinds = {kind.name: kind for kind in kinds}
        self._values: list[Any] = []
        self._deferred: list[Callable[[], None]] = []

    def write(self, described: Any, present: Any, place: str) -> Any:
        """Return the described value; ``present`` is the current value, or `MISSING`."""
        if not isinstance(described, dict):
            return described
        name = described["kind"]
        if name == "layer":
            return self._layers[described["number"]]
        if name == "same":
            return self._values[described["number"]]
        kind = self._kinds[name]
        if not kind.is_shared:
            return kind.write(described, present, place, self)
        number = len(self._values)
        self._values.append(MISSING)
        value = kind.write(described, present, place, self)
        self._values[number] = value
        return value

    def register(self, value: Any) -> None:
        """Make ``value``, the newest shared one, known to its own items, which may reference it."""
        self._values[-1] = value

    def defer(self, step: Callable[[], None]) -> None:
        """Defer a change of an existing object until `apply`."""
        self._deferred.append(step)

    def apply(self) -> None:
        """Make the deferred changes."""
        for step in self._deferred:
            step()


def packages_of(layers: Sequence[gymnasium.Env[Any, Any]]) -> frozenset[str]:
    """Return the top-level packages whose plain classes are read: those of the layers, and Gymnasium."""
    return frozenset(("gymnasium", *(path_of(type(layer)).partition(".")[0].partition(":")[0] for layer in layers)))


def path_of(named: Any) -> str:
    """Return the path of a class or function: ``package.module:Class``."""
    module = getattr(named, "__module__", "compiled")  # some extension modules leave it out
    return f"{'__main__' if module == '__mp_main__' else module}:{named.__qualname__}"  # "spawn" renames __main__


def plain_copy(value: Any, place: str) -> Any:
    """Return a copy of a plain value; raise `UnreadableError` for any other."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.dtype.hasobject):
        return value.copy()
    if type(value) in (list, tuple):
        return type(value)(plain_copy(child, f"{place}[{number}]") for number, child in enumerate(value))
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: plain_copy(child, f"{place}[{key!r}]") for key, child in value.items()}
    raise UnreadableError(f"{place} is a {path_of(type(value))}, which is no plain value")


def incompatible(place: str, rule: str) -> IncompatibleError:
    """Return the error for a state that does not fit the environment."""
    return IncompatibleError(f"state of {place}: {rule}; make the environment with the same arguments as the saved one")


_BIT_GENERATORS = (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
_CONSTANTS = (type, types.ModuleType, types.BuiltinFunctionType, np.ufunc)


class SequenceKind(Kind):
    """Lists, tuples and deques."""

    name, is_shared = "sequence", True
    _types: tuple[type, ...] = (list, tuple, deque)

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Return whether it is exactly one of these types; a subclass may have more than its items."""
        return type(value) in self._types

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        items = [reader.read(item, f"{place}[{number}]") for number, item in enumerate(value)]
        described: Described = {"type": type(value).__name__, "items": items}
        return {**described, "maxlen": value.maxlen} if isinstance(value, deque) else described

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        is_indexed = type(present) in self._types
        holder: Any = deque(maxlen=described["maxlen"]) if described["type"] == "deque" else []
        if described["type"] != "tuple":
            writer.register(holder)
        for number, item in enumerate(described["items"]):
            current = present[number] if is_indexed and number < len(present) else MISSING
            holder.append(writer.write(item, current, f"{place}[{number}]"))
        return tuple(holder) if described["type"] == "tuple" else holder


class DictKind(Kind):
    """Dictionaries, in their order."""

    name, is_shared = "dictionary", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        return type(value) is dict

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        keys = [reader.read(key, f"a key of {place}") for key in value]
        return {"keys": keys, "values": [reader.read(each, f"{place}[{key!r}]") for key, each in value.items()]}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        dictionary: dict[Any, Any] = {}
        writer.register(dictionary)
        keys = [writer.write(key, MISSING, f"a key of {place}") for key in described["keys"]]
        for key, each in zip(keys, described["values"], strict=True):
            current = present.get(key, MISSING) if type(present) is dict else MISSING
            dictionary[key] = writer.write(each, current, f"{place}[{key!r}]")
        return dictionary


class ScalarKind(Kind):
    """NumPy scalars, with their dtype."""

    name, is_shared = "scalar", False

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        return isinstance(value, np.generic) and not value.dtype.hasobject

    def read(self, value: Any, place: str, reader: StateReader) -> Described:  # noqa: ARG002
        """Describe dtype and value; if no Python number can represent it, as an array of no dimension."""
        if value.dtype.kind in "biu" or value.dtype in (np.float64, np.float32):
            return {"dtype": value.dtype.str, "value": value.item()}
        return {"dtype": None, "value": np.array(value)}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:  # noqa: ARG002
        return np.array(described["value"], described["dtype"])[()]


class ArrayKind(Kind):
    """Arrays that own their memory, or whose memory no other array of the environment shares."""

    name, is_shared = "array", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        return type(value) is np.ndarray

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if owner.base is not None and not isinstance(owner.base, bytes):
            raise UnreadableError(f"{place} is an array over the memory of a {path_of(type(owner.base))}")
        reader.note_array(value, place)
        if not value.dtype.hasobject:
            return {"value": value.copy(order="K"), "is_writeable": value.flags.writeable}
        if value.dtype != object:
            raise UnreadableError(f"{place} is an array of {value.dtype}, which holds Python objects")
        items = [reader.read(item, f"{place}.flat[{number}]") for number, item in enumerate(value.ravel().tolist())]
        return {"items": items, "shape": value.shape, "is_writeable": value.flags.writeable}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:  # noqa: ARG002
        if "items" in described:
            array = np.full(tuple(described["shape"]), None, object)
            writer.register(array)
            for number, item in enumerate(described["items"]):
                array.flat[number] = writer.write(item, MISSING, f"{place}.flat[{number}]")
        else:
            array = described["value"].copy(order="K")
        array.flags.writeable = described["is_writeable"]
        return array


class GeneratorKind(Kind):
    """NumPy generators, with the seed sequence of their ``spawn``."""

    name, is_shared = "generator", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        return type(value) is np.random.Generator and type(value.bit_generator) in _BIT_GENERATORS

    def read(self, value: Any, place: str, reader: StateReader) -> Described:  # noqa: ARG002
        seed = getattr(value.bit_generator, "seed_seq", None)
        if type(seed) is not np.random.SeedSequence:
            return {"bits": dict(value.bit_generator.state), "seed": None}
        names = ("entropy", "spawn_key", "pool_size", "n_children_spawned")
        return {"bits": dict(value.bit_generator.state), "seed": {name: getattr(seed, name) for name in names}}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:  # noqa: ARG002
        bits = {kind.__name__: kind for kind in _BIT_GENERATORS}[described["bits"]["bit_generator"]]
        source = bits() if described["seed"] is None else bits(np.random.SeedSequence(**described["seed"]))
        source.state = described["bits"]
        return np.random.Generator(source)


class OlderGeneratorKind(Kind):
    """``random.Random`` and ``numpy.random.RandomState``."""

    name, is_shared = "older generator", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        return type(value) in (random.Random, np.random.RandomState)

    def read(self, value: Any, place: str, reader: StateReader) -> Described:  # noqa: ARG002
        if isinstance(value, random.Random):
            version, words, gauss = value.getstate()
            return {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}
        return {"numpys": value.get_state(legacy=False)}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:  # noqa: ARG002
        if "numpys" in described:
            numpys = np.random.RandomState()
            numpys.set_state(described["numpys"])
            return numpys
        pythons = random.Random()
        pythons.setstate((described["version"], tuple(described["words"].tolist()), described["gauss"]))
        return pythons


class EnumMemberKind(Kind):
    """Members of enumerations."""

    name, is_shared = "member", False

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Return whether it is a named member; combined flags have no name."""
        return isinstance(value, enum.Enum) and type(value).__members__.get(value.name) is value

    def read(self, value: Any, place: str, reader: StateReader) -> Described:  # noqa: ARG002
        return {"class": path_of(type(value)), "member": value.name}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:  # noqa: ARG002
        found = find_class(described["class"])
        if not isinstance(found, enum.EnumMeta) or described["member"] not in found.__members__:
            raise incompatible(place, f"there is no {described['class']}.{described['member']}")
        return found.__members__[described["member"]]


class ConstantKind(Kind):
    """Classes, modules and compiled functions; they are not written but must be the same by name."""

    name, is_shared = "constant", False

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Return whether it is a constant, and no method of a compiled object."""
        return _constant_name(value) is not None

    def read(self, value: Any, place: str, reader: StateReader) -> Described:  # noqa: ARG002
        return {"called": _constant_name(value)}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:  # noqa: ARG002
        """Return ``present`` if it has the same name."""
        if _constant_name(present) != described["called"]:
            raise incompatible(place, f"it was {described['called']} and is {present!r}")
        return present


def _constant_name(value: Any) -> str | None:
    if isinstance(value, np.dtype):
        return repr(value)
    is_method = isinstance(value, types.BuiltinFunctionType) and not isinstance(
        value.__self__, (types.ModuleType, type(None))
    )
    return str(value.__name__) if isinstance(value, _CONSTANTS) and not is_method else None


class FunctionKind(Kind):
    """Python functions, with the values of their closure."""

    name, is_shared = "function", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        return type(value) is types.FunctionType

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        closed_over = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        cells = {name: reader.read(_content(cell, place), f"{name} in {place}") for name, cell in closed_over}
        for name, content in _defaults(value, place, reader).items():
            if isinstance(content, dict) and content["kind"] not in _FIXED:
                raise UnreadableError(f"{place} is a function with a changeable value in its {name}")
        return {"called": path_of(value), "cells": cells}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        cells = described["cells"]
        if type(present) is not types.FunctionType or path_of(present) != described["called"]:
            raise incompatible(place, f"it was the function {described['called']} and is {present!r}")
        if tuple(cells) != present.__code__.co_freevars:
            raise incompatible(place, f"its function closed over {tuple(cells)}, not {present.__code__.co_freevars}")
        writer.register(present)
        for (name, content), cell in zip(cells.items(), present.__closure__ or (), strict=True):
            closed_over = writer.write(content, cell.cell_contents, f"{name} in {place}")
            writer.defer(partial(_fill, cell, closed_over))
        return present


_FIXED = ("constant", "layer", "member", "scalar", "space", "same", "function")


def _content(cell: types.CellType, place: str) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        raise UnreadableError(f"{place} is a function with an empty closure") from None


def _fill(cell: types.CellType, value: Any) -> None:
    if cell.cell_contents is not value:
        cell.cell_contents = value


def _defaults(function: types.FunctionType, place: str, reader: StateReader) -> dict[str, Any]:
    values = {f"default {number}": value for number, value in enumerate(function.__defaults__ or ())}
    values |= {**(function.__kwdefaults__ or {}), **vars(function)}
    return {name: reader.read(value, f"{name} of {place}") for name, value in values.items()}


class MethodKind(Kind):
    """Bound methods of values that can be read."""

    name, is_shared = "method", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        return type(value) is types.MethodType

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        return {"called": value.__name__, "owner": reader.read(value.__self__, f"the owner of {place}")}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        current = present.__self__ if type(present) is types.MethodType else MISSING
        method = getattr(writer.write(described["owner"], current, f"the owner of {place}"), described["called"], None)
        if type(method) is not types.MethodType:
            raise incompatible(place, f"its owner has no method {described['called']}")
        return method


class PlainObjectKind(Kind):
    """Objects of the environment's own packages that consist of their attributes."""

    name, is_shared = "object", True

    def has(self, value: Any, reader: StateReader) -> bool:
        """Return whether its class is plain: no compiled base, ``__slots__``, ``__new__`` or ``__del__``."""
        return _is_plain_class(type(value), reader.packages)

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        attributes = {name: reader.read(each, f"{place}.{name}") for name, each in vars(value).items()}
        return {"class": path_of(type(value)), "attributes": attributes}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        kind = find_class(described["class"])
        if kind is None or not _is_plain_class(kind, writer.packages):
            raise incompatible(place, f"its class {described['class']} is not among the environment's")
        made: Any = object.__new__(kind)
        writer.register(made)
        current = vars(present) if type(present) is kind else {}
        for name, each in described["attributes"].items():
            vars(made)[name] = writer.write(each, current.get(name, MISSING), f"{place}.{name}")
        return made


def _is_plain_class(kind: type, packages: frozenset[str]) -> bool:
    is_ours = path_of(kind).partition(":")[0].partition(".")[0] in packages
    return is_ours and has_only_attributes(kind) and not _has_own(kind, "__new__") and not _has_own(kind, "__del__")


def _has_own(kind: type, name: str) -> bool:
    return getattr(kind, name, None) is not getattr(object, name, None)


def has_only_attributes(kind: type) -> bool:
    """Return whether objects of a class store all their values in ``vars(object)``."""
    has_slots = any(vars(base).get("__slots__") for base in kind.__mro__)
    return not has_slots and bool(kind.__dictoffset__)


def find_class(path: str) -> type | None:
    """Return the class of this path if its module is imported, else ``None``."""
    module, _, qualified_name = path.partition(":")
    found: Any = sys.modules.get(module)
    for name in qualified_name.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, type) else None


PYTHON_KINDS = (
    ScalarKind(),
    ArrayKind(),
    SequenceKind(),
    DictKind(),
    GeneratorKind(),
    OlderGeneratorKind(),
    EnumMemberKind(),
    ConstantKind(),
    FunctionKind(),
    MethodKind(),
)
