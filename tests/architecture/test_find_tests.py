"""``make quick FILE=...`` finds the tests of every source file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from find_tests import ELSEWHERE, OF_ADDITIONS, REPO, TABLE, find_tests_of

SUFFIXES = ".py", ".cpp", ".hpp", ".js", ".css", ".html"
FILES = (path for path in (REPO / "src").rglob("*") if path.suffix in SUFFIXES)
SOURCES = sorted(path.relative_to(REPO).as_posix() for path in FILES)


def test_every_source_file_has_tests_that_exist():
    found = {file: find_tests_of(file) for file in SOURCES if not file.endswith("__init__.py")}

    assert len(found) > 200
    assert [] == [file for file, tests in found.items() if not tests]
    missing = {test for tests in found.values() for test in tests if not (REPO / test).exists()}
    assert set() == missing


def test_no_row_of_the_table_is_left_behind():
    inside = [file.removeprefix("src/framestow/").removeprefix("src/") for file in SOURCES]

    rows = [*TABLE, *OF_ADDITIONS]
    assert [] == [beginning for beginning in rows if not any(file.startswith(beginning) for file in inside)]
    assert [] == [beginning for beginning in ELSEWHERE if not (REPO / beginning).exists()]


ROWS = re.findall(r"^\| (.+) \| (.+) \| (.+) \| `FILE=(.+)` \|$", (REPO / "CONTRIBUTING.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(("what", "files", "tests", "first"), ROWS, ids=[row[0] for row in ROWS])
def test_the_first_command_of_an_addition_runs_the_test_that_names_what_was_forgotten(what, files, tests, first):
    run = find_tests_of(first)

    named = re.findall(r"`(tests/\S+\.py)`", tests)
    assert named
    assert [] == [test for test in named if not any(test == each or test.startswith(f"{each}/") for each in run)]
    assert Path(first).name in files or Path(first).parent.as_posix().removeprefix("src/framestow/") in files


def test_ten_additions_have_a_row():
    assert 10 == len(ROWS)


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("src/framestow/replay/store/repair.py", ["tests/replay/store/test_repair.py"]),
        ("src/framestow/viewer/server.py", ["tests/viewer/test_server.py"]),
        ("src/framestow/_core/packings/patches.cpp", ["tests/frames/test_codec.py"]),
        ("tests/core/test_checksum.py", ["tests/core/test_checksum.py"]),
        ("docs/packing.md", ["tests/architecture/test_docs.py"]),
    ],
)
def test_a_file_is_tested_by_the_find_tests_of_its_name_then_by_a_row_then_by_its_folder(file, tests):
    assert tests == find_tests_of(file)[: len(tests)]


@pytest.mark.parametrize("file", ["src/framestow/nothing.py", "LICENSE"])
def test_a_file_without_tests_is_refused_with_a_way_out(file):
    found = subprocess.run(
        [sys.executable, "tests/find_tests.py", file], cwd=REPO, capture_output=True, text=True, check=False
    )

    assert found.returncode == 1
    assert "give " in found.stderr
