"""Values of an environment as plain values and back, without pickle: the walk through them.

A value that is no number, text or bytes becomes ``{"kind": name, ...}``; each kind is a small class that reads and
writes it. What is shared stays shared: an array that two attributes hold comes back as one array that both hold.
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


_BIT_GENERATORS = (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
_CONSTANTS = (type, types.ModuleType, types.BuiltinFunctionType, np.ufunc)


class Sequences:
    """Lists, tuples and deques."""

    name, is_shared = "sequence", True
    _types: tuple[type, ...] = (list, tuple, deque)

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Exactly these: a subclass may hold more than its items."""
        return type(value) in self._types

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        """Describe the items, and how many a deque may have."""
        items = [reader.read(item, f"{place}[{number}]") for number, item in enumerate(value)]
        described: Described = {"type": type(value).__name__, "items": items}
        return {**described, "maxlen": value.maxlen} if isinstance(value, deque) else described

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        """Make a new one."""
        is_indexed = type(present) in self._types
        holder: Any = deque(maxlen=described["maxlen"]) if described["type"] == "deque" else []
        if described["type"] != "tuple":
            writer.hold(holder)
        for number, item in enumerate(described["items"]):
            beside = present[number] if is_indexed and number < len(present) else MISSING
            holder.append(writer.write(item, beside, f"{place}[{number}]"))
        return tuple(holder) if described["type"] == "tuple" else holder


class Dictionaries:
    """Dictionaries, in their order."""

    name, is_shared = "dictionary", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Exactly ``dict``."""
        return type(value) is dict

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        """Describe keys and values."""
        keys = [reader.read(key, f"a key of {place}") for key in value]
        return {"keys": keys, "values": [reader.read(each, f"{place}[{key!r}]") for key, each in value.items()]}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        """Make a new one."""
        dictionary: dict[Any, Any] = {}
        writer.hold(dictionary)
        keys = [writer.write(key, MISSING, f"a key of {place}") for key in described["keys"]]
        for key, each in zip(keys, described["values"], strict=True):
            beside = present.get(key, MISSING) if type(present) is dict else MISSING
            dictionary[key] = writer.write(each, beside, f"{place}[{key!r}]")
        return dictionary


class Scalars:
    """NumPy's numbers, with their dtype."""

    name, is_shared = "scalar", False

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Any NumPy scalar."""
        return isinstance(value, np.generic) and not value.dtype.hasobject

    def read(self, value: Any, place: str, reader: StateReader) -> Described:  # noqa: ARG002
        """Give dtype and number; as an array of no dimension where Python's numbers would not hold it."""
        if value.dtype.kind in "biu" or value.dtype in (np.float64, np.float32):
            return {"dtype": value.dtype.str, "value": value.item()}
        return {"dtype": None, "value": np.array(value)}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:  # noqa: ARG002
        """Make it again."""
        return np.array(described["value"], described["dtype"])[()]


class Arrays:
    """Arrays that own their memory, or are the only one that is read of it."""

    name, is_shared = "array", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Exactly ``numpy.ndarray``."""
        return type(value) is np.ndarray

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        """Copy it; Python objects in it are described one by one."""
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
        """Make a new one."""
        if "items" in described:
            array = np.full(tuple(described["shape"]), None, object)
            writer.hold(array)
            for number, item in enumerate(described["items"]):
                array.flat[number] = writer.write(item, MISSING, f"{place}.flat[{number}]")
        else:
            array = described["value"].copy(order="K")
        array.flags.writeable = described["is_writeable"]
        return array


class Generators:
    """NumPy's generators, with what their ``spawn`` goes on from."""

    name, is_shared = "generator", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """A generator over one of NumPy's own sources of bits."""
        return type(value) is np.random.Generator and type(value.bit_generator) in _BIT_GENERATORS

    def read(self, value: Any, place: str, reader: StateReader) -> Described:  # noqa: ARG002
        """Give the state of its bits and of its seed."""
        seed = getattr(value.bit_generator, "seed_seq", None)
        if type(seed) is not np.random.SeedSequence:
            return {"bits": dict(value.bit_generator.state), "seed": None}
        names = ("entropy", "spawn_key", "pool_size", "n_children_spawned")
        return {"bits": dict(value.bit_generator.state), "seed": {name: getattr(seed, name) for name in names}}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:  # noqa: ARG002
        """Make a new one."""
        bits = {kind.__name__: kind for kind in _BIT_GENERATORS}[described["bits"]["bit_generator"]]
        source = bits() if described["seed"] is None else bits(np.random.SeedSequence(**described["seed"]))
        source.state = described["bits"]
        return np.random.Generator(source)


