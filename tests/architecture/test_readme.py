"""What the README shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def examples_of(*pages):
    """Each block of Python in those pages of the docs that are there, if it imports what it uses."""
    examples = []
    for path in [ROOT / "docs" / f"{page}.md" for page in pages]:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "import " in block]
        examples += [pytest.param(path.stem, block, id=f"{path.stem}-{n}") for n, block in enumerate(blocks)]
    return examples


def test_the_first_example_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    [example] = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "import" in block]

    exec(compile(example, "README.md", "exec"), {})

    printed = capsys.readouterr().out
    assert "(32, 4, 84, 84)" in printed
    assert re.search(r"\n[78],\d{3} of 1,000,000 transitions in ", printed), printed


@pytest.mark.parametrize(("page", "example"), examples_of("observations", "sampling", "loaders"))
def test_an_example_of_the_docs_runs_and_prints_what_stands_there(page, example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    exec(compile(example, f"{page}.md", "exec"), {"__name__": "__main__"})

    told = [line.split("# ", 1)[1].strip() for line in example.splitlines() if "print(" in line and "# " in line]
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in told if line not in printed] == [], printed


def test_every_file_that_the_readme_links_to_is_there():
    links = re.findall(r"\]\(([^)#:]+)\)", README)

    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_make_word_that_is_told_of_is_in_the_makefile():
    told = set(re.findall(r"`make ([a-z-]+)", README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert told - made == set()
