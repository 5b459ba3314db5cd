"""Run other libraries' tests of their own buffers, with those buffers and with the drop-ins.

    make public-suites                                              Stable-Baselines3's, from its source distribution
    make public-suites ARGS='--source tianshou=FOLDER@v2.0.1'       and Tianshou's, from a checkout in FOLDER
    make public-suites ARGS='--files tests/test_vec_envs.py'        only these files; the others keep their results

README.md, beside this file, says what is put in the place of what. A test that passes with the library's own buffer and
does not with the drop-in needs a reason in reasons.json; one without, or a reason that nothing needs, ends with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from framestow.benchmarking.result_files import write_result
from public_suites.outcomes import Comparison, compared, errors_of, outcomes_of
from public_suites.suites import SUITES, Suite

HERE = Path(__file__).parent
RESULT = HERE.parent / "public_suites.json"
DOWNLOADS = HERE.parents[1] / "build" / "public-suites"


@dataclass(frozen=True)
class Source:
    """The folder of a library's tests, and their version or commit."""

    folder: Path
    name: str

    @classmethod
    def given(cls, text: str) -> tuple[str, Source]:
        """Read ``LIBRARY=FOLDER`` or ``LIBRARY=FOLDER@COMMIT``."""
        library, _, place = text.partition("=")
        folder, _, name = place.partition("@")
        if library not in SUITES or not Path(folder).is_dir():
            raise argparse.ArgumentTypeError(
                f"{text!r} must be LIBRARY=FOLDER, of a folder that is there and of one of {', '.join(SUITES)}"
            )
        return library, cls(Path(folder).absolute(), name)

    @classmethod
    def downloaded(cls, suite: Suite) -> Source:
        """Fetch the source distribution from PyPI, once."""
        place = DOWNLOADS / suite.library
        if not place.exists():
            place.mkdir(parents=True)
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
            subprocess.run([*pip, "--no-binary", ":all:", "--dest", str(place), suite.download], check=True)
            [archive] = place.glob("*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(place, filter="data")
        [folder] = [path for path in place.iterdir() if path.is_dir()]
        return cls(folder, suite.download)


def run(suite: Suite, source: Source, is_drop_in: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Run the suite's tests in a copy of their folder; return the outcome and the error of each test by its name."""
    with TemporaryDirectory(prefix="public-suite-") as there:
        for top in {test.split("/")[0] for test in suite.tests}:
            shutil.copytree(source.folder / top, Path(there, top))
        report = Path(there, "report.xml")
        arguments = ["-q", "-p", "no:cacheprovider", "-p", "public_suites.drop_ins", "-o", "junit_family=xunit1"]
        environment = {
            **os.environ,
            **suite.environment,
            "PYTHONPATH": str(HERE.parent),
            "DROP_IN_FOR": suite.library if is_drop_in else "",
            "OMP_NUM_THREADS": "1",
        }
        Path(there, "pytest.ini").write_text("[pytest]\nmarkers = expensive\n")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments, *suite.options, f"--junitxml={report}", *suite.tests],
            cwd=there,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        name = f"{suite.library}-{'drop-in' if is_drop_in else 'own'}"
        DOWNLOADS.mkdir(parents=True, exist_ok=True)
        (DOWNLOADS / f"{name}.log").write_text(done.stdout + done.stderr)
        if not report.exists():
            sys.exit(
                f"{name}: pytest ended with {done.returncode} and wrote no report:\n{done.stdout[-2000:]}{done.stderr}"
            )
        return (
            {suite.own_name(test): outcome for test, outcome in outcomes_of(report).items()},
            {suite.own_name(test): error for test, error in errors_of(report).items()},
        )


def show(library: str, comparison: Comparison) -> None:
    """Print one line per file, and the faults."""
    for file, counts in comparison.files.items():
        own, ours = counts["own buffer"], counts["drop-in"]
        print(f"{library:18s} {file:34s} own {own}   drop-in {ours}", flush=True)
    for test in comparison.unexplained:
        print(f"  no reason: {test}")
    for test in comparison.needless:
        print(f"  passes, and yet has a reason: {test}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Source.given, action="append", default=[], metavar="LIBRARY=FOLDER[@COMMIT]")
    parser.add_argument("--only", nargs="+", choices=SUITES, metavar="LIBRARY", default=list(SUITES))
    parser.add_argument("--files", nargs="+", metavar="FILE", help="run only these files of the suites")
    arguments = parser.parse_args()
    sources = dict(arguments.source)
    for suite in SUITES.values():
        if suite.download and suite.library in arguments.only:
            sources.setdefault(suite.library, Source.downloaded(suite))
    reasons = json.loads((HERE / "reasons.json").read_text(encoding="utf-8"))
    results = json.loads(RESULT.read_text(encoding="utf-8"))["suites"] if RESULT.exists() else {}
    is_explained = True
    for library in [library for library in arguments.only if library in sources]:
        suite, source = SUITES[library], sources[library]
        reasons_here, before = reasons.get(library, {}), {}
        if arguments.files:
            suite = replace(suite, tests=tuple(file for file in suite.tests if file in arguments.files))
            reasons_here = {test: why for test, why in reasons_here.items() if test.partition("::")[0] in suite.tests}
            before = results.get(library, {})
        if not suite.tests:
            continue
        print(f"running the tests of {library} from {source.name or source.folder.name}", flush=True)
        with ThreadPoolExecutor(2) as both:
            (own, _), (ours, errors) = both.map(
                lambda is_drop_in, s=suite, f=source: run(s, f, is_drop_in), (False, True)
            )
        comparison = compared(own, ours, reasons_here, errors)
        show(library, comparison)
        is_explained &= not (comparison.unexplained or comparison.needless)
        summary = {key: {**before.get(key, {}), **new} for key, new in comparison.summary().items()}
        results[library] = {"tests of": source.name, "installed": version(library), **summary}
    print("written:", write_result(RESULT, {"suites": dict(sorted(results.items()))}, "make public-suites").name)
    return 0 if is_explained else 1


if __name__ == "__main__":
    sys.exit(main())
