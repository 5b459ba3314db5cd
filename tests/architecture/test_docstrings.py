"""Docstrings are of one dialect: Google's sections and literals in double backticks. Ruff checks the sections."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "framestow"
OTHER_DIALECTS = {
    "a role of Sphinx": re.compile(r":\w+:`"),
    "a single backtick": re.compile(r"(?<!`)`[^`\n]+`(?!`)"),
    "errors in prose, where Raises: has them": re.compile(r"^ *Raises ``", re.MULTILINE),
    "Args: or Parameters: instead of Arguments:": re.compile(r"^ *(Args|Parameters):$", re.MULTILINE),
}


def docstrings() -> Iterator[tuple[str, str]]:
    """The docstring of each module, class and function, and those below attributes, with their places."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    yield f"{path.relative_to(SOURCE)}:{statement.lineno}", str(statement.value.value)


def test_docstrings_are_of_one_dialect():
    found = [
        f"{place}: {what}: {match[0].strip()}"
        for place, text in docstrings()
        for what, pattern in OTHER_DIALECTS.items()
        if (match := pattern.search(text))
    ]

    assert [] == found
