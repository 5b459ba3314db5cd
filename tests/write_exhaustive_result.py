"""Sums up what ``make exhaustive`` ran, a line a file, into a file that is committed."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from framestow.benchmarking.result_files import write_result


def summary(report: Path) -> dict[str, dict[str, float]]:
    """Tests that passed, failed and were skipped, and their seconds, by test file."""
    files: dict[str, dict[str, float]] = defaultdict(lambda: {"passed": 0, "failed": 0, "skipped": 0, "seconds": 0.0})
    for case in ElementTree.parse(report).iter("testcase"):
        if not case.get("classname"):
            continue  # a whole file was skipped, for want of a library
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        figures = files[str(case.get("classname"))]
        figures[outcome] += 1
        figures["seconds"] = round(figures["seconds"] + float(case.get("time", 0)), 1)
    return dict(sorted(files.items()))


if __name__ == "__main__":
    report, result = map(Path, sys.argv[1:])
    write_result(result, {"files": summary(report)}, "make exhaustive")
