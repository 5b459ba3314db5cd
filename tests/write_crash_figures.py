"""Sums up what ``make crashes`` tried, a line a test, into a file that is committed."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

from framestow.benchmarking.result_files import write_result


def figures(report: Path) -> dict[str, dict[str, int]]:
    """What the tests recorded, by their names; a test that failed has no place in there."""
    told: dict[str, dict[str, int]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        if {child.tag for child in case} & {"failure", "error"}:
            sys.exit(f"{case.get('name')} failed: nothing is written")
        for told_property in case.iter("property"):
            name = str(case.get("name")).removeprefix("test_").replace("_", " ")
            told.setdefault(name, {})[str(told_property.get("name"))] = int(str(told_property.get("value")))
    return dict(sorted(told.items()))


if __name__ == "__main__":
    report, result = map(Path, sys.argv[1:])
    write_result(result, {"tried": figures(report)}, "make crashes")
