"""Outcomes of other libraries' tests are read and compared."""

from __future__ import annotations

from public_suites.outcomes import compared, errors_of, outcomes_of

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_it" file="tests/test_a.py" />
<testcase classname="tests.test_a" name="test_it[1]" file="tests/test_a.py">
<failure message="E: no pixels among it">no</failure></testcase>
<testcase classname="tests.test_a.TestB" name="test_it" file="tests/test_a.py"><skipped /></testcase>
<testcase classname="tests.test_a" name="test_it" file="tests/test_a.py"><error>at its end</error></testcase>
</testsuite></testsuites>"""


def test_a_test_that_ends_in_an_error_has_failed(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(REPORT)

    expected = {
        "tests/test_a.py::test_it": "failed",
        "tests/test_a.py::test_it[1]": "failed",
        "tests/test_a.py::TestB::test_it": "skipped",
    }
    assert expected == outcomes_of(report)


def test_a_test_that_passes_only_with_the_own_buffer_needs_a_reason():
    own = {"a.py::one[1]": "passed", "a.py::one[2]": "passed", "a.py::two": "passed", "b.py::three": "failed"}
    ours = {"a.py::one[1]": "failed", "a.py::one[2]": "skipped", "b.py::three": "failed"}

    comparison = compared(own, ours, {"a.py::one": "it looks into arrays"}, {})

    assert {"a.py::one[1]": "it looks into arrays", "a.py::one[2]": "it looks into arrays"} == comparison.explained
    assert ["a.py::two"] == comparison.unexplained
    assert {"passed": 3, "skipped": 0, "failed": 0} == comparison.files["a.py"]["own buffer"]
    assert {"passed": 0, "skipped": 1, "failed": 1} == comparison.files["a.py"]["drop-in"]


def test_an_unneeded_reason_is_reported():
    comparison = compared({"a.py::one": "passed"}, {"a.py::one": "passed"}, {"a.py::one": "it once failed"}, {})

    assert ["a.py::one"] == comparison.needless


def test_one_reason_explains_all_tests_with_the_same_error(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    errors = errors_of(report)
    test = "tests/test_a.py::test_it[1]"
    assert "E: no pixels among it" == errors[test]

    reasons = {"error: no pixels": "it stores numbers", "error: other": "of no test"}
    comparison = compared({test: "passed", "a.py::two": "passed"}, {test: "failed"}, reasons, errors)

    assert {test: "it stores numbers"} == comparison.explained
    assert (["a.py::two"], ["error: other"]) == (comparison.unexplained, comparison.needless)
