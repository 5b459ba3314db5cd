"""examples/tianshou_dqn.py learns the same weights with our buffer and with Tianshou's."""

import importlib.util
import runpy
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("tianshou")

from tianshou import data as tianshou

EXAMPLE = Path(__file__).parents[3] / "examples" / "tianshou_dqn.py"


def example():
    spec = importlib.util.spec_from_file_location("tianshou_dqn", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def weights(module, *told, **how):
    algorithm, buffer = module.train(module.read_arguments(["--learning-starts", "100", *told]), **how)
    return torch.nn.utils.parameters_to_vector(algorithm.policy.parameters()).detach(), buffer


@pytest.mark.slow
@pytest.mark.parametrize("n_step", [pytest.param("1", marks=pytest.mark.exhaustive), "3"])
def test_training_on_breakout_gives_the_same_weights_bit_for_bit_also_after_the_ring_is_full(n_step):
    module, told = example(), ["--steps", "600", "--capacity", "300", "--n-step", n_step]
    theirs, _ = weights(module, *told, buffer_class=tianshou.VectorReplayBuffer)
    ours, buffer = weights(module, *told)

    assert torch.equal(theirs, ours)
    assert (len(buffer), buffer.memory.stack) == (300, 4)


@pytest.mark.exhaustive
def test_the_example_runs_as_a_command_and_prints_the_memory_use(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--steps", "1000", "--learning-starts", "900"])

    runpy.run_path(str(EXAMPLE), run_name="__main__")

    told = capsys.readouterr().out
    assert "900 random steps before the first update" in told
    assert "bytes a transition; its two stacks take 56,448" in told
