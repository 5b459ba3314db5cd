"""examples/torchrl_dqn.py prints the same on the real game with our storage and with TorchRL's."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "torchrl_dqn.py"
STEPS = ("--steps", "1600", "--capacity", "800", "--warm-up", "1000", "--envs", "2")


def printed(capsys, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *STEPS, *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.exhaustive
def test_the_example_prints_the_same_losses_and_scores_with_both_storages(capsys, monkeypatch):
    ours = printed(capsys, monkeypatch)
    theirs = printed(capsys, monkeypatch, "--storage", "torchrl")

    def progress(text):
        return re.findall(r"^([\d,]+ steps), \d+ a second, (loss .*)$", text, re.MULTILINE)

    assert progress(theirs) == progress(ours)
    assert 2 == len(progress(ours))
    assert "transitions in" in ours
