"""The *After* examples of docs/libraries.md run if the library is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from framestow.errors import MissingExtraError

PAGE = (Path(__file__).parents[3] / "docs" / "libraries.md").read_text(encoding="utf-8")


def sections():
    """The library and the text of each section that has code."""
    parts = re.split(r"^## (.*)\n", PAGE, flags=re.MULTILINE)[1:]
    return [(title, text) for title, text in zip(parts[::2], parts[1::2], strict=True) if "```python" in text]


def blocks_after(words, text):
    """Return each Python block directly below a line that starts with these words."""
    return re.findall(rf"^{words}[^\n]*:\n\n```python\n(.*?)```", text, re.DOTALL | re.MULTILINE)


def examples():
    """Each block below *After*, by its library."""
    return [
        pytest.param(block, id=f"{title}-{number}")
        for title, text in sections()
        for number, block in enumerate(blocks_after("After", text))
    ]


@pytest.mark.filterwarnings("ignore")  # other libraries warn at import
@pytest.mark.parametrize("example", examples())
def test_the_after_examples_of_the_page_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    try:
        exec(compile(example, "libraries.md", "exec"), {"__name__": "__main__"})
    except (ModuleNotFoundError, MissingExtraError) as missing:
        if str(getattr(missing, "name", "")).startswith("framestow"):
            raise
        pytest.skip(str(missing))


def test_each_library_of_the_table_has_a_section():
    linked = re.findall(r"^\| \[[^\]]+\]\(#([\w-]+)\)", PAGE, re.MULTILINE)
    titles = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title, _ in sections()]

    assert linked == titles
