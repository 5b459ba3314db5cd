"""A training run that is killed at random moments resumes each time, with nothing lost and nothing left over.

This test makes 3 kills; ``make kills`` makes 200.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.exhaustive


def test_a_run_killed_three_times_equals_the_uninterrupted_run() -> None:
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
