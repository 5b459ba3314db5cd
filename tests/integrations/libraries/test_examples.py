"""The examples of the libraries run as commands, and learn the same weights with our buffer and with the library's."""

import importlib.util
import re
import subprocess
import sys
from operator import methodcaller
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = pytest.mark.exhaustive


def printed(example, *arguments):
    command = [sys.executable, EXAMPLES / example, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout


@pytest.mark.parametrize(
    ("library", "command", "expected"),
    [
        (
            "torch",
            "classic_atari.py --steps 1500 --learning-starts 500",
            r"1,000 steps, \d+ a second; last games \d+\.\d; loss \d+\.\d+(.|\n)*1,499 of 1,000,000 transitions\n",
        ),
        (
            "stable_baselines3",
            "cleanrl_dqn_atari.py --steps 1000 --learning-starts 900",
            r"step 1,000: (.|\n)*bytes per transition, with all work space; its",
        ),
        (
            "tianshou",
            "tianshou_dqn.py --steps 1000 --learning-starts 900",
            r"900 random steps before the first update(.|\n)*bytes per transition, with all work space; its",
        ),
    ],
    ids=["Berkeley", "CleanRL", "Tianshou"],
)
def test_an_example_trains_and_prints_its_memory_use(library, command, expected):
    pytest.importorskip(library)

    assert re.search(expected, printed(*command.split()))


@pytest.mark.parametrize(
    ("example", "theirs", "told", "num_stored"),
    [
        (
            "cleanrl_dqn_atari",
            "stable_baselines3.common.buffers.ReplayBuffer",
            "--steps 500 --capacity 200 --target-every 200",
            methodcaller("size"),
        ),
        *(
            ("tianshou_dqn", "tianshou.data.VectorReplayBuffer", f"--steps 600 --capacity 300 --n-step {n_step}", len)
            for n_step in (1, 3)
        ),
    ],
)
def test_training_on_breakout_gives_the_same_weights_bit_for_bit_also_after_the_ring_is_full(
    example, theirs, told, num_stored
):
    module, _, name = theirs.rpartition(".")
    expected, _ = weights(example, told, buffer_class=getattr(pytest.importorskip(module), name))

    actual, buffer = weights(example, told)

    assert torch.equal(expected, actual)
    assert (num_stored(buffer), buffer.memory.stack) == (int(re.search(r"--capacity (\d+)", told)[1]), 4)


def weights(example, told, **how):
    spec = importlib.util.spec_from_file_location(example, EXAMPLES / f"{example}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    trained, buffer = module.train(module.read_arguments(["--learning-starts", "100", *told.split()]), **how)
    network = getattr(trained, "policy", trained)
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach(), buffer


def test_truncated_episodes_lead_to_other_weights_than_in_cleanrl():
    buffers, told = pytest.importorskip("stable_baselines3.common.buffers"), "--steps 400 --truncate-after 10"
    theirs, _ = weights("cleanrl_dqn_atari", told, buffer_class=buffers.ReplayBuffer)

    ours, buffer = weights("cleanrl_dqn_atari", told)

    assert not torch.equal(theirs, ours)
    # Truncations have no flag; the next episode starts with another observation.
    assert len(list(buffer.memory.episodes())) > 20


def test_torchrls_example_prints_the_same_losses_and_scores_with_both_storages():
    command = ["torchrl_dqn.py", "--steps", "1600", "--capacity", "800", "--warm-up", "1000", "--envs", "2"]

    ours, theirs = printed(*command), printed(*command, "--storage", "torchrl")

    def progress(text):
        return re.findall(r"^([\d,]+ steps), \d+ a second, (loss .*)$", text, re.MULTILINE)

    assert progress(theirs) == progress(ours)
    assert 2 == len(progress(ours))
    assert "transitions in" in ours


def test_the_example_of_stable_baselines3_trains_saves_and_resumes(tmp_path):
    command = ["stable_baselines3_dqn.py", "--learning-starts", "100", "--envs", "2", "--capacity", "1000"]

    first = printed(*command, "--steps", 200, "--save", tmp_path / "run")
    then = printed(*command, "--steps", 100, "--resume", tmp_path / "run")

    assert "\n200 of 1,000 transitions\n" in first
    assert f"saved in {tmp_path / 'run'}: the memory takes " in first
    assert "resuming after 200 steps, with 100 rows" in then
    # Two environments take four steps each between checks of the limit.
    assert "\n304 of 1,000 transitions\n" in then


def test_gymnasiums_example_stores_the_same_transitions_both_ways_and_prints_the_bytes():
    shown = printed("gymnasium_frame_stack.py", "--steps", 1200)

    assert "1,000 of 1,200 steps played\n32 sampled transitions: deque and ReplayMemory return the same" in shown
    arrays, lazy, packed = map(float, re.findall(r"takes? +([\d.]+) MiB", shown))
    assert packed < lazy / 5 < arrays / 5


def test_super_mario_bros_is_recorded_and_sampled(tmp_path):
    pytest.importorskip("gym_super_mario_bros")
    picture = tmp_path / "stack.png"

    shown = printed("super_mario_bros.py", "--steps", 1200, "--grey", "--picture", picture)

    assert "a batch: observations (32, 84, 84, 4) uint8" in shown
    assert int(re.search(r"(\d+) bytes a frame instead of 7,056", shown)[1]) < 2000
    assert picture.read_bytes()[1:4] == b"PNG"
