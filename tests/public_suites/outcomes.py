"""The outcomes of a library's tests with its own buffer and with the drop-in, and reasons for differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
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
    for test, case in _cases_of(report):
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        outcomes[test] = max(outcome, outcomes.get(test, "passed"), key=WORST_LAST.index)
    return outcomes


def errors_of(report: Path) -> dict[str, str]:
    """Return the error of each failed test of an xunit1 report of pytest."""
    failures = ((test, child) for test, case in _cases_of(report) for child in case)
    return {test: str(child.get("message")) for test, child in failures if child.tag in ("failure", "error")}


def _cases_of(report: Path) -> Iterator[tuple[str, ElementTree.Element]]:
    for case in ElementTree.parse(report).iter("testcase"):
        file, name = str(case.get("file")), str(case.get("name"))
        test_class = str(case.get("classname")).rpartition(".")[2]
        yield "::".join([file, name] if test_class == Path(file).stem else [file, test_class, name]), case


def compared(
    own: Mapping[str, str], ours: Mapping[str, str], reasons: Mapping[str, str], errors: Mapping[str, str]
) -> Comparison:
    """Compare the outcomes with the library's own buffer and with the drop-in.

    A reason's key is a test, one without its parameters for all of them, or ``error: `` and a part of the error of all
    tests that it explains. A test that is not there with the drop-in counts as failed.
    """
    worse = [test for test in own if own[test] == "passed" and ours.get(test, "failed") != "passed"]
    keys = {test: _key_of(test, reasons, errors.get(test, "")) for test in worse}
    reason_of = {test: reasons.get(key, "") for test, key in keys.items()}
    used = set(keys.values())
    return Comparison(
        files={
            file: {"own buffer": _counted(own, file), "drop-in": _counted(ours, file)}
            for file in sorted({test.partition("::")[0] for test in own})
        },
        explained={test: reason for test, reason in reason_of.items() if reason},
        unexplained=[test for test, reason in reason_of.items() if not reason],
        needless=sorted(set(reasons) - used),
    )


def _key_of(test: str, reasons: Mapping[str, str], error: str) -> str:
    """Return the key of the reason for a failed test; ``""`` if there is none."""
    by_error = (key for key in reasons if key.startswith("error: ") and key.removeprefix("error: ") in error)
    return next((key for key in (test, test.partition("[")[0], *by_error) if key in reasons), "")


def _counted(outcomes: Mapping[str, str], file: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for test, outcome in outcomes.items():
        if test.partition("::")[0] == file:
            counts[outcome] += 1
    return {outcome: counts[outcome] for outcome in WORST_LAST}
