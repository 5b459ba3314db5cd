"""A run whose environments play in worker processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from framestow.envs import WorkerVectorEnv
from framestow.errors import InvalidSettingsError
from framestow.training import loop as trainer
from framestow.training.checkpoint import newest_checkpoint
from framestow.training.playing import evaluation_settings
from framestow.training.run import Run
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from framestow.training.training_run import EpisodesLost, Event, Listener, StepTaken
from oracles.catch import Catch
from training.catch_runs import catch_settings, make_catch
from training.equal_runs import assert_equal_runs


def make_working_catch(settings: Settings) -> WorkerVectorEnv:
    return WorkerVectorEnv(
        [Catch] * settings.num_envs,
        num_workers=settings.workers,
        start_method="fork",
        on_worker_lost="restart",
        seed=settings.seed,
    )


def _trained(path: Path, make_env: Any, listeners: tuple[Listener, ...] = (), **changes: Any) -> Run:
    folder = RunFolder.create(path, catch_settings(**changes))
    run = trainer.start_run(folder, make_env)
    trainer.train(run, folder, listeners)
    run.close()
    return run


class KillingWorkers:
    """Kills the first worker's process at given agent steps."""

    def __init__(self, at_steps: list[int]) -> None:
        self.at_steps, self.env = at_steps, None
        self.lost: list[EpisodesLost] = []

    def make(self, settings: Settings) -> WorkerVectorEnv:
        self.env = make_working_catch(settings)
        return self.env

    def take(self, event: Event) -> None:
        if isinstance(event, EpisodesLost):
            self.lost.append(event)
        if isinstance(event, StepTaken) and self.at_steps and event.agent_steps >= self.at_steps[0]:
            self.at_steps.pop(0)
            os.kill(self.env.worker_pids[0], signal.SIGKILL)

    def close(self) -> None:
        pass


def test_a_run_in_workers_is_the_same_run(tmp_path: Path) -> None:
    expected = _trained(tmp_path / "here", make_catch)

    actual = _trained(tmp_path / "workers", make_working_catch, workers=2)

    assert_equal_runs(expected, actual)


@pytest.mark.filterwarnings("ignore:.*it is replaced:RuntimeWarning")
def test_a_run_survives_killed_workers_and_counts_only_stored_steps(tmp_path: Path) -> None:
    killing = KillingWorkers([150, 333])

    run = _trained(tmp_path / "run", killing.make, (killing,), workers=2, memory=1_000, steps=600)

    assert [event.env_ids for event in killing.lost] == [(0, 1), (0, 1)]
    assert all("SIGKILL" in event.reason for event in killing.lost)
    assert run.tally.agent_steps == len(run.memory) >= 600
    assert newest_checkpoint(RunFolder.open(tmp_path / "run").checkpoints) is not None


def test_more_workers_than_environments_are_refused() -> None:
    with pytest.raises(
        InvalidSettingsError,
        match="workers is 4: each worker needs an environment, and there are 3",
    ):
        catch_settings(workers=4)


def test_an_evaluation_of_few_games_takes_no_more_workers_than_it_has_environments() -> None:
    assert evaluation_settings(catch_settings(workers=3), episodes=2, seed=0).workers == 2
