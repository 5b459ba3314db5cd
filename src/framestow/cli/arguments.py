"""What commands do with their arguments over tyro: counts such as ``1.5M``, errors of one line, checks of outputs."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from framestow.cli.output import fit
from framestow.errors import InvalidSettingsError

_COUNT = re.compile(r"([+-]?)(\d+(?:_\d+)*)(?:\.(\d+))?(?:[eE]\+?(\d{1,2}))?([kKmM]?)")
_UNITS = {"": 1, "k": 10**3, "m": 10**6}
_RULE = re.compile(r"[╭╮╰╯│─ -]*")
_SENTENCES = (  # what tyro prints; what framestow says
    (r"Error parsing (\S+): (.*)", r"\1 \2"),
    (r"Missing value for argument '(.*?)'.*", r"\1 has no value: it needs one; write \1 VALUE"),
    (
        r"invalid choice ('.*') for argument '(.*?)'\. Expected one of \((.*?),?\)\.",
        r"\2 is \1: it must be one of \3; give another \2",
    ),
)


def help_text(command: str, command_type: type[Any]) -> str:
    """Return tyro's help, as wide as the terminal: usage, what the command does, its options."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        _read(command, command_type, ["--help"], inspect.getdoc(command_type) or "")
    return fit(re.sub(r"\n{3,}", "\n\n", printed.getvalue()))


def read_arguments(command: str, command_type: type[Any], arguments: list[str]) -> Any:
    """Return the command that the arguments describe; ``command`` is what the user writes.

    Raises:
        InvalidSettingsError: an argument is wrong or missing; the message is one line and has a way out.
    """
    columns, printed = os.environ.get("COLUMNS"), io.StringIO()
    os.environ["COLUMNS"] = "2000"  # so that tyro breaks no word
    try:
        with contextlib.redirect_stderr(printed):
            return _read(command, command_type, arguments)
    except SystemExit:
        raise InvalidSettingsError(_shorten(printed.getvalue(), command)) from None
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns


def _read(command: str, command_type: type[Any], arguments: list[str], description: str = "") -> Any:
    with NUMBERS:
        return tyro.cli(command_type, prog=command, description=description, args=arguments)


def _shorten(framed: str, command: str) -> str:
    """Return the sentence of tyro's framed error, and what the user may do."""
    rows = [re.sub(r"^[│ ] ", "", line).rstrip("│ ") for line in framed.splitlines()[1:]]  # without the title
    rows = rows[1:] if rows and _RULE.fullmatch(rows[0]) else rows  # where a terminal has no box characters
    end = next((number for number, row in enumerate(rows) if row and _RULE.fullmatch(row)), len(rows))
    sentence = " ".join(row.strip() for row in rows[:end])
    if sentence.startswith("Missing from"):
        names = [row.strip() for row in rows[:end] if re.match(r" {4}\S", row)]
        return f"missing: {', '.join(names)}; {command} --help explains all arguments"
    if sentence.startswith("Unrecognized options: "):
        near = [row.split()[0].rstrip(",") for row in rows[end:] if re.match(r" {4}--", row)]
        given = sentence.split()[2].rstrip(",")
        meant = [name for name in near if name.startswith(given)] or near
        way_out = f"did you mean {' or '.join(meant)}?" if meant else f"{command} --help lists all"
        return f"{sentence.partition(': ')[2]}: {command} has no such option or argument; {way_out}"
    for pattern, replacement in _SENTENCES:
        sentence = re.sub(f"^{pattern}$", replacement, sentence)
    return sentence


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


def check_output(option: str, path: Path, *, is_folder: bool = False) -> None:
    """Check that a command can write ``path``, a file or a new folder, before it does its work.

    Arguments:
        option: The option that names it; empty if none does.
        path: What is to be written.
        is_folder: Whether it is a folder, which is made with those above it.

    Raises:
        InvalidSettingsError: it cannot; the message names the folder.
    """
    above = path if is_folder else path.parent
    while is_folder and not os.path.lexists(above) and above != above.parent:
        above = above.parent
    what = f"{option} is {path}" if option else f"{path}"
    way_out = f"give another --{option}" if option else "take the right to write there"
    if path.is_dir() and not is_folder:
        raise InvalidSettingsError(f"{what}: it is a folder; give the name of a file in it with --{option}")
    if path.exists() and not is_folder and not path.is_file():
        raise InvalidSettingsError(f"{what}: it is a device or a pipe, which a file would replace; {way_out}")
    if above.exists() and not above.is_dir():
        raise InvalidSettingsError(f"{what}: {above} is a file; {way_out}")
    if not above.is_dir():
        raise InvalidSettingsError(f"{what}: the folder {above} does not exist; create it, or {way_out}")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InvalidSettingsError(f"{what}: the folder {above} cannot be written; {way_out}")
