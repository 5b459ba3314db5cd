"""Parse and format amounts of bytes, such as ``"1.5 GB"``."""

from __future__ import annotations

import operator
import re
from typing import Any

from framestow.errors import InvalidSettingsError

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

UNITS = {
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
}  # by lower-case name

FORMS = "give bytes such as 2_000_000_000, or a number with a unit such as '1 GiB', '512 MiB', '1.5 GB' or '2G'"

# A number, such as 1.5 or 2_000_000, and a unit or none.
_WRITTEN = re.compile(r"([0-9][0-9_,]{0,30}(?:\.[0-9]{1,30})?|\.[0-9]{1,30})\s*([A-Za-z]*)")


def format_bytes(num_bytes: float) -> str:
    """Return ``num_bytes`` as text in binary units.

    >>> format_bytes(7056), format_bytes(3 * 2**30)
    ('6.9 KiB', '3.0 GiB')
    """
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes:.0f} B"


def parse_bytes(amount: int | str, name: str = "max_bytes") -> int:
    """Return the number of bytes, at least 1, that ``amount`` means; errors call it ``name``.

    >>> (
    ...     parse_bytes("1 GiB"),
    ...     parse_bytes("1.5 MB"),
    ...     parse_bytes("2G"),
    ...     parse_bytes(65_536),
    ... )
    (1073741824, 1500000, 2000000000, 65536)

    Units are binary (KiB, MiB, GiB, TiB) or decimal (kB, MB, GB, TB, or k, M, G, T), in any case.
    Fractions of a byte are rounded down.

    Raises:
        InvalidSettingsError: anything else.
    """
    num_bytes = _read(amount)
    if num_bytes is None:
        raise InvalidSettingsError(f"{name} is {amount!r}: it must be a number of bytes; {FORMS}")
    if num_bytes < 1:
        raise InvalidSettingsError(f"{name} is {amount!r}: it must be at least 1 byte; {FORMS}")
    return num_bytes


def _read(amount: Any) -> int | None:
    if isinstance(amount, bool):
        return None
    if not isinstance(amount, str):
        try:
            return int(operator.index(amount))
        except TypeError:
            return None
    written = _WRITTEN.fullmatch(amount.strip())
    if written is None:
        return None
    number, unit = written[1].replace("_", "").replace(",", ""), written[2].lower() or "b"
    if unit not in UNITS:
        return None
    whole, _, fraction = number.partition(".")
    denominator: int = 10 ** len(fraction)  # integers, since a float has only 15 exact digits
    return int((whole or "0") + fraction) * UNITS[unit] // denominator
