"""The examples of the older buffers run and print the memory use per frame."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


def output_of(example, *arguments):
    command = [sys.executable, EXAMPLES / example, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout


@pytest.mark.exhaustive
def test_the_berkeley_style_dqn_learns_from_atari_and_prints_its_memory_use():
    output = output_of("classic_atari.py", "--steps", "1500", "--learning-starts", "500")

    assert re.search(r"1,000 steps, \d+ a second; last games \d+\.\d; loss \d+\.\d+", output)
    assert "1,499 of 1,000,000 transitions in" in output


@pytest.mark.exhaustive
def test_super_mario_bros_is_recorded_and_sampled(tmp_path):
    pytest.importorskip("gym_super_mario_bros")
    picture = tmp_path / "stack.png"

    output = output_of("super_mario_bros.py", "--steps", "1200", "--grey", "--picture", picture)

    assert "a batch: observations (32, 84, 84, 4) uint8" in output
    assert int(re.search(r"(\d+) bytes a frame instead of 7,056", output)[1]) < 2000
    assert picture.read_bytes()[1:4] == b"PNG"
