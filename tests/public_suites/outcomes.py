"""The outcomes of a library's tests with its own buffer and with the drop-in, and reasons for differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

WORST_LAST = ("passed", "skipped", "failed")


@dataclass(frozen=True)
class Comparison:
    """Counts by file, reasons of the tests that pass only with the library's own buffer, and faults."""

    files: dict[str, dict[str, dict[str, int]]]
    explained: dict[str, str]
    unexplained: list[str]
    needless: list[str]

    def summary(self) -> dict[str, Any]:
        """Return the entries of the result."""
        return {
            "files": self.files,
            "only with the library's own": self.explained | dict.fromkeys(self.unexplained, ""),
        }


def outcomes_of(report: Path) -> dict[str, str]:
    """Return the outcome of each test of an xunit1 report of pytest, by ``file::name[parameters]``."""
    outcomes: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file, name = str(case.get("file")), str(case.get("name"))
        test_class = str(case.get("classname")).rpartition(".")[2]
        parts = [file, name] if test_class == Path(file).stem else [file, test_class, name]
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        test = "::".join(parts)
        outcomes[test] = max(outcome, outcomes.get(test, "passed"), key=WORST_LAST.index)
    return outcomes


def compared(own: Mapping[str, str], ours: Mapping[str, str], reasons: Mapping[str, str]) -> Comparison:
    """Compare the outcomes with the library's own buffer and with the drop-in.

    A reason's key is a test, or one without its parameters for all of them. A test that is not there with the drop-in
    counts as failed.
    """
    worse = [test for test in own if own[test] == "passed" and ours.get(test, "failed") != "passed"]
    reason_of = {test: reasons.get(test, reasons.get(test.partition("[")[0])) for test in worse}
    used = {key for test in worse for key in (test, test.partition("[")[0])}
    return Comparison(
        files={
            file: {"own buffer": _counted(own, file), "drop-in": _counted(ours, file)}
            for file in sorted({test.partition("::")[0] for test in own})
        },
        explained={test: reason for test, reason in reason_of.items() if reason},
        unexplained=[test for test, reason in reason_of.items() if not reason],
        needless=sorted(set(reasons) - used),
    )


def _counted(outcomes: Mapping[str, str], file: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for test, outcome in outcomes.items():
        if test.partition("::")[0] == file:
            counts[outcome] += 1
    return {outcome: counts[outcome] for outcome in WORST_LAST}
