"""A run refuses what it cannot train on before it trains."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, MultiBinary, Space
from gymnasium.vector import AutoresetMode

from framestow.envs import SerialVectorEnv
from framestow.errors import EnvironmentFailedError, IncompatibleError, InvalidSettingsError
from framestow.replay.memory import ReplayMemory
from framestow.training.loop import start_run, train
from framestow.training.run import Run, choose_device
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from oracles.catch import Catch
from oracles.random_env import RandomEnv
from training.catch_runs import catch_settings, make_catch


def test_an_unavailable_device_is_refused() -> None:
    missing = "mps" if torch.cuda.is_available() else "cuda"

    with pytest.raises(InvalidSettingsError, match=f"device is '{missing}': PyTorch .* take auto or cpu"):
        choose_device(missing)


def test_auto_takes_an_available_device() -> None:
    assert torch.zeros(1, device=choose_device("auto")).item() == 0.0


def test_a_make_env_that_returns_another_number_of_environments_is_refused() -> None:
    def make_two(settings: Settings) -> SerialVectorEnv:
        return SerialVectorEnv([Catch] * 2)

    with pytest.raises(InvalidSettingsError, match="num_envs is 3: make_env returned 2 environments"):
        Run(catch_settings(num_envs=3), make_two)


def test_environments_without_autoreset_are_refused() -> None:
    def make_unreset(settings: Settings) -> SerialVectorEnv:
        return SerialVectorEnv([Catch] * settings.num_envs, autoreset_mode=AutoresetMode.DISABLED)

    with pytest.raises(InvalidSettingsError, match="the training loop does not reset environments"):
        Run(catch_settings(), make_unreset)


@pytest.mark.parametrize(
    "space", [Box(0, 1, (8, 8)), Box(-9, 9, (8, 8), np.int8), MultiBinary((8, 8)), Dict(a=Box(0, 1))]
)
def test_frames_that_are_not_uint8_are_refused(space: Space) -> None:
    make = lambda settings: SerialVectorEnv([partial(RandomEnv, space, 0)] * settings.num_envs)  # noqa: E731

    with pytest.raises(InvalidSettingsError, match=f"of dtype {space.dtype}: DQN needs one uint8 frame"):
        Run(catch_settings(), make)


class Jammed(Catch):
    def close(self) -> None:
        raise OSError("the window is jammed")


def test_a_run_whose_environments_do_not_close_leaves_its_memory_unlocked(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", catch_settings(memory_on_disk=True))
    run = start_run(folder, lambda settings: SerialVectorEnv([Jammed] * settings.num_envs))

    with pytest.raises(EnvironmentFailedError, match="the window is jammed"):
        run.close()

    ReplayMemory.open(folder.memory, read_only=False).close()


@pytest.mark.parametrize(("preset", "is_zero"), [("nature", True), ("machado2018", False)])
def test_the_memory_pads_stacks_as_the_preset_does(preset: str, is_zero: bool) -> None:
    run = Run(catch_settings(preset=preset), make_catch)

    padded, newest = run.memory.observations()[:, 0], run.memory.observations()[:, 1]

    assert newest.any()
    assert np.array_equal(padded, 0 * newest if is_zero else newest)


def test_a_run_with_same_step_autoreset_counts_every_step(tmp_path: Path) -> None:
    def make_same_step(settings: Settings) -> SerialVectorEnv:
        return SerialVectorEnv([Catch] * settings.num_envs, autoreset_mode=AutoresetMode.SAME_STEP, seed=settings.seed)

    folder = RunFolder.create(tmp_path / "run", catch_settings(steps=150, memory=1_000))
    run = start_run(folder, make_same_step)
    train(run, folder)
    run.close()

    assert run.tally.agent_steps == len(run.memory) == 150
    assert run.tally.episodes == 3 * (50 // 11)


def test_a_checkpoint_of_other_environments_is_refused(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", catch_settings(steps=30))
    run = start_run(folder, make_catch)
    train(run, folder)
    run.close()
    (folder.path / "settings.json").write_text(catch_settings(steps=60, num_envs=4).to_json())

    with pytest.raises(IncompatibleError, match=re.escape("300 and 3 environments: the settings have 300 and 4")):
        start_run(folder, make_catch)
