"""Which versions of a library its drop-in was tested with, and a word to whoever has another."""

from __future__ import annotations

import re
import warnings
from importlib.metadata import PackageNotFoundError, version

from framestow.errors import MissingExtraError, UntestedVersionWarning

_warned: set[str] = set()


def warn_of_untested_version(library: str, oldest: str, newest: str) -> None:
    """Warn once a process, with ``UntestedVersionWarning``, where ``library`` is older or newer than was tested.

    ``library``: its name on PyPI. ``oldest``, ``newest``: versions as ``"2.9"`` or ``"2.9.2"``; of the newest, only as
    many numbers count as it has: ``"2.9"`` takes in 2.9.7. Raises ``MissingExtraError`` where it is not installed.
    """
    try:
        installed = version(library)
    except PackageNotFoundError as missing:
        raise MissingExtraError(
            f"{library} is not installed: its drop-in stands in for its buffers; run: pip install "
            f'"framestow[{library}]"'
        ) from missing
    numbers, least, most = map(_numbers, (installed, oldest, newest))
    if library not in _warned and not (least <= numbers and numbers[: len(most)] <= most):
        _warned.add(library)
        warnings.warn(
            f"{library} is {installed}: its drop-in was tested with {oldest} to {newest}; if batches look wrong, "
            "take one of those",
            UntestedVersionWarning,
            stacklevel=3,
        )


def _numbers(version_text: str) -> tuple[int, ...]:
    """The numbers of a version up to the first part that is none.

    >>> _numbers("2.13.0+cpu"), _numbers("2.10.0a2")
    ((2, 13, 0), (2, 10, 0))
    """
    leading = re.match(r"\d+(\.\d+)*", version_text)
    return tuple(map(int, leading[0].split("."))) if leading else ()
