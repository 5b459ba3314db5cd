"""A training that is killed at random moments goes on each time with nothing lost and nothing left over.

Three kills here; ``make kills`` makes 200 of them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.exhaustive


def test_a_run_killed_again_and_again_equals_the_one_that_nobody_killed() -> None:
    script = TESTS / "training" / "kills" / "kill_training.py"

    finished = subprocess.run(
        [sys.executable, str(script), "--kills", "3", "--kinds", "shortest", "--forked-share", "1"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        check=False,
        timeout=300,
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "survived: 3\n" in finished.stdout
    assert "runs finished equal to the uninterrupted one: " in finished.stdout
