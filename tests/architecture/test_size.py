"""framestow gets no larger unseen: the lines and files of each package, of tests, benchmarks and pages may only fall.

Whoever takes lines away writes the new numbers here. Whoever must raise a number writes the reason beside it, in the
same commit. A limit is no target: no line gets denser, and no comment goes, to stay below one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "framestow"
CODE = {".py", ".pyi", ".cpp", ".hpp", ".js", ".css", ".html"}
SLACK = 40  # lines, or words of pages in tens, that a part may lie below its limit before the limit has to fall

LIMITS = {  # lines, files
    "(root)": (1_078, 7),  # ReplayEnsemble is public; missing calls say why; flags and empty rows of any call
    "_core": (16_295, 94),  # Core, Planner, generated types; pixels to floats; steps change; commits, lists in budgets
    "agents": (1_156, 7),  # images reach the network by one native pass; Munchausen from any step on; bfloat16 on CPUs
    "benchmarking": (1_632, 8),
    "cli": (2_524, 15),  # import and export of arrays; pickled buffers; what a run will take; links, pipes; full disks
    "distributed": (2_713, 8),  # the one door to files; refused priorities; full shards; saves of all own steps
    "envs": (4_946, 26),  # counts in the singular, too; states that no checkpoint takes; why none was made
    "frames": (1_034, 6),  # frames of a pickle are shared by a deepcopy
    "integrations": (5_244, 24),  # drop-ins in folders and budgets, with priorities; writes into packed pixels
    "offline": (2_559, 9),  # files of D4RL, d3rlpy, NumPy; full disks; buffers; endings; Minari.s export apart
    "replay": (11_328, 50),  # ensembles; changed steps; all bytes in budgets; priorities all or none; goals in loaders
    "storage": (1_987, 10),  # the one door to files; sizes of many blocks; garbage gives locks up; quoted paths
    "torch": (842, 5),  # workers of PyTorch's DataLoader; default devices, copies
    "training": (4_531, 16),  # reports leave out what trained much longer; laptop-long; ALE in names; cells of tables
    "viewer": (2_712, 20),  # a server with limits; damage is shown
    "tests": (56_417, 405),  # loaders, arrays; budgets of any step; kills at each; forty faults of odd input
    "benchmarks": (6_447, 41),  # figures of sample(32) beside each other; ten games of several seeds and any recipe
}
WORDS_OF_PAGES = 61_496  # of docs, README and CONTRIBUTING; ensembles, loaders, masks, changes, trials, budgets


def size_of(files: Iterable[Path]) -> tuple[int, int]:
    """Return the lines and the number of some files."""
    counts = [len(file.read_text(encoding="utf-8").splitlines()) for file in files]
    return sum(counts), len(counts)


def part_of(file: Path) -> str:
    """Return the package of a source file; those beside the packages are one part."""
    folders = file.relative_to(SOURCES).parts[:-1]
    return folders[0] if folders else "(root)"


def sizes() -> dict[str, tuple[int, int]]:
    """Return lines and files of each part."""
    parts: dict[str, list[Path]] = {}
    for file in SOURCES.rglob("*"):
        if file.suffix in CODE:
            parts.setdefault(part_of(file), []).append(file)
    parts |= {name: list((ROOT / name).rglob("*.py")) for name in ("tests", "benchmarks")}
    return {name: size_of(files) for name, files in parts.items()}


def words_of_pages() -> int:
    """Return the words of all pages that a person reads."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def test_every_part_has_a_limit():
    assert sizes().keys() == LIMITS.keys()


@pytest.mark.parametrize("part", LIMITS)
def test_a_part_is_no_larger_than_its_limit(part):
    (lines, files), (most_lines, most_files) = sizes()[part], LIMITS[part]

    assert lines <= most_lines, f"{part} has {lines} lines: take some away, or raise the limit and say why"
    assert files <= most_files, f"{part} has {files} files: take some away, or raise the limit and say why"


@pytest.mark.parametrize("part", LIMITS)
def test_a_limit_falls_with_its_part(part):
    (lines, files), (most_lines, most_files) = sizes()[part], LIMITS[part]

    assert lines >= most_lines - SLACK, f'write "{part}": ({lines:_}, {files}) into LIMITS'
    assert files == most_files, f'write "{part}": ({lines:_}, {files}) into LIMITS'


def test_the_pages_are_no_longer_than_their_limit_and_it_falls_with_them():
    words = words_of_pages()

    assert WORDS_OF_PAGES - 10 * SLACK <= words <= WORDS_OF_PAGES, f"the pages have {words:_} words"
