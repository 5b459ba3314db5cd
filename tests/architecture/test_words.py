"""The names of the code use the glossary's words for what goes away, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = ["clear", "discard", "evict", "forget", "lose", "release", "remove", "retire"]
OTHERS = re.compile(r"(?i)delete|destroy|drop(?!s?[-_](?:in|last))|erase|purge")  # drop_last is PyTorch's argument


def defined_names(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)) if OTHERS.search(source) else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def test_what_goes_away_goes_by_a_word_of_the_glossary():
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    sources = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("src/**/*.py")}
    others = {(file, name) for file, source in sources.items() for name in defined_names(source) if OTHERS.search(name)}

    assert set() == others
    assert WORDS == [word for word in WORDS if f"\n| {word} | " in glossary]
