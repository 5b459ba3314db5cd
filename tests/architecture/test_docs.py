"""The README and docs: links, paths, names and make targets exist, and lists are whole."""

from __future__ import annotations

import ast
import importlib
import itertools
import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
API = sorted((ROOT / "docs" / "api").glob("*.md"))
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
LIBRARIES = sorted((ROOT / "docs" / "libraries").glob("*.md"))
TOP_PAGES = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")]
PAGES = [*TOP_PAGES, ROOT / "benchmarks" / "README.md", *DOCS, *LIBRARIES, *DECISIONS, *API]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
INTEGRATIONS = [
    f"integrations.{library}"
    for library in ("classic", "cleanrl", "gymnasium", "stable_baselines3", "tianshou", "torchrl")
]
NAMED_BY_THEIR_MODULE = {  # what a public call returns or takes, and the modules that docs/training.md imports
    "framestow.errors",
    "framestow.replay.reading.episodes.StoredEpisode",
    "framestow.replay.reports.observation_report.ObservationReport",
    "framestow.replay.samplers.sampler.Sampleable",
    "framestow.replay.reading.sampling.StepSequences",
    *(
        f"framestow.training.scores.{name}"
        for name in ("bootstrap_interval", "human_normalized", "interquartile_mean", "published_scores")
    ),
}
[REPOSITORY] = re.findall(r'^Repository = "(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
FILES_THERE = [  # where GitHub shows a file of the main branch, a folder, and a picture
    f"{REPOSITORY}/blob/main/",
    f"{REPOSITORY}/tree/main/",
    f"{REPOSITORY.replace('github.com', 'raw.githubusercontent.com')}/main/",
]
PAGES_THERE = [f"{REPOSITORY}/actions/workflows/test.yml", f"{REPOSITORY}/issues"]
TOP_FOLDERS = "benchmarks|docs|examples|native_tests|tests"
PACKAGES = "_core|agents|benchmarking|cli|distributed|envs|frames|integrations|offline|replay|storage|torch|training"


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", without_code(text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_first_example_of_the_readme_needs_only_numpy():
    first = text_of(ROOT / "README.md").split("```python\n")[1].split("```")[0]

    imported = set(re.findall(r"^(?:import|from) (\w+)", first, re.MULTILINE))
    assert imported == {"numpy", "framestow"}
    assert "framestow.envs" not in first


def test_the_readme_has_no_link_that_breaks_on_pypi():
    links = links_of(ROOT / "README.md")

    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert [link for link in links if "github" in link and not link.startswith((*FILES_THERE, *PAGES_THERE))] == []
    assert (ROOT / "docs" / "breakout.gif").stat().st_size <= 2e6  # a page of PyPI loads it
    assert sum(in_this_checkout(link).endswith((".png", ".gif")) for link in links) == 11


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=lambda page: page.stem)
def test_the_first_install_of_a_page_works_before_the_release(page):
    """`make release-check` names these pages, so that a person shortens the command then."""
    text = text_of(page)
    if page in NOTEBOOKS:
        text = "".join(line for cell in json.loads(text)["cells"] for line in cell["source"])
    installs = re.findall(r"^(?:# %)?pip install (.*(?:\\\n.*)?framestow.*)$", text, re.MULTILINE)

    for install in installs[:1]:
        assert f"git+{REPOSITORY}" in install


def test_the_lines_that_the_readme_changes_are_those_of_the_page_of_the_drop_in():
    [change] = re.findall(r"```diff\n(.*?)```", text_of(ROOT / "README.md"), re.DOTALL)
    lines = [line.split("  # new")[0] for line in text_of(ROOT / "docs/libraries/stable-baselines3.md").splitlines()]

    added = [line[1:] for line in change.splitlines() if line.startswith("+")]
    assert len(added) == 2
    assert [line for line in added if line not in lines] == []


def test_the_site_links_the_repository_of_the_package():
    [linked] = re.findall(r"^repo_url: (.*)", text_of(ROOT / "mkdocs.yml"), re.MULTILINE)

    assert linked == REPOSITORY


def test_the_page_of_commands_has_what_their_help_prints(monkeypatch):
    commands = runpy.run_path(str(ROOT / "docs" / "commands.py"))
    monkeypatch.setenv("COLUMNS", commands["COLUMNS"])

    assert commands["page"]() == text_of(ROOT / "docs" / "commands.md"), "run: python docs/commands.py"


