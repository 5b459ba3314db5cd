"""Optional libraries: the least version of each, and the error about one that is absent or too old.

The least versions are those of the extras in ``pyproject.toml``, read from framestow's installed metadata.
"""

from __future__ import annotations

import re
from functools import cache
from types import ModuleType

from framestow.errors import MissingExtraError


@cache
def least_versions(extra: str | None = None) -> dict[str, str]:
    """Return the least version of each library of an extra by its name on PyPI; ``None``: of all extras.

    >>> least_versions("ray")
    {'gymnasium': '1.1', 'ray': '2.50'}
    """
    found: dict[str, str] = {}
    for requirement in _requirements():
        of = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if of is None or extra not in (None, of[1]):
            continue
        if ours := re.match(r"framestow\[([\w,-]+)\]", requirement):
            for nested in ours[1].split(",") if extra else ():
                found |= least_versions(nested)
        elif library := re.match(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\d.]+)", requirement):
            found[library[1]] = library[2]
    return found


@cache
def check_extra(what: str, extra: str) -> None:
    """Raise ``MissingExtraError`` if a library of ``extra`` is installed in a version that is too old for ``what``."""
    for library in least_versions(extra):
        check_library(what, library)


def check_library(what: str, library: str) -> None:
    """Raise ``MissingExtraError`` if ``library`` is installed in a version that is too old for ``what``.

    Arguments:
        what: Subject of the message, such as ``"framestow.envs"``.
        library: Name on PyPI.
    """
    least, installed = least_versions().get(library), installed_version(library)
    if least is not None and installed is not None and version_numbers(installed) < version_numbers(least):
        raise MissingExtraError(
            f'{library} is {installed}: {what} needs version {least} or newer; run: pip install "{library}>={least}"'
        )


def missing_extra(what: str, module: str | None, extra: str) -> MissingExtraError:
    """Return the error for ``what``, which needs ``module`` of an extra that is not installed."""
    library = str(module).partition(".")[0]
    return MissingExtraError(
        f"{what} needs {library}: it is part of the extra '{extra}', which is not installed; "
        f'run: pip install "framestow[{extra}]"'
    )


def installed_version(library: str) -> str | None:
    """Return the installed version of a library, by its name on PyPI; ``None`` if it is not installed."""
    metadata = _metadata()
    try:
        return str(metadata.version(library))
    except metadata.PackageNotFoundError:
        return None


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version.

    >>> version_numbers("2.13.0+cpu"), version_numbers("2.10.0a2")
    ((2, 13, 0), (2, 10, 0))
    """
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def _requirements() -> list[str]:
    """Return framestow's requirements; none of a source tree on the path, which has no metadata."""
    metadata = _metadata()
    try:
        return metadata.requires("framestow") or []
    except metadata.PackageNotFoundError:
        return []


def _metadata() -> ModuleType:
    import importlib.metadata  # noqa: PLC0415 -- a tenth of a second, which a bare memory does not need

    return importlib.metadata
