"""examples/gymnasium_frame_stack.py runs and prints the expected results."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "gymnasium_frame_stack.py"


@pytest.mark.exhaustive
def test_the_example_stores_the_same_transitions_both_ways_and_prints_the_bytes():
    run = subprocess.run(
        [sys.executable, EXAMPLE, "--steps", "1200"], capture_output=True, text=True, check=True, timeout=300
    )

    assert "1,000 of 1,200 steps played\n32 sampled transitions: deque and ReplayMemory return the same" in run.stdout
    arrays, lazy, packed = map(float, re.findall(r"takes? +([\d.]+) MiB", run.stdout))
    assert packed < lazy / 5 < arrays / 5
