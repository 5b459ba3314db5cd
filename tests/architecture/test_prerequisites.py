"""`make` says at once what is missing for a build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "prerequisites"
OLD_PYTHON = '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.4\n[ "$1" = --version ]\n'
OLD_COMPILER = "#!/bin/sh\nexit 1\n"


def found(python: str, compiler: str) -> tuple[int, str]:
    """Return exit code and message of the script with these programs."""
    ran = subprocess.run(
        [SCRIPT, python], env={**os.environ, "CXX": compiler}, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.stdout == ""
    return ran.returncode, ran.stderr.replace(python, "python").replace(compiler, "compiler")


def program(folder: Path, text: str) -> str:
    """Return the path of a program that stands for an old one."""
    (folder / "old").write_text(text)
    (folder / "old").chmod(0o755)
    return str(folder / "old")


def test_this_machine_has_what_a_build_needs():
    assert (0, "") == found(sys.executable, "c++")


@pytest.mark.parametrize(
    ("python", "compiler", "message"),
    [
        ("no-such-python", "c++", "python: it is not installed; install Python 3.11 or later (Debian: "),
        (OLD_PYTHON, "c++", "python is Python 3.10.4: framestow needs Python 3.11 or later; install one, or name it: "),
        (sys.executable, "no-such-c++", "compiler: there is no C++ compiler of this name; install one (Debian: "),
        (sys.executable, OLD_COMPILER, "compiler: it does not compile C++17; install GCC 9, Clang 10 or later, or "),
    ],
    ids=["no Python", "old Python", "no compiler", "old compiler"],
)
def test_what_is_missing_is_named_with_the_way_to_get_it(python, compiler, message, tmp_path):
    python, compiler = (program(tmp_path, one) if one.startswith("#!") else one for one in (python, compiler))

    code, printed = found(python, compiler)

    assert 1 == code
    assert printed.startswith(message), printed
    assert printed.count("\n") == 1
