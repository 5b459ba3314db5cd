"""Import the public names of a package on first use, and name the extra that a missing library belongs to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from framestow.errors import MissingExtraError


def lazy_names(package: str, modules: Mapping[str, str], extra: str | None = None) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for ``package`` that imports each name of ``modules`` from its module on first use.

    With ``extra``, it raises ``MissingExtraError`` if a library of that extra is not installed.
    """

    def import_name(name: str) -> Any:
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

    return import_name


def missing_extra(what: str, module: str | None, extra: str) -> MissingExtraError:
    """Return the error for ``what``, which needs ``module`` of an extra that is not installed."""
    library = str(module).partition(".")[0]
    return MissingExtraError(
        f"{what} needs {library}: it is part of the extra '{extra}', which is not installed; "
        f'run: pip install "framestow[{extra}]"'
    )
