"""examples/cleanrl_dqn_atari.py learns the same weights with our buffer and with CleanRL's former buffer."""

import importlib.util
import runpy
import sys
from pathlib import Path

import pytest
import torch
from stable_baselines3.common import buffers

EXAMPLE = Path(__file__).parents[3] / "examples" / "cleanrl_dqn_atari.py"


def example():
    spec = importlib.util.spec_from_file_location("cleanrl_dqn_atari", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def weights(module, *told, **how):
    network, buffer = module.train(module.read_arguments(["--learning-starts", "100", *told]), **how)
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach(), buffer


@pytest.mark.exhaustive
def test_training_on_breakout_gives_the_same_weights_bit_for_bit_also_after_the_ring_is_full():
    module, told = example(), ["--steps", "500", "--capacity", "200", "--target-every", "200"]
    theirs, _ = weights(module, *told, buffer_class=buffers.ReplayBuffer)
    ours, buffer = weights(module, *told)
    assert torch.equal(theirs, ours)
    assert (buffer.size(), buffer.memory.stack) == (200, 4)


@pytest.mark.exhaustive
def test_truncated_episodes_lead_to_other_weights():
    module, told = example(), ["--steps", "400", "--truncate-after", "10"]
    theirs, _ = weights(module, *told, buffer_class=buffers.ReplayBuffer)
    ours, buffer = weights(module, *told)
    assert not torch.equal(theirs, ours)
    # Truncations have no flag; the next episode starts with another observation.
    assert len(list(buffer.memory.episodes())) > 20


@pytest.mark.exhaustive
def test_the_example_runs_as_a_command_and_prints_the_memory_use(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--steps", "1000", "--learning-starts", "900"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    told = capsys.readouterr().out
    assert "step 1,000: " in told
    assert "bytes a transition; its two stacks take 56,448" in told