class OlderGenerators:
    """``random.Random`` and ``numpy.random.RandomState``."""

    name, is_shared = "older generator", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Exactly these two."""
        return type(value) in (random.Random, np.random.RandomState)

    def read(self, value: Any, place: str, reader: StateReader) -> Described:  # noqa: ARG002
        """Give the words of the Mersenne twister."""
        if isinstance(value, random.Random):
            version, words, gauss = value.getstate()
            return {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}
        return {"numpys": value.get_state(legacy=False)}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:  # noqa: ARG002
        """Make a new one."""
        if "numpys" in described:
            numpys = np.random.RandomState()
            numpys.set_state(described["numpys"])
            return numpys
        pythons = random.Random()
        pythons.setstate((described["version"], tuple(described["words"].tolist()), described["gauss"]))
        return pythons


class Members:
    """Members of enumerations."""

    name, is_shared = "member", False

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Members that have a name, which joined flags have not."""
        return isinstance(value, enum.Enum) and type(value).__members__.get(value.name) is value

    def read(self, value: Any, place: str, reader: StateReader) -> Described:  # noqa: ARG002
        """Name it."""
        return {"class": path_of(type(value)), "member": value.name}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:  # noqa: ARG002
        """Find it."""
        found = found_class(described["class"])
        if not isinstance(found, enum.EnumMeta) or described["member"] not in found.__members__:
            raise refused(place, f"there is no {described['class']}.{described['member']}")
        return found.__members__[described["member"]]


class Constants:
    """Classes, modules and compiled functions: what never changes, and is not written but found the same."""

    name, is_shared = "constant", False

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Whether it is one, and no method of a compiled object."""
        return _constant_name(value) is not None

    def read(self, value: Any, place: str, reader: StateReader) -> Described:  # noqa: ARG002
        """Name it."""
        return {"called": _constant_name(value)}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:  # noqa: ARG002
        """Give what is there, if it is the same by name."""
        if _constant_name(present) != described["called"]:
            raise refused(place, f"it was {described['called']} and is {present!r}")
        return present


def _constant_name(value: Any) -> str | None:
    if isinstance(value, np.dtype):
        return repr(value)
    is_method = isinstance(value, types.BuiltinFunctionType) and not isinstance(
        value.__self__, (types.ModuleType, type(None))
    )
    return str(value.__name__) if isinstance(value, _CONSTANTS) and not is_method else None


class Functions:
    """Functions, of which what they close over is state."""

    name, is_shared = "function", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Functions written in Python."""
        return type(value) is types.FunctionType

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        """Name it, and describe what it closes over."""
        closed_over = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        cells = {name: reader.read(_content(cell, place), f"{name} in {place}") for name, cell in closed_over}
        for name, content in _defaults(value, place, reader).items():
            if isinstance(content, dict) and content["kind"] not in _FIXED:
                raise UnreadableError(f"{place} is a function that keeps values in its {name}")
        return {"called": path_of(value), "cells": cells}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        """Give the one that is there, and have it close over the same values."""
        cells = described["cells"]
        if type(present) is not types.FunctionType or path_of(present) != described["called"]:
            raise refused(place, f"it was the function {described['called']} and is {present!r}")
        if tuple(cells) != present.__code__.co_freevars:
            raise refused(place, f"its function closed over {tuple(cells)}, not {present.__code__.co_freevars}")
        writer.hold(present)
        for (name, content), cell in zip(cells.items(), present.__closure__ or (), strict=True):
            closed_over = writer.write(content, cell.cell_contents, f"{name} in {place}")
            writer.afterwards(partial(_fill, cell, closed_over))
        return present


