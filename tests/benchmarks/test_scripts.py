"""Every benchmark can be started: its imports work, and its options explain themselves."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SCRIPTS = [
    path
    for path in sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
    if "ArgumentParser(" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_prints_its_options(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])

    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(script), run_name="__main__")

    assert f"usage: {script.name}" in capsys.readouterr().out
