"""What a release says about itself agrees: the version, the changelog, the versions of Python, the addresses."""

from __future__ import annotations

import re
import runpy
import shutil
import tomllib
from email import message_from_string
from pathlib import Path

import pytest

import framestow
from framestow.cli.command_line import describe_commands

ROOT = Path(__file__).parents[2]
CHECK = runpy.run_path(str(ROOT / "release" / "check.py"))
MissingError = CHECK["MissingError"]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
NAMED_PYTHONS = re.findall(r"Python :: 3\.(\d+)", "\n".join(PROJECT["classifiers"]))
METADATA = """\
Version: {version}
Summary: Replay memory
Author: Somebody
Keywords: replay
Classifier: Typing :: Typed
License-Expression: MIT
Requires-Python: >=3.11
Project-URL: Repository, https://example.org

{description}
"""


def write_release(root, version, heading, readme="", citation=""):
    (root / "src/framestow").mkdir(parents=True)
    (root / "docs/libraries").mkdir(parents=True)
    (root / "docs/libraries/cpprb.md").write_text(readme, encoding="utf-8")
    (root / "pyproject.toml").write_text(
        'Documentation = "https://example.org"\nRepository = "https://example.org/code"\n', encoding="utf-8"
    )
    (root / "README.md").write_text(readme, encoding="utf-8")
    (root / "CITATION.cff").write_text(f"version: {version}\n{citation}", encoding="utf-8")
    (root / "src/framestow/__init__.py").write_text(f'__version__ = "{version}"\n', encoding="utf-8")
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\n{heading}\n\n## 0.0.1\n", encoding="utf-8")


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setitem(CHECK["check_version"].__globals__, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize("heading", ["## 1.2.3 - 2030-01-31", "## [1.2.3] - 2030-01-31"])
def test_a_release_has_a_dated_changelog_and_the_tag_of_its_version(root, heading, capsys):
    write_release(root, "1.2.3", heading, citation="date-released: 2030-01-31\n")

    CHECK["check_version"]("v1.2.3")

    assert "version 1.2.3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "heading", "tag", "message"),
    [
        ("1.2.3", "## 1.2.2 - 2030-01-31", None, "CHANGELOG.md has 1.2.2 as its newest version and the package 1.2.3"),
        ("1.2.3", "## 1.2.3 - 2030-01-31", "v1.2.4", "the tag is v1.2.4: version 1.2.3 has the tag v1.2.3"),
        ("1.2.3", "## 1.2.3 (unreleased)", "v1.2.3", "CHANGELOG.md has no date for 1.2.3"),
    ],
)
def test_a_release_without_its_changelog_its_tag_or_a_date_is_refused(root, version, heading, tag, message):
    write_release(root, version, heading, citation="date-released: 2030-01-31\n" if "2030" in heading else "")

    with pytest.raises(MissingError, match=re.escape(message)):
        CHECK["check_version"](tag)


@pytest.mark.parametrize(
    ("heading", "citation", "message"),
    [
        (
            "## 1.2.3 (unreleased)",
            "date-released: 2030-01-31\n",
            "CITATION.cff has 2030-01-31 and CHANGELOG.md no date",
        ),
        ("## 1.2.3 - 2030-01-31", "", "CITATION.cff has no date and CHANGELOG.md 2030-01-31"),
    ],
)
def test_a_citation_with_another_date_than_the_changelog_is_refused(root, heading, citation, message):
    write_release(root, "1.2.3", heading, citation=citation)

    with pytest.raises(MissingError, match=re.escape(message)):
        CHECK["check_version"](None)


def test_the_citation_has_the_date_of_the_changelog():
    assert CHECK["date_of"](CHECK["newest_entry"]()[1]) == CHECK["date_of_citation"]()


def test_the_newest_version_of_the_changelog_is_the_package():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    assert CHECK["version"]() == re.findall(r"^## \[?(\d+\.\d+\.\d+)", changelog, re.MULTILINE)[0]


def test_a_release_without_a_date_can_be_checked_and_the_date_is_left_to_do_by_hand(root):
    write_release(root, "1.2.3", "## 1.2.3 (unreleased)", "pip install git+https://example.org/code")

    CHECK["check_version"](None)
    left = CHECK["left_by_hand"]()

    assert "CHANGELOG.md: write the date into the heading of 1.2.3" in left
    assert "CITATION.cff: write the same date, as date-released: YYYY-MM-DD" in left
    assert "README.md, docs/libraries/cpprb.md: shorten pip install git+https://example.org/code" in left
    assert left[-1].startswith("git tag v1.2.3")


def test_a_dated_release_leaves_publishing_alone_to_do_by_hand(root):
    write_release(root, "1.2.3", "## 1.2.3 - 2030-01-31", "pip install framestow")

    assert [] == [step for step in CHECK["left_by_hand"]() if not step.startswith(("GitHub", "PyPI", "git tag"))]


def test_a_check_without_its_compiler_is_skipped_with_the_package_that_has_it(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)

    code = CHECK["main"](["--only", "windows", "arm64"])

    printed = capsys.readouterr().out
    assert code == 0
    assert "SKIPPED: x86_64-w64-mingw32-g++-posix is not installed (apt-get install g++-mingw-w64-x86-64)" in printed
    assert "- arm64: aarch64-linux-gnu-g++ is not installed (apt-get install g++-aarch64-linux-gnu)" in printed


