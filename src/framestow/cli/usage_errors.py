"""Turn tyro's framed errors about arguments into errors of one line."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator

from framestow.errors import InvalidSettingsError

_RULE = re.compile(r"[╰╯─-]{3,}")
_SENTENCES = (  # what tyro prints; what framestow says
    (r"Error parsing (\S+): (.*)", r"\1 \2"),
    (r"Missing value for argument '(.*?)'.*", r"\1 has no value: it needs one; write \1 VALUE"),
    (
        r"invalid choice ('.*') for argument '(.*?)'\. Expected one of \((.*?),?\)\.",
        r"\2 is \1: it must be one of \3; give another \2",
    ),
)


@contextlib.contextmanager
def one_line_errors(command: str) -> Iterator[None]:
    """Raise ``InvalidSettingsError`` where tyro prints an error in a frame and exits; ``command`` is the user's."""
    columns, printed = os.environ.get("COLUMNS"), io.StringIO()
    os.environ["COLUMNS"] = "2000"  # so that tyro breaks no word
    try:
        with contextlib.redirect_stderr(printed):
            yield
    except SystemExit:
        raise InvalidSettingsError(shorten(printed.getvalue(), command)) from None
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns


def shorten(framed: str, command: str) -> str:
    """Return the sentence of a framed error, and what the user may do."""
    rows = [re.sub(r"^[│ ] ", "", line).rstrip("│ ") for line in framed.splitlines()[1:]]  # without the title
    if rows and _RULE.fullmatch(rows[0].strip()):  # where a terminal has no box characters, a rule is below the title
        del rows[0]
    end = next((number for number, row in enumerate(rows) if _RULE.fullmatch(row.strip())), len(rows))
    sentence = " ".join(row.strip() for row in rows[:end])
    if sentence.startswith("Missing from"):
        names = [row.strip() for row in rows[:end] if re.match(r" {4}\S", row)]
        return f"missing: {', '.join(names)}; {command} --help explains all arguments"
    if sentence.startswith("Unrecognized options: "):
        unknown = sentence.partition(": ")[2]
        meant = [row.split()[0].rstrip(",") for row in rows[end:] if re.match(r" {4}--", row)]
        way_out = f"did you mean {' or '.join(meant)}?" if meant else f"{command} --help lists all"
        return f"{unknown}: {command} has no such option or argument; {way_out}"
    for pattern, replacement in _SENTENCES:
        sentence = re.sub(f"^{pattern}$", replacement, sentence)
    return sentence
