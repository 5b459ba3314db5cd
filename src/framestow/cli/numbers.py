"""Read the numbers that options take: counts such as ``1.5M``, and real numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from types import NoneType
from typing import Any, get_args, get_origin

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

_COUNT = re.compile(r"([+-]?)(\d+(?:_\d+)*)(?:\.(\d+))?(?:[eE]\+?(\d{1,2}))?([kKmM]?)")
_UNITS = {"": 1, "k": 10**3, "m": 10**6}


def parse_count(text: str) -> int:
    """Return the whole number that ``text`` means.

    >>> [parse_count(text) for text in ("20_000", "150k", "1.5M", "1e6", "-1")]
    [20000, 150000, 1500000, 1000000, -1]

    Raises:
        ValueError: anything else; the message ends a sentence that begins with the option.
    """
    written = _COUNT.fullmatch(text.strip())
    if written:
        sign, whole, decimals, exponent, unit = written.groups(default="")
        number = Fraction(f"{sign}{whole}.{decimals or 0}e{exponent or 0}") * _UNITS[unit.lower()]
        if number.denominator == 1:
            return number.numerator
    raise ValueError(f"is {text!r}: it must be a whole number; write it as 150_000, 150k, 1.5M or 1e6")


def parse_real(text: str) -> float:
    """Return the number that ``text`` means; raise ``ValueError`` as ``parse_count`` does."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"is {text!r}: it must be a number; write it as 0.25 or 2.5e-4") from None


NUMBERS = ConstructorRegistry()
"""What tyro takes to read the options of type ``int``, ``float``, ``int | None``, ``tuple[int, ...]`` and so on."""

_KINDS: dict[type, tuple[str, Callable[[str], Any], Callable[[Any], str]]] = {  # by type: in --help; read; write
    int: ("N", parse_count, "{:_}".format),
    float: ("X", parse_real, str),
}


@NUMBERS.primitive_rule
def number_option(option: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Return how to read an option of one number, of a number or ``None``, or of several numbers."""
    is_many, kinds = get_origin(option.type) is tuple, set(get_args(option.type) or [option.type])
    may_be_none = NoneType in kinds
    [kind, *others] = kinds - {NoneType, Ellipsis} or {NoneType}
    if others or kind not in _KINDS:
        return None
    metavar, read, write = _KINDS[kind]

    def read_all(texts: list[str]) -> Any:
        values = [None if may_be_none and text == "None" else read(text) for text in texts]
        return tuple(values) if is_many else values[0]

    return PrimitiveConstructorSpec(
        nargs="*" if is_many else 1,
        metavar=f"[{metavar} ...]" if is_many else f"{metavar}|None" if may_be_none else metavar,
        instance_from_str=read_all,
        is_instance=lambda _: True,
        str_from_instance=lambda value: [
            str(one) if one is None else write(one) for one in (value if is_many else [value])
        ],
    )
