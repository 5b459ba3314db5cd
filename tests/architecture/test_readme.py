"""What the README shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_example_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    [example] = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "import" in block]

    exec(compile(example, "README.md", "exec"), {})

    printed = capsys.readouterr().out
    assert "(32, 4, 84, 84)" in printed
    assert re.search(r"\n[78],\d{3} of 1,000,000 transitions in ", printed), printed


def test_the_example_of_the_observations_page_runs(capsys):
    [example] = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/observations.md").read_text(encoding="utf-8"), re.DOTALL
    )

    exec(compile(example, "observations.md", "exec"), {})

    assert "# " + capsys.readouterr().out.strip() in example


def test_every_file_that_the_readme_links_to_is_there():
    links = re.findall(r"\]\(([^)#:]+)\)", README)

    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_make_word_that_is_told_of_is_in_the_makefile():
    told = set(re.findall(r"`make ([a-z-]+)", README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert told - made == set()