def test_metadata_of_a_whole_release_has_no_fault():
    text = METADATA.format(version=CHECK["version"](), description="[a page](https://example.org/a) [below](#below)")

    assert [] == CHECK["faults_of"](message_from_string(text))


@pytest.mark.parametrize(
    ("version", "description", "removed", "fault"),
    [
        ("0.0.0", "", "", "METADATA has version 0.0.0, not "),
        ("", "", "Keywords: replay\n", "METADATA has no Keywords"),
        (
            "",
            "[a](docs/index.md) [b](docs/versions.md)",
            "",
            "2 links of README.md are relative, the first is docs/index.md",
        ),
        ("", '<img src="docs/view.png">', "", "1 links of README.md are relative, the first is docs/view.png"),
    ],
)
def test_metadata_with_a_fault_is_refused(version, description, removed, fault):
    text = METADATA.format(version=version or CHECK["version"](), description=description).replace(removed, "")

    assert [fault] == [found[: len(fault)] for found in CHECK["faults_of"](message_from_string(text))]


def test_addresses_are_of_one_repository_and_the_citation_has_them_too():
    urls = PROJECT["urls"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")

    assert {"Documentation", "Repository", "Issues", "Changelog"} <= set(urls)
    assert urls["Issues"].startswith(f"{urls['Repository']}/")
    assert urls["Changelog"].startswith(f"{urls['Repository']}/")
    assert f'repository-code: "{urls["Repository"]}"' in citation
    assert f"version: {CHECK['version']()}" in citation
    assert f"license: {PROJECT['license']}" in citation


def test_every_first_line_that_a_tool_shows_says_the_same():
    said = {
        "pip show": PROJECT["description"],
        "help(framestow)": framestow.__doc__,
        "framestow --help": describe_commands(),
        **{name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CITATION.cff")},
        "the site": (ROOT / "mkdocs.yml").read_text(encoding="utf-8"),
    }

    words = {name: " ".join(text.split()) for name, text in said.items()}
    assert [] == [
        name for name, text in words.items() if "Replay memory for deep reinforcement learning from pixels" not in text
    ]
    sizes = {
        name: set(re.findall(r"[Aa] million Atari transitions (?:of random play take|in) (\S+ to \S+ MB)", text))
        for name, text in words.items()
    }
    assert {name for name, found in sizes.items() if found != {"50 to 500 MB"}} == {"framestow --help"}


def test_the_workflow_of_tests_takes_the_oldest_and_the_newest_python():
    workflow = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
    oldest, newest = NAMED_PYTHONS[0], NAMED_PYTHONS[-1]

    assert f'python: ["3.{oldest}", "3.{newest}"]' in workflow
    assert f"CIBW_BUILD: cp3{oldest}-* cp3{newest}-*" in workflow


def test_wheels_are_built_for_every_python_that_the_package_names():
    built = SETTINGS["tool"]["cibuildwheel"]["build"]

    assert [f"cp3{minor}-*" for minor in NAMED_PYTHONS] == built.split()
    assert f">=3.{NAMED_PYTHONS[0]}" == PROJECT["requires-python"]


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "docs/get-started.md", "docs/versions.md"])
def test_a_page_names_the_versions_of_python_that_the_package_names(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    ranges = set(re.findall(r"Python (3\.\d+) to (3\.\d+)", text))

    assert ranges <= {(f"3.{NAMED_PYTHONS[0]}", f"3.{NAMED_PYTHONS[-1]}")}


def test_instructions_beyond_sse2_are_found_in_a_disassembly():
    disassembly = """
0000000000000000 <framestow::portable(unsigned char const*)>:
   0:\tmovdqu (%rsi),%xmm0
   4:\tpcmpeqb %xmm1,%xmm0
   8:\tcall   2f0 <verify>
0000000000000040 <framestow::to_floats_by_eight(unsigned char const*)>:
  40:\tvmovdqu (%rsi),%ymm0
  44:\tvaddps %ymm0,%ymm1,%ymm1
0000000000000080 <framestow::wrong()>:
  80:\tpshufb %xmm1,%xmm0
  84:\tpopcnt %rax,%rax
  88:\tcrc32q (%rsi),%rax
"""

    found = CHECK["functions_beyond_sse2"](disassembly)

    assert {"framestow::to_floats_by_eight(unsigned char const*)": 2, "framestow::wrong()": 3} == found


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_runs_only_what_a_hash_names(path):
    text = path.read_text(encoding="utf-8")
    uses = re.findall(r"^ *-? *uses: *(.*)$", text, re.MULTILINE)
    installs = re.findall(r"\bpip3? install\b.*$", text, re.MULTILINE)

    assert [] == [each for each in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", each)]
    assert [] == [each for each in installs if "--require-hashes -r release/requirements.txt" not in each]
    assert uses


def test_the_hashed_release_tools_are_those_that_are_asked_for():
    asked, hashed = (
        {match[1]: match[2] for match in re.finditer(r"^([\w-]+)==(\S+)", text, re.MULTILINE)}
        for text in ((ROOT / f"release/requirements.{end}").read_text(encoding="utf-8") for end in ("in", "txt"))
    )

    assert asked
    assert asked == {name: hashed.get(name) for name in asked}
