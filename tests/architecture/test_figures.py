"""The tables in the pages, and the README's picture, are those of the committed results."""

from __future__ import annotations

import hashlib
import re

import pytest

from figures import BLOCK, RESULTS, ROOT, filled, pages
from page_tables import TABLES


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_tables_of_a_page_say_what_the_results_say(page):
    """If this fails, run `python benchmarks/figures.py --write`."""
    text = page.read_text(encoding="utf-8")

    assert filled(text, TABLES) == text
    assert len(BLOCK.findall(text)) == len(re.findall("<!-- figures:", text)), "a block has no end or an odd name"


def test_every_table_stands_on_a_page():
    shown = {name for page in pages() for _, name, _ in BLOCK.findall(page.read_text(encoding="utf-8"))}

    assert set(TABLES) == shown


def test_the_readmes_picture_shows_the_result_that_it_lies_beside():
    """If this fails, run `python benchmarks/readme_picture.py`."""
    folder = RESULTS / "bench-breakout"
    digest = hashlib.sha256((folder / "Breakout.json").read_bytes()).hexdigest().encode()

    assert [True, True] == [digest in (folder / name).read_bytes() for name in ("bench.png", "bench-dark.png")]
