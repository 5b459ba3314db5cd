"""The types of the native module are those that nanobind generates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TYPES = Path(__file__).parents[2] / "src/framestow/_core/_native.pyi"
COMMAND = ["-m", "nanobind.stubgen", "-q", "-m", "framestow._core._native", "-P", "-D", "-o"]


def test_the_types_of_the_native_module_are_generated(tmp_path):
    generated = tmp_path / "_native.pyi"

    subprocess.run([sys.executable, *COMMAND, generated], check=True)

    assert generated.read_text() == TYPES.read_text(), f"run python {' '.join(COMMAND)} {TYPES}"