_FIXED = ("constant", "layer", "member", "scalar", "space", "same", "function")


def _content(cell: types.CellType, place: str) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        raise UnreadableError(f"{place} is a function that closes over nothing yet") from None


def _fill(cell: types.CellType, value: Any) -> None:
    if cell.cell_contents is not value:
        cell.cell_contents = value


def _defaults(function: types.FunctionType, place: str, reader: StateReader) -> dict[str, Any]:
    given = {f"default {number}": value for number, value in enumerate(function.__defaults__ or ())}
    given |= {**(function.__kwdefaults__ or {}), **vars(function)}
    return {name: reader.read(value, f"{name} of {place}") for name, value in given.items()}


class Methods:
    """Methods bound to something that is read."""

    name, is_shared = "method", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Methods written in Python."""
        return type(value) is types.MethodType

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        """Name it, and describe what it is bound to."""
        return {"called": value.__name__, "owner": reader.read(value.__self__, f"the owner of {place}")}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        """Bind it again."""
        beside = present.__self__ if type(present) is types.MethodType else MISSING
        method = getattr(writer.write(described["owner"], beside, f"the owner of {place}"), described["called"], None)
        if type(method) is not types.MethodType:
            raise refused(place, f"its owner has no method {described['called']}")
        return method


class PlainObjects:
    """Objects whose attributes are all there is of them, of classes in the environment's own packages."""

    name, is_shared = "object", True

    def has(self, value: Any, reader: StateReader) -> bool:
        """No subclass of something compiled, and nothing with slots or a farewell of its own."""
        return _is_plain_class(type(value), reader.packages)

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        """Describe the attributes."""
        attributes = {name: reader.read(each, f"{place}.{name}") for name, each in vars(value).items()}
        return {"class": path_of(type(value)), "attributes": attributes}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        """Make a new one, without its ``__init__``."""
        kind = found_class(described["class"])
        if kind is None or not _is_plain_class(kind, writer.packages):
            raise refused(place, f"its class {described['class']} is not among the environment's")
        made: Any = object.__new__(kind)
        writer.hold(made)
        beside = vars(present) if type(present) is kind else {}
        for name, each in described["attributes"].items():
            vars(made)[name] = writer.write(each, beside.get(name, MISSING), f"{place}.{name}")
        return made


def _is_plain_class(kind: type, packages: frozenset[str]) -> bool:
    is_ours = path_of(kind).partition(":")[0].partition(".")[0] in packages
    return is_ours and keeps_all_in_attributes(kind) and not _has_own(kind, "__new__") and not _has_own(kind, "__del__")


def _has_own(kind: type, name: str) -> bool:
    return getattr(kind, name, None) is not getattr(object, name, None)


def keeps_all_in_attributes(kind: type) -> bool:
    """Whether objects of a class have their attributes in ``vars(object)``, and nowhere else."""
    has_slots = any(vars(base).get("__slots__") for base in kind.__mro__)
    return not has_slots and bool(kind.__dictoffset__)


def found_class(path: str) -> type | None:
    """Find a class by its path among what is imported already; nothing is imported for it."""
    module, _, qualified_name = path.partition(":")
    found: Any = sys.modules.get(module)
    for name in qualified_name.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, type) else None


PYTHON_KINDS = (
    Scalars(),
    Arrays(),
    Sequences(),
    Dictionaries(),
    Generators(),
    OlderGenerators(),
    Members(),
    Constants(),
    Functions(),
    Methods(),
)
