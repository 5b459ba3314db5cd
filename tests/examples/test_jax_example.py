"""examples/dqn_jax.py runs with small numbers; ``make jax`` runs this."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "dqn_jax.py"


def test_the_dqn_in_jax_updates(tmp_path, monkeypatch, capsys):
    pytest.importorskip("jax", reason="make jax runs this")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["dqn_jax.py", "--steps", "32", "--warmup", "20", "--capacity", "1000"])

    runpy.run_path(str(EXAMPLE), run_name="__main__")

    printed = capsys.readouterr().out
    assert re.search(r"32 steps, \d+ games, the last ones scored [\d.]+, loss \d\.\d+", printed)
