"""A warning for versions of a library that its drop-in was not tested with."""

from __future__ import annotations

import warnings

from framestow.errors import MissingExtraError, UntestedVersionWarning
from framestow.extras import check_library, installed_version, least_versions, version_numbers

_warned: set[str] = set()  # libraries that this process was warned of


def warn_of_untested_version(library: str, *, newest: str, oldest: str | None = None) -> None:
    """Warn with ``UntestedVersionWarning``, once per process, if the version of ``library`` was not tested.

    Arguments:
        library: name on PyPI.
        newest: newest tested version; ``"2.9"`` includes 2.9.7.
        oldest: oldest tested version, such as ``"2.7.1"``; ``None`` is the least that its extra takes.

    Raises:
        MissingExtraError: the library is not installed, or too old.
    """
    installed = installed_version(library)
    if installed is None:
        raise MissingExtraError(
            f'{library} is not installed: its drop-in needs it; run: pip install "framestow[{library}]"'
        )
    check_library("its drop-in", library)
    oldest = oldest or least_versions().get(library, "0")
    numbers, least, most = map(version_numbers, (installed, oldest, newest))
    if library not in _warned and not (least <= numbers and numbers[: len(most)] <= most):
        _warned.add(library)
        warnings.warn(
            f"{library} is {installed}: its drop-in was tested with {oldest} to {newest}; if batches look wrong, "
            "install one of those",
            UntestedVersionWarning,
            stacklevel=3,
        )
