"""Compare the figures in the pages with the results that they come from, and put new ones in.

    python benchmarks/figures.py            name each sentence that is not as the results say
    python benchmarks/figures.py --write    put the figures of the results into the pages

The modules of ``page_figures`` have the sentences of each page, with the figures that they take from ``results``. A
sentence is found on its page by its words, whatever its figures and line breaks are. A table is found by its head and
the first cell of its first row, and is replaced as a whole. Measures nothing. `make test` fails where a page is stale.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"

Pages = dict[str, list[str]]  # per page, as a path from the checkout's root: its sentences and tables

_FIGURE = re.compile("⟦(.*?)⟧")
_NUMBER = r"[-+]?\d(?:[\d.,]*\d)?"


@cache
def result(name: str) -> dict[str, Any]:
    """Return the figures of ``benchmarks/results/<name>.json``, or of ``tests/<name>.json``."""
    paths = [folder / f"{name}.json" for folder in (RESULTS, ROOT / "tests")]
    path = next((path for path in paths if path.exists()), paths[0])
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return figures


def figure(value: float | str, form: str = "") -> str:
    """Return ``value`` as text that a sentence may have otherwise; numbers without a ``form`` are whole.

    >>> plain(f"a batch takes {figure(1234.5)} µs, {figure(2.066, '.1f')} times the copy")
    'a batch takes 1,234 µs, 2.1 times the copy'
    """
    return f"⟦{value if isinstance(value, str) else format(value, form or ',.0f')}⟧"


def spread(values: Iterable[float], form: str = "") -> str:
    """Return the least and the largest of ``values``, as in "1.3 to 3.3"."""
    numbers = sorted(values)
    return f"{figure(numbers[0], form)} to {figure(numbers[-1], form)}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers_right: bool = True) -> str:
    """Return a Markdown table."""
    line = "|---|" + ("--:|" if numbers_right else "---|") * (len(heads) - 1)
    head, *body = (re.sub(" +", " ", f"| {' | '.join(cells)} |") for cells in (heads, *rows))
    return "\n".join([head, line, *body])


def is_table(sentence: str) -> bool:
    return sentence.startswith("|") and "\n" in sentence


def plain(sentence: str) -> str:
    """Return the sentence as a reader sees it."""
    return _FIGURE.sub(r"\1", sentence)


def find(sentence: str, text: str) -> list[re.Match[str]]:
    """Return where ``text`` has the sentence or the table, with any figures; each figure is a group."""
    if is_table(sentence):
        head, _, first, *_ = sentence.split("\n")
        cell = _NUMBER.join(re.escape(part) for part in re.split(_NUMBER, first[: first.index("|", 1) + 1]))
        return list(re.finditer(rf"({re.escape(head)}\n\|[-:|]+\n{cell}.*(?:\n\|.*)*)", text))
    words = [
        _words_pattern(part) if place % 2 == 0 else _figure_pattern(part)
        for place, part in enumerate(_FIGURE.split(sentence))
    ]
    return list(re.finditer("".join(words), text))


def _words_pattern(words: str) -> str:
    return r"\s+".join(re.escape(word) for word in re.split(r"\s+", words))


def _figure_pattern(text: str) -> str:
    return f"({_NUMBER})" if re.fullmatch(_NUMBER, text) else r"([\w'’ -]*\w)"


def figures_of(sentence: str) -> list[str]:
    """Return what stands at the groups of ``find`` if the page is as the results say."""
    return [sentence] if is_table(sentence) else _FIGURE.findall(sentence)


def renewed(text: str, sentences: Iterable[str]) -> tuple[str, list[str]]:
    """Return ``text`` with the figures of ``sentences``, and what was wrong with it, a line each."""
    wrong = []
    for sentence in sentences:
        found = find(sentence, text)
        if len(found) != 1:
            wrong.append(f"found {len(found)} times, must be once: {plain(sentence)}")
            continue
        [match] = found
        expected = figures_of(sentence)
        if list(match.groups()) != expected:
            wrong.append(f"is stale, the results say: {plain(sentence)}")
        for group in range(len(expected), 0, -1):
            text = text[: match.start(group)] + expected[group - 1] + text[match.end(group) :]
    return text, wrong


def pages() -> Pages:
    """Return the sentences and tables of every page, of all modules of ``page_figures``."""
    every: Pages = {}
    folder = Path(__file__).parent / "page_figures"
    for module in pkgutil.iter_modules([str(folder)]):
        for page, sentences in importlib.import_module(f"page_figures.{module.name}").PAGES.items():
            every.setdefault(page, []).extend(sentences)
    return every


def measured_spans(text: str, sentences: Iterable[str]) -> list[tuple[int, int]]:
    """Return where ``text`` has the sentences and tables, as first and last offset."""
    return [match.span() for sentence in sentences for match in find(sentence, text)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the figures of the results into the pages")
    arguments = parser.parse_args()
    is_wrong = False
    for page, sentences in pages().items():
        path = ROOT / page
        text, wrong = renewed(path.read_text(encoding="utf-8"), sentences)
        for line in wrong:
            is_wrong |= not (arguments.write and line.startswith("is stale"))
            print(f"{page}: {line}")
        if arguments.write:
            path.write_text(text, encoding="utf-8")
    sys.exit(is_wrong)


if __name__ == "__main__":
    main()
