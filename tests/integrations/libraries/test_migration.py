"""What docs/migration.md shows below *After* runs as it stands there, where the library is installed."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "migration.md").read_text(encoding="utf-8")


def sections():
    """The library and the text of each section that has code."""
    parts = re.split(r"^## (.*)\n", PAGE, flags=re.MULTILINE)[1:]
    return [(title, text) for title, text in zip(parts[::2], parts[1::2], strict=True) if "```python" in text]


def blocks_after(words, text):
    """Each block of Python that stands directly below a line that begins with these words."""
    return re.findall(rf"^{words}[^\n]*:\n\n```python\n(.*?)```", text, re.DOTALL | re.MULTILINE)


def examples():
    """Each block below *After*, by its library."""
    return [
        pytest.param(block, id=f"{title}-{number}")
        for title, text in sections()
        for number, block in enumerate(blocks_after("After", text))
    ]


def missing_modules(block):
    """What the block imports and is not installed."""
    modules = re.findall(r"^(?:from|import) ([\w.]+)", block, re.MULTILINE)
    return sorted({module for module in modules if not _is_there(module)})


def _is_there(module):
    try:
        import_module(module)
    except ImportError:  # ours are there whether or not the library is that they stand in for
        return False
    return True


@pytest.mark.filterwarnings("ignore")  # what other libraries warn of when they are imported is not ours
@pytest.mark.parametrize("example", examples())
def test_what_the_page_shows_to_change_to_runs(example, tmp_path, monkeypatch):
    missing = missing_modules(example)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    monkeypatch.chdir(tmp_path)

    exec(compile(example, "migration.md", "exec"), {"__name__": "__main__"})


def test_each_library_of_the_table_has_a_section():
    linked = re.findall(r"^\| \[[^\]]+\]\(#([\w-]+)\)", PAGE, re.MULTILINE)
    titles = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title, _ in sections()]

    assert linked == titles
