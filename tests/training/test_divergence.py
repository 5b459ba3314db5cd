"""A training that diverges stops, and its last good checkpoint stays."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from framestow.envs import SerialVectorEnv
from framestow.errors import DivergedError
from framestow.training.checkpoint import newest_checkpoint
from framestow.training.listeners import Checkpointing, InactiveLayerWarning
from framestow.training.loop import start_run, train
from framestow.training.run import Run
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from oracles.catch import SIDE, Catch
from training.catch_runs import catch_settings, make_catch
from training.checkpoint_states import read_checkpoint

FAR_TOO_HIGH = 1e15


def _run(tmp_path: Path, settings: Settings) -> tuple[Run, RunFolder]:
    folder = RunFolder.create(tmp_path / "run", settings)
    return start_run(folder, make_catch), folder


@pytest.mark.parametrize("priority_exponent", [0.0, 0.5])
def test_a_diverging_run_stops_and_names_the_step_and_the_last_good_checkpoint(
    tmp_path: Path, priority_exponent: float
) -> None:
    diverging = catch_settings(learning_rate=FAR_TOO_HIGH, checkpoint_every=60, priority_exponent=priority_exponent)
    run, folder = _run(tmp_path, diverging)

    with pytest.raises(DivergedError) as raised:
        train(run, folder, [Checkpointing(run, folder.checkpoints, pytest.fail)])

    newest = folder.newest_checkpoint()
    assert re.fullmatch(
        rf"the loss is (nan|inf) at step {run.tally.agent_steps}: the training diverged and this state is not saved; "
        rf"the last good checkpoint is {newest}; resume from it with a lower --learning-rate: "
        rf"framestow train --resume {folder.path} --learning-rate …",
        str(raised.value),
    )
    assert 60 <= read_checkpoint(newest).agent_steps < run.tally.agent_steps


def test_a_diverged_run_resumes_with_a_lower_learning_rate(tmp_path: Path) -> None:
    diverging = catch_settings(learning_rate=FAR_TOO_HIGH, checkpoint_every=60)
    run, folder = _run(tmp_path, diverging)
    with pytest.raises(DivergedError):
        train(run, folder, [Checkpointing(run, folder.checkpoints, pytest.fail)])

    folder.change_settings(dataclasses.replace(diverging, learning_rate=2e-4))
    resumed = start_run(folder, make_catch)
    train(resumed, folder)

    assert resumed.tally.agent_steps >= diverging.steps
    assert resumed.agent.learning_rate == 2e-4
    assert all(torch.isfinite(weights).all() for weights in resumed.agent.state_dict()["online"].values())


def test_a_run_that_diverged_before_its_first_checkpoint_writes_none(tmp_path: Path) -> None:
    run, folder = _run(tmp_path, catch_settings(learning_rate=FAR_TOO_HIGH))

    with pytest.raises(DivergedError, match=r"the run has no checkpoint; start it again with a lower --learning-rate"):
        train(run, folder)

    assert newest_checkpoint(folder.checkpoints) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("network", ["online", "target"])
def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path, network: str, value: float) -> None:
    run, folder = _run(tmp_path, catch_settings())
    last_weights = list(run.agent.state_dict()[network].values())[-1]
    with torch.no_grad():
        last_weights[-1] = value

    with pytest.raises(DivergedError, match=rf"{network}\.\S+ is not finite at step 0: "):
        run.save(folder.checkpoints)

    assert newest_checkpoint(folder.checkpoints) is None


@pytest.mark.parametrize("layer", [1, 2])
def test_a_layer_that_is_inactive_for_all_frames_is_named_once(tmp_path: Path, layer: int) -> None:
    run, folder = _run(tmp_path, catch_settings(checkpoint_every=100))
    with torch.no_grad():
        run.agent.state_dict()["online"][f"torso.{2 * layer - 2}.bias"].fill_(-100.0)
    warnings: list[str] = []

    train(run, folder, [InactiveLayerWarning(run, warnings.append)])

    assert len(warnings) == 1
    assert re.match(
        rf"step 10\d: layer {layer} of the network is inactive for all frames.*a lower --learning-rate$", warnings[0]
    )


def test_a_network_whose_layers_are_active_is_not_warned_about(tmp_path: Path) -> None:
    run, folder = _run(tmp_path, catch_settings(num_envs=1, checkpoint_every=50))

    train(run, folder, [InactiveLayerWarning(run, pytest.fail)])


def test_frames_that_are_all_the_same_are_no_sign_of_an_inactive_network(tmp_path: Path) -> None:
    class BlackCatch(Catch):
        def _frame(self) -> NDArray[np.uint8]:
            return np.zeros((SIDE, SIDE), np.uint8)

    folder = RunFolder.create(tmp_path / "run", catch_settings(num_envs=1, checkpoint_every=50))
    run = start_run(folder, lambda settings: SerialVectorEnv([BlackCatch], seed=settings.seed))

    train(run, folder, [InactiveLayerWarning(run, pytest.fail)])
