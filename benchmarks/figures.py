"""Put the tables of the results, and the sentences that count in them, into the pages.

    python benchmarks/figures.py            name the pages whose blocks are not as the results say
    python benchmarks/figures.py --write    fill the blocks of the pages

A page has a marked block for each, ``<!-- figures: NAME -->`` to ``<!-- end -->``; ``page_tables.py`` makes what stands
between. Measures nothing. `make test` fails where a page is stale.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from framestow.benchmarking.result_files import write_result

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
NUMBER = re.compile(r"\W*\d")  # begins a cell
BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


@cache
def result(name: str) -> dict[str, Any]:
    """Return the figures of ``benchmarks/results/<name>.json``, or of ``tests/<name>.json``."""
    paths = [folder / f"{name}.json" for folder in (RESULTS, ROOT / "tests")]
    path = next((path for path in paths if path.exists()), paths[0])
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return figures


def publish(name: str, figures: dict[str, Any], is_usual: bool = True, command: str | None = None) -> None:
    """Print what a benchmark measured; write it to ``benchmarks/results/<name>.json`` if it ran as usual."""
    print(json.dumps(_short(figures), indent=1))
    if is_usual:
        print("written:", write_result(RESULTS / f"{name}.json", figures, command).name)


def _short(value: Any) -> Any:
    """Return a value for JSON with four digits of each number that is not whole."""
    if isinstance(value, dict):
        return {name: _short(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_short(entry) for entry in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers_right: bool = True) -> str:
    """Return a Markdown table, with columns of numbers on the right."""
    rows = list(rows)
    columns = [[cell for cell in column if cell] for column in zip(*rows, strict=True)][1:]
    line = "|---|" + "".join(
        "--:|" if numbers_right and all(map(NUMBER.match, column)) else "---|" for column in columns
    )
    head, *body = (re.sub(" +", " ", f"| {' | '.join(cells)} |") for cells in (heads, *rows))
    return "\n".join([head, line, *body])


def pages() -> list[Path]:
    """Return the pages that have blocks."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if BLOCK.search(page.read_text(encoding="utf-8"))]


def filled(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """Return a page's text with each block's table as it is now; raise ``KeyError`` for a name without a table."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{tables[block[2]]()}\n\n{block[3]}", text)


def main() -> None:
    from page_tables import TABLES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    arguments = parser.parse_args()
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := filled(text, TABLES)) != text:
            stale.append(page.relative_to(ROOT).as_posix())
            if arguments.write:
                page.write_text(new, encoding="utf-8")
    print("\n".join(f"{page}: {'written' if arguments.write else 'stale'}" for page in stale))
    sys.exit(bool(stale) and not arguments.write)


if __name__ == "__main__":
    main()
