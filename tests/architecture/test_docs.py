"""The README and docs: examples run and print what they show; links, paths and make targets exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md", *DOCS]
TOP_FOLDERS = "benchmarks|docs|examples|native_tests|tests"
PACKAGES = "_core|agents|cli|envs|frames|integrations|offline|replay|storage|torch|training"


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def examples_of(*pages: str):
    """Each block of Python in those pages that imports what it uses; `make jax` runs those for JAX."""
    examples = []
    for page in pages:
        blocks = re.findall(r"```python\n(.*?)```", text_of(ROOT / page), re.DOTALL)
        blocks = [block for block in blocks if "import " in block and "framestow.jax" not in block]
        assert blocks, page
        examples += [pytest.param(page, block, id=f"{Path(page).stem}-{n}") for n, block in enumerate(blocks)]
    return examples


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", without_code(text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    ("page", "example"),
    examples_of("README.md", "docs/get-started.md", "docs/sampling.md", "docs/observations.md"),
)
def test_an_example_runs_and_prints_what_its_comments_say(page, example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    exec(compile(example, page, "exec"), {"__name__": "__main__"})

    expected = [line.split("# ", 1)[1].strip() for line in example.splitlines() if "print(" in line and "# " in line]
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in expected if line not in printed] == [], printed


def test_the_first_example_of_the_readme_needs_only_numpy():
    first = text_of(ROOT / "README.md").split("```python\n")[1].split("```")[0]

    imported = set(re.findall(r"^(?:import|from) (\w+)", first, re.MULTILINE))
    assert imported == {"numpy", "framestow"}
    assert "framestow.envs" not in first


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    linked = re.findall(r"\]\(([^):]+)\)|(?:src|srcset)=\"([^\"]+)\"", without_code(text_of(page)))

    broken = []
    for target, _, anchor in ((markdown or html).partition("#") for markdown, html in linked):
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def test_the_index_links_every_page():
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", text_of(ROOT / "docs" / "index.md")))

    assert linked == {page.name for page in DOCS} - {"index.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_every_path_that_a_page_names_exists(page):
    quoted = " ".join(re.findall(r"`([^`\n]+)`", without_code(text_of(page))))
    named = set(re.findall(rf"(?<![\w./-])(?:{TOP_FOLDERS})/\w[\w./-]*", quoted))
    modules = set(re.findall(rf"(?<![\w./-])(?:{PACKAGES})/[\w./-]+\.[chp]+y?\b", quoted))

    missing = {path for path in named if not (ROOT / path).exists()}
    missing |= {path for path in modules if not (ROOT / "src" / "framestow" / path).exists()}
    assert missing == set()


def test_every_page_that_the_code_names_exists():
    code = [path for folder in ("src", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.[ch]pp")]
    code += [path for folder in ("src", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
    named = {page for path in code for page in re.findall(r"docs/[\w-]+\.md", text_of(path))}

    assert named
    assert [page for page in sorted(named) if not (ROOT / page).exists()] == []


def test_every_make_target_that_a_page_names_is_in_the_makefile():
    named = {target for page in PAGES for target in re.findall(r"`make ([a-z-]+)", text_of(page))}
    made = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))

    assert named - made == set()
