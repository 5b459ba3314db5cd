"""What packages, objects and messages show: lazy names, completion, ``with``, ``repr``, numbers with their nouns."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from traceback import walk_stack
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from framestow.extras import check_extra, missing_extra

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

NONE: Mapping[str, str] = {}
Value = TypeVar("Value")
_NOT_A_CALLER = {"framestow", "stable_baselines3", "sb3_contrib"}  # libraries that build drop-ins themselves


class cached_property(functools.cached_property[Value]):  # noqa: N801, TID251 -- takes the standard library's place
    """``functools.cached_property`` without its lock.

    Python 3.11 locks a property for all objects of its class while it computes one. A child that was forked meanwhile
    would wait for ever. Two threads may compute the same value, as in Python 3.12.
    """

    if not TYPE_CHECKING:

        def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
            if instance is None:
                return self
            value = vars(instance)[self.attrname] = self.func(instance)
            return value


class Closing(ABC):
    """An object with a method ``close``, which a ``with`` block calls at its end."""

    @abstractmethod
    def close(self) -> None:
        """Close the object. Closing again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class HidesNames:
    """An object whose ``dir``, and so completion, leaves out what only framestow's own modules use."""

    __slots__ = ()
    _hidden_names: ClassVar[frozenset[str]] = frozenset()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in self._hidden_names]


class LacksCalls:
    """An object that lacks some calls of a ``ReplayMemory``. Asking for one says why, and what to do instead."""

    _lacking: ClassVar[tuple[frozenset[str], str]]  # their names; the reason and the way out

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            names, reason = self._lacking
            why = f": {reason}" if name in names else ""
            raise AttributeError(f"a {type(self).__name__} has no {name}{why}")


CHANGES = frozenset({"set_rewards", "set_extras", "forget", "clear"})
"""The calls of a memory that change stored steps."""


def one_line(described: object, details: Callable[[], Iterable[str]]) -> str:
    """Return ``Class(detail, detail)``, and never raise: debuggers call ``repr`` on objects that are half built."""
    try:
        known = ", ".join(details())
    except Exception as error:
        known = f"unknown: {type(error).__name__}"
    return f"{type(described).__name__}({known})"


def plain_arguments(built: object) -> Iterator[str]:
    """Yield ``name=value`` for each argument of the constructor that is an attribute with a number or a string."""
    for name in inspect.signature(type(built)).parameters:
        value = getattr(built, name, None)
        if isinstance(value, (int, float, str)):
            yield f"{name}={value!r}"


def warn_caller(message: str, kind: type[Warning]) -> None:
    """Warn at the line of the user's code that called framestow, or the library that builds one of its drop-ins."""
    for frame, _ in walk_stack(inspect.currentframe()):
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _NOT_A_CALLER:
            break
    seen = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, kind, frame.f_code.co_filename, frame.f_lineno, module, seen)


def plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "environment"), plural(1_200, "step")
    ('1 environment', '1,200 steps')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def clause(number: int, noun: str, verb: str) -> str:
    """Return a number with its noun and verb.

    >>> clause(1, "environment", "take"), clause(2, "environment", "take")
    ('1 environment takes', '2 environments take')
    """
    return f"{plural(number, noun)} {verb}{'s' if number == 1 else ''}"


def printable(text: str) -> str:
    r"""Return ``text`` with what a terminal obeys or hides as escapes: all that ``str.isprintable`` does not know.

    These are control characters, line breaks, bidi overrides, invisible characters and lone surrogates.

    >>> printable(
    ...     "a\x1b]0;b\x07\n\u202ec\udc80 \u00e9"
    ... ) == r"a\x1b]0;b\x07\n\u202ec\udc80 é"
    True
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def listed(names: Iterable[object]) -> str:
    r"""Return names with commas between them, each ``printable``: keys of a space may hold any text.

    >>> print(listed(["camera", "\x1b[2J"]))
    camera, \x1b[2J
    """
    return ", ".join(printable(str(name)) for name in names)


def shapes(arrays: Any) -> str:
    """Return shape and dtype of an array or a tensor, or of each in dicts and tuples.

    >>> import numpy as np
    >>> shapes({"camera": np.zeros((2, 3), np.uint8), "arm": (np.zeros(2),)})
    '{camera: (2, 3) uint8, arm: ((2,) float64)}'
    """
    if isinstance(arrays, Mapping):
        return "{" + ", ".join(f"{printable(str(key))}: {shapes(part)}" for key, part in arrays.items()) + "}"
    if isinstance(arrays, tuple):
        return f"({', '.join(map(shapes, arrays))})"
    return f"{tuple(arrays.shape)} {str(arrays.dtype).removeprefix('torch.')}"


def lazy_names(
    package: str,
    modules: Mapping[str, str],
    extras: Mapping[str, str] = NONE,
    packages: Mapping[str, str] = NONE,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for ``package``, which imports its names on first use.

    Each name of ``modules`` comes from its module. ``extras`` has the extra that a name needs: ``__getattr__`` raises
    ``MissingExtraError`` if a library of it is absent or too old. ``packages`` has the packages inside ``package`` by
    name, with the library that each needs (``""`` for none).
    """

    def import_name(name: str) -> Any:
        if name in packages:
            return import_module(f"{package}.{name}")
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        extra = extras.get(name)
        if extra is not None:
            check_extra(package, extra)
        try:
            value = getattr(import_module(f"{package}.{modules[name]}"), name)
        except ModuleNotFoundError as missing:
            if extra is None:
                raise
            raise missing_extra(package, missing.name, extra) from missing
        setattr(sys.modules[package], name, value)
        return value

    return import_name, public_names(package, packages)


def public_names(package: str, packages: Mapping[str, str] = NONE) -> Callable[[], list[str]]:
    """Return ``__dir__`` for ``package``: its ``__all__``, and its ``packages`` whose library is installed.

    ``help`` reads every name that is listed, so a package without its library would make it raise.
    """

    def list_names() -> list[str]:
        names = vars(sys.modules[package])
        special = {name for name in names if name.startswith("__")}
        installed = {name for name, library in packages.items() if not library or find_spec(library)}
        return sorted(special.union(names.get("__all__", ()), installed))

    return list_names
