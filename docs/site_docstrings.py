"""Docstrings for mkdocstrings: doctests, tables and literal blocks of reStructuredText become Markdown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

BORDER = re.compile(r"^\s*=+(?: +=+)+ *$")
ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")
griffe.stdlib_decorators["framestow.interface.cached_property"] = {"cached", "property"}
PAGE = re.compile(r"docs/((?:\w+/)?[\w-]+\.md)")


class MarkdownDocstrings(griffe.Extension):
    """Rewrites every docstring before mkdocstrings reads it."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """Return ``docstring`` with fenced doctests and literal blocks, Markdown tables, and links to pages of docs/."""
    lines, written, place = docstring.splitlines(), [], 0
    while place < len(lines):
        line = lines[place]
        end = place + 1
        if line.lstrip().startswith(">>> "):
            while end < len(lines) and lines[end].strip():
                end += 1
            written += ["```pycon", *lines[place:end], "```"]
        elif BORDER.match(line):
            borders = [place]
            while end < len(lines) and lines[end].strip():
                borders += [end] if BORDER.match(lines[end]) else []
                end += 1
            written += _table(lines[place:end], len(borders) == 3)
        elif line.rstrip().endswith("::"):
            indent = len(line) - len(line.lstrip())
            while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > indent):
                end += 1
            text = _inline(line.rstrip()[:-2].rstrip())
            block = [lines[number][indent + 4 :].replace("``", "") for number in range(place + 1, end)]
            written += [text + (":" if text.strip() else ""), "", "```text", *_stripped(block), "```", ""]
        else:
            written.append(_inline(line))
        place = end
    return "\n".join(written)


def _inline(line: str) -> str:
    return PAGE.sub(_page_link, ROLE.sub(r"`\1`", line))


def _page_link(page: re.Match[str]) -> str:
    """Return a link from docs/api with the title of the page."""
    [title, *_] = (Path(__file__).parent / page[1]).read_text(encoding="utf-8").splitlines()
    return f"[{title.removeprefix('# ')}](../{page[1]})"


def _table(lines: list[str], has_header: bool) -> list[str]:
    columns = [match.span() for match in re.finditer("=+", lines[0])]
    starts = [start for start, _ in columns]
    ends = [*starts[1:], None]
    rows: list[list[str]] = []
    for line in lines[1:]:
        if BORDER.match(line):
            continue
        cells = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        if cells[0] or not rows:
            rows.append(cells)
        else:
            rows[-1] = [f"{above} {cell}".strip() for above, cell in zip(rows[-1], cells, strict=True)]
    if not has_header:
        rows.insert(0, [""] * len(columns))
    written = ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return [written[0], "|" + " --- |" * len(columns), *written[1:]]


def _cell(text: str) -> str:
    """Return the text of a cell with its bars escaped, but in code, which shows every character."""
    parts = re.split(r"(`+[^`]*`+)", _inline(text))
    return "".join(part if part.startswith("`") else part.replace("|", "\\|") for part in parts)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _stripped(lines: list[str]) -> list[str]:
    return "\n".join(lines).strip("\n").split("\n")
