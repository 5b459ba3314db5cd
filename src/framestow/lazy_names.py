"""Import and list the public names of packages and objects, and name the extra that a missing library belongs to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

from framestow.errors import MissingExtraError


class HidesNames:
    """An object whose ``dir``, and so completion, leaves out what only framestow's own modules use."""

    __slots__ = ()
    _hidden_names: ClassVar[frozenset[str]] = frozenset()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in self._hidden_names]


NO_PACKAGES: Mapping[str, str] = {}


def lazy_names(
    package: str,
    modules: Mapping[str, str],
    extra: str | None = None,
    packages: Mapping[str, str] = NO_PACKAGES,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for ``package``, which imports its names on first use.

    Each name of ``modules`` comes from its module. ``packages`` has the packages inside ``package`` by name, with the
    library that each needs (``""`` for none). With ``extra``, ``__getattr__`` raises ``MissingExtraError`` if a library
    of that extra is not installed.
    """

    def import_name(name: str) -> Any:
        if name in packages:
            return import_module(f"{package}.{name}")
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f"{package}.{modules[name]}"), name)
        except ModuleNotFoundError as missing:
            if extra is None:
                raise
            raise missing_extra(package, missing.name, extra) from missing
        setattr(sys.modules[package], name, value)
        return value

    return import_name, public_names(package, packages)


def public_names(package: str, packages: Mapping[str, str] = NO_PACKAGES) -> Callable[[], list[str]]:
    """Return ``__dir__`` for ``package``: its ``__all__``, and its ``packages`` whose library is installed.

    ``help`` reads every name that is listed, so a package without its library would make it raise.
    """

    def list_names() -> list[str]:
        names = vars(sys.modules[package])
        special = {name for name in names if name.startswith("__")}
        installed = {name for name, library in packages.items() if not library or find_spec(library)}
        return sorted(special.union(names.get("__all__", ()), installed))

    return list_names


def missing_extra(what: str, module: str | None, extra: str) -> MissingExtraError:
    """Return the error for ``what``, which needs ``module`` of an extra that is not installed."""
    library = str(module).partition(".")[0]
    return MissingExtraError(
        f"{what} needs {library}: it is part of the extra '{extra}', which is not installed; "
        f'run: pip install "framestow[{extra}]"'
    )
