"""The view of a run: the agent's values of the actions, and the TD errors, as its checkpoint has them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from framestow.agents.dqn import DQN
from framestow.cli import main
from framestow.replay.memory import ReplayMemory
from framestow.training.checkpoint import newest_checkpoint, restore_agent
from framestow.training.loop import start_run, train
from framestow.training.run_folder import RunFolder
from oracles.numbered_steps import numbered_memory, play_episode
from oracles.shown_resources import resources_of_page
from training.catch_runs import catch_settings, make_catch


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / "catch", catch_settings(steps=300))
    run = start_run(folder, make_catch)
    train(run, folder)
    run.close()
    return folder.path


def test_the_page_of_a_run_has_the_values_and_the_td_errors_of_its_newest_checkpoint(run):
    assert 0 == main(["view", str(run)])

    settings, memory = RunFolder.open(run).settings(), ReplayMemory.open(run / "memory")
    agent = DQN((memory.stack, *memory.observation_space.shape), 3, settings.agent(), "cpu", seed=1)
    restore_agent(newest_checkpoint(run / "checkpoints"), agent)
    resources = resources_of_page(run / "memory.html")
    assert 300 == resources["memory"].values["agent_steps"]
    assert 3 == len(resources["memory"].values["action_names"])
    numbers = resources["episodes"].arrays["number"].tolist()
    assert numbers
    for number in numbers:
        steps, shown = resources[f"episode/{number}"].arrays, resources[f"values/{number}/0"].arrays
        is_sampleable = steps["is_sampleable"].astype(bool)
        batch = memory.get(steps["index"][is_sampleable].astype(np.int64))
        values = agent.values(np.ascontiguousarray(batch.observation))
        best = agent.values(np.ascontiguousarray(batch.next_observation)).max(axis=1)
        errors = batch.reward + batch.discount * best - values[np.arange(len(batch)), batch.action]
        assert np.allclose(values, shown["values"][is_sampleable], atol=1e-5)
        assert np.allclose(errors, shown["td_error"][is_sampleable], atol=1e-5)
        assert np.isnan(shown["td_error"][~is_sampleable]).all()


def test_a_memory_that_the_network_does_not_take_is_shown_without_values(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("memory", "*.html"))
    memory = numbered_memory(10)
    play_episode(memory, 0, 3)
    memory.save(tmp_path / "run" / "memory")

    assert 0 == main(["view", str(tmp_path / "run")])

    assert "the agent's values are not shown" in capsys.readouterr().out
    assert [] == resources_of_page(tmp_path / "run" / "memory.html")["memory"].values["action_names"]
