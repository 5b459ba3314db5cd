"""A warning for versions of a library that its drop-in was not tested with."""

from __future__ import annotations

import re
import warnings
from importlib.metadata import PackageNotFoundError, version

from framestow.errors import MissingExtraError, UntestedVersionWarning

_warned: set[str] = set()  # libraries that this process was warned of


def warn_of_untested_version(library: str, oldest: str, newest: str) -> None:
    """Warn with ``UntestedVersionWarning``, once per process, if the version of ``library`` was not tested.

    Arguments:
        library: name on PyPI.
        oldest: oldest tested version, such as ``"2.7"`` or ``"2.7.1"``.
        newest: newest tested version; ``"2.9"`` includes 2.9.7.

    Raises:
        MissingExtraError: the library is not installed.
    """
    try:
        installed = version(library)
    except PackageNotFoundError as missing:
        raise MissingExtraError(
            f'{library} is not installed: its drop-in needs it; run: pip install "framestow[{library}]"'
        ) from missing
    numbers, least, most = map(_numbers, (installed, oldest, newest))
    if library not in _warned and not (least <= numbers and numbers[: len(most)] <= most):
        _warned.add(library)
        warnings.warn(
            f"{library} is {installed}: its drop-in was tested with {oldest} to {newest}; if batches look wrong, "
            "install one of those",
            UntestedVersionWarning,
            stacklevel=3,
        )


def _numbers(version_text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version.

    >>> _numbers("2.13.0+cpu"), _numbers("2.10.0a2")
    ((2, 13, 0), (2, 10, 0))
    """
    leading = re.match(r"\d+(\.\d+)*", version_text)
    return tuple(map(int, leading[0].split("."))) if leading else ()
