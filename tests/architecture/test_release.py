"""What a release says about itself agrees: the version, the changelog, the versions of Python."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = runpy.run_path(str(ROOT / "release" / "check.py"))
MissingError = CHECK["MissingError"]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def write_release(root, version, heading):
    (root / "src/framestow").mkdir(parents=True)
    (root / "src/framestow/__init__.py").write_text(f'__version__ = "{version}"\n', encoding="utf-8")
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\n{heading}\n\n## 0.0.1\n", encoding="utf-8")


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setitem(CHECK["check_version"].__globals__, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize("heading", ["## 1.2.3 - 2030-01-31", "## [1.2.3] - 2030-01-31"])
def test_a_release_has_a_dated_changelog_and_the_tag_of_its_version(root, heading, capsys):
    write_release(root, "1.2.3", heading)

    CHECK["check_version"]("v1.2.3")

    assert "version 1.2.3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "heading", "tag", "message"),
    [
        ("1.2.3", "## 1.2.2 - 2030-01-31", None, "CHANGELOG.md has 1.2.2 as its newest version and the package 1.2.3"),
        ("1.2.3", "## 1.2.3 - 2030-01-31", "v1.2.4", "the tag is v1.2.4: version 1.2.3 has the tag v1.2.3"),
        ("1.2.3", "## 1.2.3 (unreleased)", None, "CHANGELOG.md has no date for 1.2.3"),
    ],
)
def test_a_release_without_its_changelog_its_tag_or_a_date_is_refused(root, version, heading, tag, message):
    write_release(root, version, heading)

    with pytest.raises(MissingError, match=re.escape(message)):
        CHECK["check_version"](tag)


def test_the_newest_version_of_the_changelog_is_the_package():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    assert CHECK["version"]() == re.findall(r"^## \[?(\d+\.\d+\.\d+)", changelog, re.MULTILINE)[0]


def test_wheels_are_built_for_every_python_that_the_package_names():
    [built] = re.findall(r'^build = "(.*?)"', PROJECT, re.MULTILINE)
    named = re.findall(r"Python :: 3\.(\d+)", PROJECT)

    assert [f"cp3{minor}-*" for minor in named] == built.split()


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