def test_the_table_of_packages_names_every_module_of_framestow():
    table = text_of(ROOT / "CONTRIBUTING.md").split("| package | contents |\n")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", " ".join(row.split(" | ")[0] for row in table.splitlines())))

    modules = {path.stem for path in (ROOT / "src" / "framestow").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert named == modules - {"__init__", "__pycache__"}


def test_the_glossary_is_alphabetical():
    rows = text_of(ROOT / "docs" / "glossary.md").split("|---|---|\n")[1].splitlines()

    words = [row.split("|")[1].strip().lower().replace("_", " ") for row in rows]
    assert words == sorted(words)


def links_of(page: Path) -> list[str]:
    """The targets of a page's links and pictures."""
    linked = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", without_code(text_of(page)))
    return [markdown or html for markdown, html in linked]


def in_this_checkout(link: str) -> str:
    """The path of a link to a file of the repository, from the checkout's root; other links as they are."""
    there = next((start for start in FILES_THERE if link.startswith(start)), None)
    return f"{ROOT}/{link.removeprefix(there)}" if there else link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    links = [link for link in map(in_this_checkout, links_of(page)) if ":" not in link]

    broken = []
    for target, _, anchor in (link.partition("#") for link in links):
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def cells_of(row: str) -> list[str]:
    return re.split(r"(?<!\\)\|", row)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_every_table_of_a_page_has_a_header_and_as_many_cells_in_each_row(page):
    tables = re.findall(r"(?:^\|.*\n)+", without_code(text_of(page)), re.MULTILINE)

    broken = []
    for first, *others in (table.splitlines() for table in tables):
        if not (others and re.fullmatch(r"\|(:?-+:?\|)+", others[0])):
            broken.append(f"without a header: {first}")
        broken += [row for row in others if len(cells_of(row)) != len(cells_of(first))]
    assert broken == []


def test_the_index_links_every_page():
    linked = set(re.findall(r"\]\(([\w-]+\.md|\w+/index\.md)\)", text_of(ROOT / "docs" / "index.md")))

    folders = {"api/index.md", "libraries/index.md"}
    assert linked == {page.name for page in DOCS} - {"index.md"} | folders


@pytest.mark.parametrize("pages", [DECISIONS, LIBRARIES, API], ids=["decisions", "libraries", "api"])
def test_the_index_of_a_folder_links_every_page_of_it(pages):
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", text_of(pages[0].parent / "index.md")))

    assert linked == {page.name for page in pages} - {"index.md"}


def test_the_navigation_of_the_site_has_every_page_but_the_decisions():
    listed = set(re.findall(r"^ +- ([\w/-]+\.md)$", text_of(ROOT / "mkdocs.yml"), re.MULTILINE))

    assert listed == {page.relative_to(ROOT / "docs").as_posix() for page in [*DOCS, *LIBRARIES, *API]}
    assert "docs/decisions/index.md" in links_of(ROOT / "CONTRIBUTING.md")


def test_the_api_pages_have_every_public_name_and_no_other():
    source = ROOT / "src" / "framestow"
    public = set()
    for module in ("", "distributed", "envs", "jax", "offline", "torch", "training", *INTEGRATIONS):
        package = source / module.replace(".", "/")
        tree = ast.parse(text_of(package / "__init__.py" if package.is_dir() else package.with_suffix(".py")))
        [names] = [
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        public |= {f"framestow.{module}.{name}".replace("..", ".") for name in names}
    pages = [page for page in API if page.stem != "types"]  # has what only signatures name; `make docs` finds each
    documented = {name for page in pages for name in re.findall(r"^::: ([\w.]+)$", text_of(page), re.MULTILINE)}

    assert public - documented == {"framestow.envs"}  # a page of its own
    assert documented - public | {"framestow.errors"} == NAMED_BY_THEIR_MODULE


@pytest.mark.parametrize("name", ["patch", "segment", "window", "ring", "waiting", "stacks", "store"])
def test_a_drawing_is_what_its_code_draws(name):
    drawings = runpy.run_path(str(ROOT / "docs" / "drawings.py"))["DRAWINGS"]

    assert drawings[name]() == text_of(ROOT / "docs" / "drawings" / f"{name}.svg")


@pytest.mark.parametrize("page", DOCS + LIBRARIES + TOP_PAGES, ids=lambda page: page.stem)
def test_a_list_or_a_table_begins_behind_an_empty_line(page):
    """The site needs the line; GitHub does not."""
    lines = without_code(text_of(page)).splitlines()
    begins = re.compile(r"^(?:- |\d+\. |\|)")

    joined = [
        line
        for above, line in itertools.pairwise(lines)
        if begins.match(line) and above.strip() and not begins.match(above) and not above.startswith("  ")
    ]
    assert joined == []


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
    named = {page for path in code for page in re.findall(r"docs/(?:libraries/)?[\w-]+\.md", text_of(path))}

    assert named
    assert [page for page in sorted(named) if not (ROOT / page).exists()] == []


def test_every_make_target_that_a_page_names_is_in_the_makefile():
    named = {target for page in PAGES for target in re.findall(r"`make ([a-z-]+)", text_of(page))}
    made = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))

    assert named - made == set()


def test_every_name_of_the_page_of_types_is_where_the_page_says():
    names = re.findall(r"^::: (\S+)$", text_of(ROOT / "docs" / "api" / "types.md"), re.MULTILINE)

    assert len(names) > 30
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name
